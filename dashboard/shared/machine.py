"""The load and the memory of this machine over the last hour, sampled while the server runs."""

from __future__ import annotations

import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from threading import Thread

import psutil

EVERY, KEPT = 10.0, 360
"""Seconds between two samples, and how many are kept: those of an hour."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the machine did at a time.

    Attributes:
        at: Seconds since the epoch.
        load: Processes that ran or waited for a core, over the last minute.
        used: Bytes of memory.
        busiest: The program that used most processor time since the sample before, with its script but without its
            other arguments, which may be secret; empty if none is known.
    """

    at: float
    load: float
    used: int
    busiest: str = ""


_SAMPLES: deque[Sample] = deque(maxlen=KEPT)


def sample() -> Sample:
    """What the machine does now."""
    memory = psutil.virtual_memory()
    programs = [one.info for one in psutil.process_iter(["pid", "name", "cpu_percent"]) if one.info["cpu_percent"]]
    most = max(programs, key=itemgetter("cpu_percent"), default=None)
    busiest = f"{program(most['pid'], most['name'])}, process {most['pid']}" if most else ""
    return Sample(time.time(), psutil.getloadavg()[0], memory.total - memory.available, busiest)


def program(pid: int, name: str) -> str:
    """A program by its name and, of an interpreter, the script or module that it runs."""
    with suppress(psutil.Error):
        arguments = psutil.Process(pid).cmdline()[1:]
        while arguments and re.fullmatch("-[bBdEiIOPqsSuvx]+", arguments[0]):  # options of Python without a value
            arguments.pop(0)
        if arguments[:1] == ["-m"]:
            return " ".join((name, *arguments[:2]))
        if arguments and Path(arguments[0]).suffix in (".py", ".sh"):
            return f"{name} {Path(arguments[0]).name}"
    return name


def history() -> list[Sample]:
    """The samples, the oldest first; empty unless `watch_machine` was called."""
    return list(_SAMPLES)


def watch_machine() -> None:
    """Take samples until the process ends."""

    def watch() -> None:
        while True:
            _SAMPLES.append(sample())
            time.sleep(EVERY)

    Thread(target=watch, daemon=True, name="machine").start()

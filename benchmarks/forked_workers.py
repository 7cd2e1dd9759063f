"""Forks the workers of the local engine, and the ranks of a trial, which saves starting an interpreter for each.

Linux only.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

from ablate.execution import local, ranks
from benchmarks.forked_process import ForkedProcess

FORKED = "ablate-worker"
"""The process name of a forked worker."""
FORKED_RANK = "ablate-rank"
"""The process name of a forked rank."""
_NAMES = {"ablate.execution.worker": FORKED, "ablate.execution.ranks": FORKED_RANK}
"""The modules that a forked process runs, and its name."""


@contextmanager
def forked_workers() -> Iterator[None]:
    """Let the local engine fork its workers, and a trial its ranks, from this process, which has imported torch."""
    forking = SimpleNamespace(**{**vars(subprocess), "Popen": _start_process})
    with patch.object(local, "subprocess", forking), patch.object(ranks, "subprocess", forking):
        yield


def _start_process(command: Sequence[str], **options: Any) -> Any:
    """What is called instead of `subprocess.Popen`."""
    if any(module in command for module in _NAMES):
        return _ForkedModule(command, **options)
    return subprocess.Popen(command, **options)


class _ForkedModule(ForkedProcess):
    """`python -m MODULE ARGUMENTS`, forked from this process, instead of `subprocess.Popen`.

    Attributes:
        stdin: The end of its standard input to write to, if it was asked for.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        stdin: int | None = None,
        stdout: IO[bytes] | None = None,
        env: dict[str, str] | None = None,
        **others: Any,
    ) -> None:
        self.stdin: IO[bytes] | None = None
        reading = os.open(os.devnull, os.O_RDONLY)
        if stdin == subprocess.PIPE:
            os.close(reading)
            reading, writing = os.pipe()
            self.stdin = open(writing, "wb")  # noqa: SIM115 - closed by the caller, as that of `Popen`
        log = None if stdout is None else stdout.fileno()
        environment = dict(os.environ) if env is None else env
        super().__init__(partial(_become, command, reading, log, pass_fds, environment))
        os.close(reading)


def _become(
    command: Sequence[str], reading: int, log: int | None, passed: Sequence[int], environment: dict[str, str]
) -> None:
    """The forked process: what `python -m MODULE` would be, without any other file of the parent's."""
    gc.freeze()  # what the parent has left is not finalised here: its descriptors have other owners now
    at = command.index("-m") + 1
    module = command[at]
    Path("/proc/self/comm").write_text(_NAMES[module])
    os.dup2(reading, 0)
    if log is not None:
        os.dup2(log, 1)
        os.dup2(log, 2)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in passed:
            with suppress(OSError):  # the listing's own
                os.close(number)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [*command[at:]]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)

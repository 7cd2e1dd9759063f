"""The processes that run `drafter.py`. They import torch, which the dashboard does not."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from select import select
from threading import Lock
from weakref import finalize

import streamlit as st

from ablate.launching import child_environment, python_command
from shared.store import options

_PATIENCE = 60.0
"""Seconds that a quick answer may take: checking a draft from an address may take hours."""


class Drafter:
    """A process that runs `drafter.py`; started when needed, and restarted if it has died.

    Args:
        plugins: Paths of plugin files that it imports.
        patience: Seconds that an answer may take; None for no limit.
    """

    def __init__(self, plugins: list[str], patience: float | None) -> None:
        self._command = python_command(str(Path(__file__).parents[1] / "drafter.py"), *plugins)
        self._patience = patience
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def answer(self, request: str) -> str:
        """The answer to a line of JSON; empty if the process fails or takes longer than `patience` seconds."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    env=child_environment(),
                )
                finalize(self, _end, self._process)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            try:
                self._process.stdin.write(f"{request}\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                return ""
            if not select([self._process.stdout], [], [], self._patience)[0]:
                _end(self._process)
                return ""
            answer = self._process.stdout.readline()
        return str(json.loads(answer)) if answer else ""


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that no session uses any longer."""
    process.kill()
    with suppress(BrokenPipeError), process:
        pass


@st.cache_resource(show_spinner=False)
def drafter(*, slow: bool = False) -> Drafter:
    """One process for quick requests and one for slow ones, so that a click does not wait for an earlier estimate."""
    return Drafter([str(plugin) for plugin in options()["plugins"]], None if slow else _PATIENCE)

"""What the tests of the schema share: a space file in an empty folder, and a limit of time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_hang() -> Iterator[None]:
    """Fail a test that would run for minutes or hours; what it tests takes less than a second."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("still running after 30 seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)

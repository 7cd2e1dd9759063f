"""Ctrl-C while a study runs: the first asks it to stop at a good moment, a second one insists."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_early = False


def heed_early_interrupts() -> None:
    """Remember a SIGINT that comes before a study runs, besides raising KeyboardInterrupt.

    Some libraries swallow the exception while they are imported; the study then stops as soon as it begins.
    """

    def remember(number: int, frame: FrameType | None) -> None:
        global _early
        _early = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, remember)


@dataclass(slots=True)
class StopRequest:
    """Whether somebody asked to stop."""

    asked: bool = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """The first SIGINT or SIGTERM asks to stop; a second SIGINT raises KeyboardInterrupt at once."""
    stop = StopRequest(asked=_early)

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread (a notebook's helper thread): signals are somebody else's
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Signals while a study runs: the first Ctrl-C stops it in an orderly way, the second at once; a closed terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_STOPPING = [signal.SIGINT, signal.SIGTERM]
if sys.platform != "win32":
    _STOPPING.append(signal.SIGHUP)
_early = False


def handle_early_interrupts() -> None:
    """Record a SIGINT that arrives before a study runs, besides raising KeyboardInterrupt.

    Some libraries swallow the exception while they are imported. The study then stops as soon as it begins.
    """

    def remember(number: int, frame: FrameType | None) -> None:
        global _early
        _early = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, remember)


@dataclass(slots=True)
class StopRequest:
    """Whether a stop was requested."""

    asked: bool = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Record the first SIGINT, SIGTERM or SIGHUP as a request to stop; a second SIGINT raises KeyboardInterrupt.

    SIGHUP tells that the terminal has closed; under `nohup` it is ignored, and stays so.
    """
    stop = StopRequest(asked=_early)

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    numbers = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        before = {number: signal.signal(number, ask) for number in numbers}
    except ValueError:  # not the main thread, as in some notebooks: only the main thread can handle signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

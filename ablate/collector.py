"""Python's cyclic garbage collector, paused while many records are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Look for no unreachable cycles meanwhile.

    The collector runs after every so many new objects, and goes through all there are: for the 200,000 records of a
    large study it takes as long as making them does. Of several threads, the first that paused it ends the pause.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

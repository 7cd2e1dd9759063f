"""A pause of Python's cyclic garbage collector while many records are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector in the body.

    It runs after a fixed number of new objects and visits all that exist, which takes long while the points of a large
    study are read. The pause is that of the process: the first thread that began one ends it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

"""How many processor cores there are for us."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time in a period, and the period; or `max`. Only Linux has it."""


def pin(places: Sequence[int]) -> None:
    """Keep this process and its threads on the cores that stand at these places among those it may run on.

    Nothing is done where the system has no such thing, or has fewer cores.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if places and max(places) < len(cores):
            os.sched_setaffinity(0, [cores[place] for place in places])


def places_for(worker: int, workers: int, threads: int) -> list[int]:
    """The cores that one of so many workers is pinned to: its own, if the workers need all cores that there are.

    Fewer workers are left to the system, which knows what else runs; so are those in a container with a share of cores.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    if not workers * threads == len(os.sched_getaffinity(0)) == available_cores():
        return []
    return list(range(worker * threads, (worker + 1) * threads))


def available_cores(quota: Path = _QUOTA) -> int:
    """Cores that this process may use: those that it may run on, or fewer if a container limits its share of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = quota.read_text().split()
        return min(cores, max(1, math.floor(int(share) / int(period))))
    except (OSError, ValueError):
        return cores

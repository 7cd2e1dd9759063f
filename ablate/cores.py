"""The processor cores that this process may use, and pinning to them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The limit of a container on Linux: microseconds of processor time in a period (or `max`), and the period."""


def pin(places: Sequence[int]) -> None:
    """Pin this process and its threads to cores, given by index among the cores that it may use.

    Does nothing if the system has no affinity, or fewer cores.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if places and max(places) < len(cores):
            os.sched_setaffinity(0, [cores[place] for place in places])


def places_for(worker: int, workers: int, threads: int) -> list[int]:
    """The indices of the cores to which a worker is pinned; empty unless all workers together use all cores.

    The system schedules fewer workers better, since it knows the other load. Workers in a container that limits
    processor time are not pinned either.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    if not workers * threads == len(os.sched_getaffinity(0)) == available_cores():
        return []
    return list(range(worker * threads, (worker + 1) * threads))


def available_cores(quota: Path = _QUOTA) -> int:
    """The number of cores that this process may use, by its affinity and by the limit of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = quota.read_text().split()
        return min(cores, max(1, math.floor(int(share) / int(period))))
    except (OSError, ValueError):
        return cores

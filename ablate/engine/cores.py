"""How many processor cores there are for us."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time in a period, and the period; or `max`. Only Linux has it."""


def available_cores(quota: Path = _QUOTA) -> int:
    """Cores that this process may use: those that it may run on, or fewer if a container limits its share of them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        share, period = quota.read_text().split()
        return min(cores, max(1, math.floor(int(share) / int(period))))
    except (OSError, ValueError):
        return cores

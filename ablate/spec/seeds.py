"""Which seeds are for what. A design has those below 1000, so that what it compares was never looked at before."""

from __future__ import annotations

TUNING_SEEDS = 1000
"""The first seed with which values are tuned."""

TIMING_SEEDS = range(2000, 2003)
"""Seeds of the short trials that time a step."""


def is_scout(seed: int) -> bool:
    """Whether trials of this seed only say how others shall be trained."""
    return seed >= TUNING_SEEDS

"""Which seeds are for what. A design has those below 1000, so that what it compares was never looked at before."""

from __future__ import annotations

TUNING_SEEDS = 1000
"""The first seed with which values are tuned."""

TIMING_SEEDS = range(2000, 2003)
"""Seeds of the short trials that time a step."""


CONFIRMING_SEEDS = 3000
"""The first seed with which a design confirms what it chose by the results of others."""


def is_scout(seed: int) -> bool:
    """Whether trials of this seed only say how others shall be trained."""
    return TUNING_SEEDS <= seed < CONFIRMING_SEEDS


def is_confirming(seed: int) -> bool:
    """Whether trials of this seed confirm what was chosen by those of others."""
    return seed >= CONFIRMING_SEEDS

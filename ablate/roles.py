"""What a trial is trained for. Each role has its own seeds, so that seeds of comparisons took no part in any choice."""

from __future__ import annotations

from enum import StrEnum

TUNING_SEEDS = 1000
"""The first seed with which values are tuned; comparisons have those below it."""
TIMING_SEEDS = range(2000, 2003)
"""The seeds of the short trials that time a step."""
CONFIRMATION_SEEDS = 3000
"""The first seed with which what was chosen by results is confirmed."""


class TrialRole(StrEnum):
    """What a trial is trained for.

    `comparison`: its result is compared; `tuning`: it tries values that a variant may be trained with; `timing`: it
    measures how long a step takes; `confirmation`: it repeats what results chose, with seeds that chose nothing;
    `stage`: others start from its weights.
    """

    COMPARISON = "comparison"
    TUNING = "tuning"
    TIMING = "timing"
    CONFIRMATION = "confirmation"
    STAGE = "stage"

    @property
    def scouts(self) -> bool:
        """Whether it only says how others are trained, and is never compared."""
        return self in (TrialRole.TUNING, TrialRole.TIMING, TrialRole.STAGE)

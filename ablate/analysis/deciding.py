"""Where a difference is judged: the margin with its sign, and the bounds that the verdict rests on."""

from __future__ import annotations

from ablate.stats import Bounds, Direction, PairedDifference, SeedSchedule, bounds


def worst_margin(margin: float, direction: Direction) -> float:
    """The difference from which on a variant is worse by more than the margin."""
    return margin if direction == "minimize" else -margin


def deciding_bounds(paired: PairedDifference, edge: float, schedule: SeedSchedule | None) -> Bounds | None:
    """The bounds of the first look that decides, as the verdict takes them; of the last look if none does.

    Args:
        paired: The differences, variant minus baseline.
        edge: What `worst_margin` gives.
        schedule: How seeds were added; None if their number was fixed.
    """
    bound = None
    for bound in bounds(paired.values, schedule):
        if not bound.low <= edge <= bound.high:
            break
    return bound

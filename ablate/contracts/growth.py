"""The contract of a growth of batch size or context."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.schedule import ScheduleContext
from ablate.spec.growth import GROWTHS, GrowthSpec

_WHOLE = 97
"""A size that few numbers divide."""


def _shares(spec: GrowthSpec, context: ScheduleContext) -> list[float]:
    return [spec.share(step, context.steps) for step in range(1, context.steps + 1)]


def is_a_share(spec: GrowthSpec, context: ScheduleContext) -> Iterator[str]:
    """Every share is a number above 0 and at most 1."""
    for step, share in enumerate(_shares(spec, context), 1):
        if not (isinstance(share, (int, float)) and math.isfinite(share) and 0 < share <= 1):
            yield f"the share at step {step} is {share!r}"
            return


def never_shrinks(spec: GrowthSpec, context: ScheduleContext) -> Iterator[str]:
    """No share is less than that of the step before; the steps of each size are found by bisection."""
    for step, (before, after) in enumerate(pairwise(_shares(spec, context)), 2):
        if after < before:
            yield f"the share falls from {before!r} to {after!r} at step {step}"
            return


def reaches_full_size(spec: GrowthSpec, context: ScheduleContext) -> Iterator[str]:
    """The last step has the whole size, so that memory is predicted for the largest batch."""
    size = spec.size(_WHOLE * spec.multiple, context.steps, context.steps)
    if size != _WHOLE * spec.multiple:
        yield f"the last step has a size of {size} of {_WHOLE * spec.multiple}"


def is_a_function_of_the_step(spec: GrowthSpec, context: ScheduleContext) -> Iterator[str]:
    """The share depends on the step alone, so that training can resume at any step."""
    backwards = [spec.share(step, context.steps) for step in range(context.steps, 0, -1)]
    if backwards[::-1] != _shares(spec, context):
        yield "the shares depend on the order in which they are asked for"


CONTRACT: Contract[GrowthSpec, ScheduleContext] = Contract(
    family=GROWTHS,
    rules=by_name(is_a_share, never_shrinks, reaches_full_size, is_a_function_of_the_step, round_trips_through_json),
    contexts=lambda spec: [ScheduleContext(steps) for steps in (7, 1, 2, 100, 1000)],
    describe=lambda context: f"{context.steps} steps",
)

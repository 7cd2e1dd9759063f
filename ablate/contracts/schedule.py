"""The contract of a schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.spec.schedule import SCHEDULES, ScheduleSpec


@dataclass(frozen=True, slots=True)
class ScheduleContext:
    """The length of a training.

    Attributes:
        steps: Its number of steps.
    """

    steps: int


def _factors(spec: ScheduleSpec, context: ScheduleContext) -> list[float]:
    return [spec.factor(step, context.steps) for step in range(1, context.steps + 1)]


def stays_within_the_peak(spec: ScheduleSpec, context: ScheduleContext) -> Iterator[str]:
    """Every factor is a number from 0 to 1."""
    for step, factor in enumerate(_factors(spec, context), 1):
        if not (isinstance(factor, (int, float)) and math.isfinite(factor) and 0 <= factor <= 1 + 1e-9):
            yield f"the factor at step {step} is {factor!r}"
            return


def has_a_nonzero_rate(spec: ScheduleSpec, context: ScheduleContext) -> Iterator[str]:
    """Some step has a rate above 0, also in a training of one step."""
    if not any(factor > 0 for factor in _factors(spec, context)):
        yield "every factor is 0"


def is_a_function_of_the_step(spec: ScheduleSpec, context: ScheduleContext) -> Iterator[str]:
    """The factor depends on the step alone, so that training can resume at any step."""
    backwards = [spec.factor(step, context.steps) for step in range(context.steps, 0, -1)]
    if backwards[::-1] != _factors(spec, context):
        yield "the factors depend on the order in which they are asked for"


CONTRACT: Contract[ScheduleSpec, ScheduleContext] = Contract(
    family=SCHEDULES,
    rules=by_name(stays_within_the_peak, has_a_nonzero_rate, is_a_function_of_the_step, round_trips_through_json),
    contexts=lambda spec: [ScheduleContext(steps) for steps in (1, 2, 7, 100, 1000)],
    describe=lambda context: f"{context.steps} steps",
)

"""The contract of a weight average."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.contracts.schedule import ScheduleContext
from ablate.spec.average import AVERAGES, AverageSpec


def _weights(spec: AverageSpec, context: ScheduleContext) -> list[float]:
    return [spec.weight(step, context.steps) for step in range(1, context.steps + 1)]


def is_an_average(spec: AverageSpec, context: ScheduleContext) -> Iterator[str]:
    """Every weight is a number from 0 to 1."""
    for step, weight in enumerate(_weights(spec, context), 1):
        if not (isinstance(weight, (int, float)) and math.isfinite(weight) and 0 <= weight <= 1):
            yield f"the weight at step {step} is {weight!r}"
            return


def first_step_has_weight_one(spec: AverageSpec, context: ScheduleContext) -> Iterator[str]:
    """The first step has weight 1: the initial weights have no share."""
    first = spec.weight(1, context.steps)
    if not math.isclose(first, 1):
        yield f"the weight at step 1 is {first!r}"


def is_a_function_of_the_step(spec: AverageSpec, context: ScheduleContext) -> Iterator[str]:
    """The weight depends on the step alone, so that training can resume at any step."""
    backwards = [spec.weight(step, context.steps) for step in range(context.steps, 0, -1)]
    if backwards[::-1] != _weights(spec, context):
        yield "the weights depend on the order in which they are asked for"


CONTRACT: Contract[AverageSpec, ScheduleContext] = Contract(
    family=AVERAGES,
    rules=by_name(is_an_average, first_step_has_weight_one, is_a_function_of_the_step, round_trips_through_json),
    contexts=lambda spec: [ScheduleContext(steps) for steps in (1, 2, 7, 100, 1000)],
    describe=lambda context: f"{context.steps} steps",
)

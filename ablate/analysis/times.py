"""How long training takes: rates that were measured in turns with the baseline, and the time to a target.

The time to a target is the steps, tokens, FLOPs or seconds until the validation loss is at or below it, read from the
recorded evaluations (`first_at`). A run that ends above its target is censored: all that is known is that its time is
longer than its training. It counts with the time at which it ended, which gives a valid bound on one side alone: of a
variant with such runs it may be shown that it needs more time, and never that it does not; of a baseline with such runs
the other way round (`ablate.analysis.judging.Allowances`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ablate.metrics import TIMED, Measure, time_to
from ablate.stats import Interval, mean_interval
from ablate.stats.trend import fit_non_increasing
from ablate.store.records import CurvePoint, SpeedTiming, StudyRecord

_AXES: Mapping[Measure, str] = {"steps": "step", "tokens": "tokens", "flops": "flops", "seconds": "tokens"}
"""What of a curve each measure is read from; seconds are tokens over a measured rate."""


Rounds = tuple[Sequence[float], Sequence[float]]
"""A cost of a variant in each round of a timing, and of the baseline in the same round; counted ones have one round."""


def costs_by_round(timings: Mapping[str, SpeedTiming], baseline: str) -> dict[str, dict[str, dict[int, float]]]:
    """Cost to variant to its value in each round.

    Args:
        timings: Variant to its timing beside the baseline.
    """
    measured: dict[str, dict[str, Rounds]] = {}
    for name, timing in timings.items():
        measured.setdefault("tokens_per_second", {})[name] = (timing.rates, timing.baseline_rates)
        for cost in timing.inference:
            measured.setdefault(cost.quantity, {})[name] = (cost.values, cost.baseline_values)
    return {
        quantity: (_rates if quantity in TIMED else _counts)(rounds, baseline) for quantity, rounds in measured.items()
    }


def _rates(timings: Mapping[str, Rounds], baseline: str) -> dict[str, dict[int, float]]:
    """Tokens a second of each variant in each round, as if the baseline had its mean rate in every round.

    So the load of the machine, which meets both sides of a round, is taken out.
    """
    mean = _geometric([rate for _, rates in timings.values() for rate in rates])
    rates = {
        name: {number: mean * ours / theirs for number, (ours, theirs) in enumerate(zip(*rounds, strict=True))}
        for name, rounds in timings.items()
    }
    return rates | {baseline: dict.fromkeys(range(max(map(len, rates.values()))), mean)}


def _counts(timings: Mapping[str, Rounds], baseline: str) -> dict[str, dict[int, float]]:
    of_baseline = next(iter(timings.values()))[1]
    return {name: dict(enumerate(values)) for name, (values, _) in timings.items()} | {
        baseline: dict(enumerate(of_baseline))
    }


def relative_speed(rates: Mapping[int, float], baseline: Mapping[int, float]) -> Interval | None:
    """Tokens a second over those of the baseline: geometric mean of the ratios of rounds, with a 95 % interval.

    The interval is that of the mean logarithm, so that a variant twice as fast and one half as fast lie equally far
    from 1.

    Args:
        rates: Round to rate of the variant (`costs_by_round`).

    Returns:
        None if the variant was not timed.
    """
    if not rates:
        return None
    if rates is baseline:
        return Interval(1.0, 1.0, 1.0, len(rates))
    interval = mean_interval(math.log(rate / baseline[number]) for number, rate in rates.items())
    mean, low, high = (
        None if value is None else math.exp(value) for value in (interval.mean, interval.low, interval.high)
    )
    return Interval(mean, low, high, interval.n)


def seconds_at(tokens: Iterable[float], rates: Mapping[int, float]) -> tuple[float, ...]:
    """The seconds after which a training has seen so many tokens, at the mean of its timed rates."""
    rate = _geometric(list(rates.values()))
    return tuple(token / rate for token in tokens)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def first_at(curve: Sequence[CurvePoint], target: float, axis: str = "step") -> float | None:
    """The first step at which the smoothed validation loss is at or below `target`.

    A raw curve reaches a target by the first noise that dips below it, so that a variant equal to the baseline would
    seem to get there before the end; so the curve is smoothed to the nearest falling one.

    Between the points it is a straight line; where neighbours were pooled, it is their mean at the last of them.

    Args:
        curve: A learning curve; points without a finite validation loss are passed over.
        axis: `step`, or `tokens`, `seconds` or `flops` in its place.

    Returns:
        A step, in general not whole; None if the curve stays above the target.
    """
    evaluated = [point for point in curve if point.val_loss is not None and math.isfinite(point.val_loss)]
    losses = losses_of(evaluated)
    if not losses:
        return None
    smoothed = [(float(getattr(evaluated[last], axis)), loss) for last, loss in fit_non_increasing(losses)]
    before: tuple[float, float] | None = None
    for place, loss in smoothed:
        if loss <= target:
            if before is None:
                return place
            start, height = before
            return start + (place - start) * (height - target) / (height - loss)
        before = place, loss
    return None


def losses_of(curve: Sequence[CurvePoint]) -> list[float]:
    """The validation losses of a curve, where it has them."""
    return [point.val_loss for point in curve if point.val_loss is not None]


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a study, whose objective is the time to it.

    Attributes:
        reach: The validation loss to reach.
        measure: In what the time is measured.
    """

    reach: float
    measure: Measure

    @classmethod
    def of(cls, record: StudyRecord) -> Target | None:
        """That of a study; None if its objective is none."""
        objective = record.space.get("objective") or {}
        reach = objective.get("reach")
        return None if reach is None else cls(float(reach), objective.get("measure", "steps"))

    @property
    def name(self) -> str:
        """Of the time to it, as a metric."""
        return time_to(self.measure, self.reach)

    def time(self, curve: Sequence[CurvePoint], rate: float) -> tuple[float | None, bool]:
        """When a run got there, and whether it did; one that did not has the time at which it ended.

        Args:
            curve: Its evaluations; not empty.
            rate: Tokens a second; 1 for other measures.

        Returns:
            No time if the run was there before its first step.
        """
        axis = _AXES[self.measure]
        there = first_at(curve, self.reach, axis)
        time = float(getattr(curve[-1], axis)) if there is None else there
        return (time / rate if time > 0 else None), there is not None


def rates_by_seed(rates: Mapping[int, float], seeds: Sequence[int]) -> dict[int, float]:
    """A training rate for each seed, so that the spread between seeds has that between the rounds of a timing in it.

    The rounds are dealt to the seeds in turn; a seed has the geometric mean of its own.

    Args:
        rates: Round to tokens a second; at least as many rounds as seeds.
        seeds: In their order.
    """
    ordered = [rates[number] for number in sorted(rates)]
    return {seed: _geometric(ordered[place :: len(seeds)]) for place, seed in enumerate(seeds)}

"""How fast variants train beside the baseline, where steps of both were timed in turns (`ablate study --time`).

The clocks of trials say nothing about that: each trial ran beside other work, at another time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ablate.stats import Interval, mean_interval
from ablate.store.records import SpeedTiming

UNTIMED = "no variant was timed; `ablate study {study} --stored --time` does"
"""Why a quantity that is timed is not known."""


def rates_of(timings: Mapping[str, SpeedTiming], baseline: str) -> dict[str, dict[int, float]]:
    """Training tokens a second of each variant in each round, as if the baseline had its mean rate in every round.

    So the load of the machine, which meets both sides of a round, is taken out.

    Args:
        timings: Variant to its timing beside the baseline.
        baseline: Name of the baseline.
    """
    if not timings:
        return {}
    mean = _geometric([rate for timing in timings.values() for rate in timing.baseline_rates])
    rates = {
        name: {
            number: mean * ours / theirs
            for number, (ours, theirs) in enumerate(zip(timing.rates, timing.baseline_rates, strict=True))
        }
        for name, timing in timings.items()
    }
    return rates | {baseline: dict.fromkeys(range(max(map(len, rates.values()))), mean)}


def relative_speed(rates: Mapping[int, float], baseline: Mapping[int, float]) -> Interval | None:
    """Tokens a second over those of the baseline: geometric mean of the ratios of rounds, with a 95 % interval.

    The interval is that of the mean logarithm, so that a variant twice as fast and one half as fast lie equally far
    from 1.

    Args:
        rates: Round to rate of the variant (`rates_of`).
        baseline: The same of the baseline.

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
    return tuple(one / rate for one in tokens)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))

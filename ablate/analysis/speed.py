"""How fast a variant trains beside the baseline: a measurement with noise, on a machine with other load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ablate.stats import Interval, mean_interval
from ablate.store.records import TrialRecord

LEAST_SECONDS = 10.0
"""Minimum training time, summed over seeds: a shorter measurement shows mostly the load of the machine."""


def long_enough(trials: Iterable[TrialRecord]) -> bool:
    """Whether trials took long enough to measure their speed."""
    return math.fsum(trial.seconds for trial in trials) >= LEAST_SECONDS


def relative_speed(finished: Mapping[int, TrialRecord], baseline: Mapping[int, TrialRecord]) -> Interval | None:
    """Tokens a second over those of the baseline: geometric mean of the ratios at each seed, with a 95 % interval.

    The interval is that of the mean logarithm, so that a variant twice as fast and one half as fast lie equally far
    from 1. It has the load of the machine in it only as far as that changed from seed to seed.

    Args:
        finished: Seed to trial.
        baseline: The same of the baseline.

    Returns:
        None if the paired trials of either side took less than `LEAST_SECONDS` together. Without bounds if all seeds
        trained in one pack.
    """
    pairs = [(finished[seed], baseline[seed]) for seed in sorted(finished.keys() & baseline.keys())]
    timed = [(ours, base) for ours, base in pairs if min(ours.seconds, base.seconds, ours.tokens, base.tokens) > 0]
    if not timed or not all(long_enough(pair[side] for pair in timed) for side in (0, 1)):
        return None
    if finished is baseline:
        return Interval(1.0, 1.0, 1.0, len(timed))
    # Members of one pack have one time: it is one measurement, however many seeds share it.
    measured = {(o.tokens / o.seconds, b.tokens / b.seconds) for o, b in timed}
    interval = mean_interval(math.log(ours / base) for ours, base in sorted(measured))
    mean, low, high = (
        None if value is None else math.exp(value) for value in (interval.mean, interval.low, interval.high)
    )
    return Interval(mean, low, high, interval.n)

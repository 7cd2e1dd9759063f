"""How many further seeds would decide an undecided comparison, and with what chance.

The number is that of a t-test with the power to decide, were the observed difference and noise the true ones. That
promises too much: few seeds hardly tell either. So the chance draws both from what n seeds leave possible (Student's
predictive distribution: a flat prior on the mean and on the logarithm of the standard deviation), then the further
seeds, and makes the t-test on all seeds together. It is right on average over differences, and too high for a true
difference near the tested value, which no number of seeds may tell from it.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from ablate.stats import special
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.paired import PairedDifference
from ablate.stats.schedule import LAST, LATEST_START, ExtendedSeeds, SeedPlan, SeedSchedule

POWER = 0.8
"""Chance of a decision that the estimate of further seeds asks for."""
ROOM = 1.4
"""Seeds of an advised schedule beyond those seen, over those that one further look would need for the same power."""
MOST_FURTHER_SEEDS = 100
_WHY_FLAT = "is the metric too coarse, the task too easy, or the variant the same?"


class Further(NamedTuple):
    """Seeds that would decide.

    Attributes:
        seeds: About how many more; None if more than 100, or than the schedule has left, or if none are wanted.
        reason: The same in words.
        chance: That this many decide; None where it is not known.
    """

    seeds: int | None = None
    reason: str = ""
    chance: float | None = None


def further_pairs(
    paired: PairedDifference,
    tested: float,
    schedule: SeedPlan | None = None,
    unit: str = "seed",
    sense: float = 1.0,
) -> Further:
    """About how many more paired seeds would tell on which side of `tested` the difference lies, with their chance.

    `sense`, 1 or -1, turns the difference into variant minus baseline, as all outputs write it.
    """
    least = schedule.start if schedule else LEAST_PAIRS
    if paired.n < least or paired.difference is None or paired.sd is None:
        how = "paired " if paired.is_paired else ""
        of_each = "" if paired.is_paired else " of each"
        return Further(least - paired.n, f"at least {least} {how}{unit}s{of_each} are required, {paired.n} finished")
    if paired.is_flat:
        difference = f"{sense * paired.difference + 0.0:g}"  # no -0
        same = (
            f"all {paired.n} differences are {difference}"
            if paired.is_paired
            else f"no {unit} differs from the others of its variant, the difference is {difference}"
        )
        return Further(reason=f"{same}, and without any spread no test is possible: {_WHY_FLAT}")
    if schedule and paired.n >= schedule.max:
        return Further(reason=f"{paired.n} seeds, the maximum of this study, do not decide")
    most = schedule.max - paired.n if schedule else MOST_FURTHER_SEEDS
    distance = paired.difference - tested
    further = further_seeds(distance, paired.sd, paired.n, schedule)
    if further is None:
        return Further(reason=f"more than {most} more {unit}s would be required")
    chance = chance_of_decision(distance, paired.sd, paired.n, further, schedule)
    more = f"about {further} more {unit if further == 1 else f'{unit}s'}"
    return Further(further, f"{more} would decide with a chance of {in_percent(chance)}", chance)


def further_seeds(distance: float, sd: float, n: int, schedule: SeedPlan | None = None) -> int | None:
    """How many seeds beyond `n` give a one-sided t test the power to decide, were the observed values the truth.

    With N seeds in all, the test decides with the probability that a noncentral t variable of N - 1 degrees of freedom
    and noncentrality `|distance| sqrt(N) / sd` exceeds the critical value of the central t. With a schedule this is
    its look at N alone, so the estimate is on the safe side. A fixed number of seeds that was looked at has spent its
    error rate; what is added is then tested at the level of the first change of `ExtendedSeeds`.

    Args:
        distance: Observed mean difference minus the margin.
        sd: Observed standard deviation of the differences.
        n: Paired seeds so far, at least 2.
        schedule: How seeds are added; None if their number was fixed beforehand.

    Returns:
        At least 1; None if more than 100, or than the schedule has, would be required.
    """
    most = schedule.max - n if schedule else MOST_FURTHER_SEEDS
    if sd == 0 or distance == 0 or most < 1:
        return None  # undecided without any spread, or exactly at the margin: more of the same cannot decide
    total = np.arange(n + 1, n + most + 1)
    levels = ExtendedSeeds((n, n + most)) if schedule is None else schedule
    error = np.array([levels.level(int(seeds)) for seeds in total])
    power = 1 - special.nctdtr(total - 1, abs(distance) / sd * np.sqrt(total), -special.stdtrit(total - 1, error))
    enough = np.flatnonzero(power >= POWER)
    return int(enough[0]) + 1 if enough.size else None


_DRAWS, _SEED = 2_000, 0


def chance_of_decision(distance: float, sd: float, n: int, further: int, schedule: SeedPlan | None = None) -> float:
    """Probability that a one-sided t-test on all seeds decides on either side, after `further` more seeds.

    Args:
        distance: Observed mean difference minus the tested value.
        sd: Observed standard deviation of the differences, above 0.
        n: Paired seeds so far, at least 2.
        further: Seeds that are added, at least 1.
        schedule: How seeds are added; None if their number was fixed beforehand and has spent its error rate.
    """
    levels = ExtendedSeeds((n, n + further)) if schedule is None else schedule
    # Either sign has the same chance, so both have the same draws.
    return _chance(round(abs(distance) / sd, 3), n, further, levels.level(n + further))


@functools.lru_cache(maxsize=4096)
def _chance(distance: float, n: int, further: int, level: float) -> float:
    """The same in units of the standard deviation."""
    rng, total = np.random.default_rng(_SEED), n + further
    sd = np.sqrt((n - 1) / rng.chisquare(n - 1, _DRAWS))
    truth = distance + sd * rng.standard_normal(_DRAWS) / math.sqrt(n)
    mean = truth + sd * rng.standard_normal(_DRAWS) / math.sqrt(further)
    within = sd**2 * rng.chisquare(further - 1, _DRAWS) if further > 1 else np.zeros(_DRAWS)
    squares = (n - 1) + within + n * further / total * (distance - mean) ** 2
    t = (n * distance + further * mean) / total / np.sqrt(squares / (total - 1) / total)
    return float(np.mean(np.abs(t) > -special.stdtrit(total - 1, level)))


def in_percent(chance: float) -> str:
    """A chance to the nearest 5 %: it is no more exact than that."""
    return f"{5 * round(20 * chance)} %"


def advised_schedule(n: int, further: int, lost: int) -> SeedSchedule | None:
    """The schedule to continue with after `n` seeds if `further` would decide; None if no schedule is that long.

    It may use more seeds than one look at the end would, and uses fewer on average.

    Args:
        n: Paired seeds so far.
        further: More of them that would decide.
        lost: Seeds that were trained and are not paired, as a trial of theirs failed or diverged.
    """
    last = n + lost + math.ceil(ROOM * further)
    return SeedSchedule(min(n, LATEST_START), last) if last <= LAST and n >= LEAST_PAIRS else None

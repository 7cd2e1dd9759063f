"""The verdict on a variant: is what it takes away needed, not needed, or can these seeds not tell?

Let d be the mean paired difference, oriented so that positive is worse than the baseline, and `margin` what the space
calls a loss that matters. `needed`: the one-sided 95 % lower t bound of d lies above the margin. `not needed`: the
one-sided 95 % upper t bound lies below it (non-inferiority). Otherwise `undecided`: a difference that is not
significant is not equality. A variant of which any trial diverged is `diverged`; it is never averaged away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Literal

import numpy as np
from scipy.special import nctdtr, stdtrit

from ablate.stats.paired import PairedDifference, paired_difference

Word = Literal["needed", "not needed", "undecided", "diverged"]
Direction = Literal["minimize", "maximize"]

CONFIDENCE = 0.95
"""Of each one-sided bound: how often at most a true difference at the margin gets the wrong word is 1 minus this."""
POWER = 0.8
"""Chance of a decision that the estimate of further seeds asks for."""
MOST_FURTHER_SEEDS = 100
LEAST_PAIRS = 2
"""Fewer paired seeds show no spread, so they decide nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the paired seeds say about a variant.

    Attributes:
        word: The verdict.
        sentence: The verdict with its reason, for a person; starts with the word.
        further_seeds: About how many more paired seeds would decide an `undecided` one; None if it is more than 100,
            and for every other word.
    """

    word: Word
    sentence: str
    further_seeds: int | None


def judge(
    variant: Mapping[int, float],
    baseline: Mapping[int, float],
    *,
    margin: float,
    direction: Direction,
    diverged: Mapping[int, int | None] | None = None,
    baseline_diverged: Mapping[int, int | None] | None = None,
) -> Verdict:
    """Judge a variant against the baseline.

    Args:
        variant: Seed to final metric of the variant's finished trials.
        baseline: The same for the baseline.
        margin: How much worse matters, in the unit of the metric, above 0.
        direction: Whether a smaller or a larger metric is better.
        diverged: Seed to step (None if unknown) of the variant's trials that diverged.
        baseline_diverged: The same for the baseline; its seeds cannot be compared, and the sentence says so.

    Raises:
        ValueError: The margin is not above 0, or a metric is not finite.
    """
    if not margin > 0:
        raise ValueError(f"the margin must be above 0, got {margin}")
    if diverged:
        word, reason, further = _diverged(len(variant.keys() | diverged.keys()), diverged)
    else:
        word, reason, further = _compare(paired_difference(variant, baseline), margin, direction)
    if baseline_diverged:
        reason += f"; the baseline diverged at {_seeds(sorted(baseline_diverged))}"
    return Verdict(word, f"{word}: {reason}", further)


def _diverged(trials: int, diverged: Mapping[int, int | None]) -> tuple[Word, str, None]:
    steps = [step for step in diverged.values() if step is not None]
    first = f", first at step {min(steps)}" if steps else ""
    return "diverged", f"{len(diverged)} of {trials} {_plural(trials, 'seed')}{first}", None


def _compare(paired: PairedDifference, margin: float, direction: Direction) -> tuple[Word, str, int | None]:
    if paired.difference is None or paired.sd is None or paired.standard_error is None:
        reason = f"at least {LEAST_PAIRS} paired seeds are required, {paired.n} finished"
        return "undecided", reason, LEAST_PAIRS - paired.n
    worse = paired.difference if direction == "minimize" else -paired.difference
    half = float(stdtrit(paired.n - 1, CONFIDENCE)) * paired.standard_error
    if worse - half > margin:
        return "needed", f"worse by at least {_rounded(worse - half, ROUND_FLOOR)}", None
    if worse + half < margin:
        if worse + half < 0:
            return "not needed", f"better by at least {_rounded(-worse - half, ROUND_FLOOR)}", None
        return "not needed", f"at most {_rounded(worse + half, ROUND_CEILING)} worse, margin {margin:g}", None
    further = further_seeds(worse - margin, paired.sd, paired.n)
    if further is None:
        return "undecided", f"more than {MOST_FURTHER_SEEDS} more seeds would be required", None
    return "undecided", f"about {further} more {_plural(further, 'seed')} would decide", further


def further_seeds(distance: float, sd: float, n: int) -> int | None:
    """How many seeds beyond `n` give a one-sided t test the power to decide, were the observed values the truth.

    With N seeds in all, the test decides with the probability that a noncentral t variable of N - 1 degrees of freedom
    and noncentrality `|distance| sqrt(N) / sd` exceeds the critical value of the central t.

    Args:
        distance: Observed mean difference minus the margin.
        sd: Observed standard deviation of the differences.
        n: Paired seeds so far, at least 2.

    Returns:
        At least 1; None if more than 100 would be required.
    """
    if sd == 0 or distance == 0:
        return None  # undecided without any spread, or exactly at the margin: more of the same cannot decide
    total = np.arange(n + 1, n + MOST_FURTHER_SEEDS + 1)
    critical = stdtrit(total - 1, CONFIDENCE)
    power = 1 - nctdtr(total - 1, abs(distance) / sd * np.sqrt(total), critical)
    enough = np.flatnonzero(power >= POWER)
    return int(enough[0]) + 1 if enough.size else None


def _rounded(value: float, rounding: str) -> str:
    """Two significant digits, rounded so that `at least` and `at most` stay true."""
    exact = Decimal(f"{value:.12g}")
    if exact == 0:
        return "0"
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding=rounding)):g}"


def _seeds(seeds: list[int]) -> str:
    return f"{_plural(len(seeds), 'seed')} {', '.join(map(str, seeds))}"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"

"""Simulated comparisons: the rule of `judge` over many at once, and the boundaries of seed schedules.

`decide` says how often the rule is wrong, and how often it decides. Shapes: S simulated comparisons, N paired seeds.
Differences are oriented so that positive is worse.

`python -m ablate.stats.simulate` makes `boundaries.csv`, the table behind `ablate.stats.schedule`. A group-sequential
test looks after every seed from `start` to `max` and rejects at n seeds when the one-sided t-test's p-value lies below
`k sqrt(n)`. The boundary k must make the chance of rejecting at any look `alpha` when the true difference is the tested
value. There the t statistics of all looks have one joint distribution, whatever the standard deviation, so k is the
alpha quantile of `min over looks of p_n / sqrt(n)`, found once by simulation. Normal boundaries would not do: at 3
seeds they are wrong several times over.

The shape sqrt(n) lies between Pocock's, which spends too much on the first looks to decide at the last, and O'Brien and
Fleming's, which all but forbids to stop early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtr

from ablate.stats.schedule import ERROR, SeedPlan

TABLE = Path(__file__).with_name("boundaries.csv")
STARTS = range(2, 11)
LAST = 50
"""The largest `max` of the table."""
ALPHAS = (0.05, 0.025, 0.01, 0.005, 0.0025, 0.001)
"""Error rates over all looks. Those below 0.05 are for families of comparisons."""
_PATHS, _CHUNK, _SEED = 8_000_000, 20_000, 20240517
_BINS, _LEAST = 60_000, 1e-8
"""Bins of k on a logarithmic scale from `_LEAST` to 1: each 0.03 % wide."""


def running_p(differences: NDArray[np.float64], tested: float) -> NDArray[np.float64]:
    """P-values of the one-sided t-tests (truth at most `tested`) on the first 2, 3 ... N columns: [S, N] to [S, N-1].

    A row without any spread has p-value 0 or 1 (1 where its mean is the tested value).
    """
    shifted = differences - tested
    n = np.arange(1, shifted.shape[1] + 1, dtype=np.float64)
    total, squares = np.cumsum(shifted, axis=1)[:, 1:], np.cumsum(shifted**2, axis=1)[:, 1:]
    n = n[1:]
    variance = np.maximum(squares - total**2 / n, 0.0) / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num(total / np.sqrt(n * variance), nan=-np.inf)
    return np.asarray(stdtr(n - 1, -t), dtype=np.float64)


def boundaries(paths: int, seed: int) -> dict[tuple[int, int], list[float]]:
    """(start, max) to k for each of `ALPHAS`, from this many simulated paths of seeds; rounded to the safe side."""
    rng = np.random.default_rng(seed)
    counts = {(start, last): np.zeros(_BINS, dtype=np.int64) for start in STARTS for last in range(start + 1, LAST + 1)}
    root = np.sqrt(np.arange(2, LAST + 1))
    for begin in range(0, paths, _CHUNK):
        p = running_p(rng.standard_normal((min(_CHUNK, paths - begin), LAST)), 0.0)
        scaled = np.log(np.maximum(p / root, _LEAST) / _LEAST) / -math.log(_LEAST)
        bins = np.minimum((scaled * _BINS).astype(np.int32), _BINS - 1).T.copy()  # [N-1, S]; keeps the order of k
        for start in STARTS:
            least = np.minimum.accumulate(bins[start - 2 :], axis=0)
            for last in range(start + 1, LAST + 1):
                counts[start, last] += np.bincount(least[last - start], minlength=_BINS)
    table = {}
    for looks, count in counts.items():
        below = np.cumsum(count)
        safe = [int(np.searchsorted(below, alpha * paths, side="right")) for alpha in ALPHAS]
        table[looks] = [_LEAST ** (1 - edge / _BINS) for edge in safe]
    return table


def main() -> None:
    """Write the table beside this file; takes about five minutes on one core."""
    lines = ["start,max," + ",".join(map(str, ALPHAS))]
    for (start, last), levels in boundaries(_PATHS, _SEED).items():
        lines.append(f"{start},{last}," + ",".join(f"{math.floor(level * 1e7) / 1e7:.7f}" for level in levels))
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()


@dataclass(frozen=True, slots=True)
class Decisions:
    """The verdicts on S simulated comparisons.

    Attributes:
        needed: Which of them were judged `needed`: booleans [S].
        not_needed: Which were judged `not needed` or `better` [S].
        better: Which were judged `better` [S].
        seeds: Paired seeds that each used [S].
    """

    needed: NDArray[np.bool_]
    not_needed: NDArray[np.bool_]
    better: NDArray[np.bool_]
    seeds: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rate:
    """The frequency of an outcome among simulated comparisons.

    Attributes:
        share: Of the comparisons.
        low: Lower bound of its exact (Clopper and Pearson) 95 % Monte Carlo interval.
        high: Upper bound of the same.
    """

    share: float
    low: float
    high: float


def decide(differences: NDArray[np.float64], margin: float, schedule: SeedPlan | None = None) -> Decisions:
    """Judge every row of differences [S, N]; without a schedule on all N, else at its looks up to N.

    The rule is that of `judge` below `paired.MANY` seeds.
    """
    count, last = differences.shape
    above, below = running_p(differences, margin), running_p(-differences, -margin)
    looks = np.arange(2, last + 1)
    if schedule is None:
        levels = np.where(looks == last, ERROR, 0.0)
    else:
        levels = np.array([schedule.level(int(n)) for n in looks])
    decided = (above < levels) | (below < levels)
    at = np.where(decided.any(axis=1), decided.argmax(axis=1), last - 2)
    row = np.arange(count)
    far_below = running_p(-differences, margin)  # each look stops at what it decides, so later ones add no `better`
    return Decisions(
        needed=above[row, at] < levels[at],
        not_needed=below[row, at] < levels[at],
        better=far_below[row, at] < levels[at],
        seeds=looks[at],
    )


def rate(happened: NDArray[np.bool_]) -> Rate:
    """The share of true values with its Monte Carlo interval."""
    hits, count = int(happened.sum()), len(happened)
    low = float(betaincinv(hits, count - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 0.975)) if hits < count else 1.0
    return Rate(hits / count, low, high)

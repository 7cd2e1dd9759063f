"""`SeedSchedule`: seeds that are added one at a time until a comparison is decided, with its error rate intact.

A test that looks after every seed and stops at the first `p < 0.05` is wrong far more often than once in twenty.
Here the level of each look is `k sqrt(n)`, where k (from `boundaries.csv`, see `make_boundaries.py`) makes the error
rate over all looks together the declared one, for t-tests as small as they are.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

ERROR = 0.05
"""Error rate of each one-sided decision: over all looks, if there are several."""


@dataclass(frozen=True, slots=True)
class SeedSchedule:
    """From `start` paired seeds, look after each; decide, or add one, up to `max`.

    Raises:
        ValueError: There is no boundary for these numbers.
    """

    start: int
    max: int

    def __post_init__(self) -> None:
        if (self.start, self.max) not in _table():
            starts, lasts = zip(*_table(), strict=True)
            raise ValueError(
                f"a schedule starts with {min(starts)} to {max(starts)} seeds and goes on to more, at most "
                f"{max(lasts)}; got start {self.start}, max {self.max}"
            )

    def level(self, n: int, error: float = ERROR) -> float:
        """What the p-value of a one-sided t-test on the first `n` seeds must lie below to decide.

        0 (never) for an `n` that is no look. An error rate between those of the table counts as the next smaller one.
        """
        if not self.start <= n <= self.max:
            return 0.0
        known = [k for of, k in _table()[self.start, self.max].items() if of <= error * (1 + 1e-9)]
        return max(known, default=0.0) * math.sqrt(n)

    def overall(self, p_at: Mapping[int, float]) -> float:
        """The least error rate of the table at which these p-values (look to p) decide; 1 if none does.

        It is a p-value over all looks, such as Holm's procedure needs.
        """
        least = min((p / math.sqrt(n) for n, p in p_at.items() if self.start <= n <= self.max), default=math.inf)
        return min((error for error, k in _table()[self.start, self.max].items() if least < k), default=1.0)


@functools.cache
def _table() -> dict[tuple[int, int], dict[float, float]]:
    """(start, max) to error rate to k."""
    text = (files("ablate.stats") / "boundaries.csv").read_text(encoding="utf-8")
    head, *rows = csv.reader(text.splitlines())
    errors = [float(error) for error in head[2:]]
    return {
        (int(start), int(last)): dict(zip(errors, map(float, levels), strict=True)) for start, last, *levels in rows
    }

"""`SeedSchedule`: seeds that are added one at a time until a comparison is decided, with its error rate intact.

A test that looks after every seed and stops at the first `p < 0.05` is wrong far more often than once in twenty.
Here the level of each look is `k sqrt(n)`, where k (from `boundaries.csv`, see `calibrate.py`) makes the error
rate over all looks together the declared one, for t-tests as small as they are.

`ExtendedSeeds`: seeds that were declared otherwise after results could be seen. A test that was to be read at 3 seeds
has spent its whole error rate there, so whatever is added afterwards adds to it. The k-th change gets `2^-k` of a fifth
of the error rate: all changes together raise 5 % to 6 % at most, by the union bound, however they were chosen.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

ERROR = 0.05
"""Error rate of each one-sided decision: over all looks, if there are several."""
SHOWN = 1 - 2 * ERROR
"""Confidence of the two-sided interval whose ends are the one-sided bounds of decisions."""
LATEST_START, LAST = 10, 50
"""The largest `start` and the largest `max` of a schedule."""
ADDED = 0.2
"""What all changes of the seeds after results could be seen may add to an error rate, as a share of it."""


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
                f"a schedule starts with {min(starts)} to {max(starts)} seeds and continues with more, at most "
                f"{max(lasts)}; got start {self.start}, max {self.max}"
            )

    def level(self, n: int, error: float = ERROR) -> float:
        """What the p-value of a one-sided t-test on the first `n` seeds must lie below to decide.

        0 (never) for an `n` that is not a look. An error rate between those of the table counts as the next
        smaller one.
        """
        if not self.start <= n <= self.max:
            return 0.0
        known = [k for of, k in _table()[self.start, self.max].items() if of <= error * (1 + 1e-9)]
        return max(known, default=0.0) * math.sqrt(n)

    def looks(self, pairs: int) -> Iterator[int]:
        """The numbers of paired seeds, up to `pairs`, at which it looks."""
        yield from range(self.start, min(pairs, self.max) + 1)

    def overall(self, p_at: Mapping[int, float]) -> float:
        """The least error rate of the table at which these p-values (look to p) decide; 1 if none does.

        It is a p-value over all looks, such as Holm's procedure needs.
        """
        least = min((p / math.sqrt(n) for n, p in p_at.items() if self.start <= n <= self.max), default=math.inf)
        return min((error for error, k in _table()[self.start, self.max].items() if least < k), default=1.0)


@dataclass(frozen=True, slots=True)
class ExtendedSeeds:
    """Seeds as they were declared one after the other, each change but the first after results could be seen.

    Attributes:
        declared: Fixed numbers of seeds, or schedules; the last one is what the study does now.
    """

    declared: tuple[int | SeedSchedule, ...]

    @property
    def start(self) -> int:
        """The least number of paired seeds at which it looks."""
        return min(one if isinstance(one, int) else one.start for one in self.declared)

    @property
    def max(self) -> int:
        """The number of paired seeds at its last look."""
        last = self.declared[-1]
        return last if isinstance(last, int) else last.max

    @property
    def added_error(self) -> float:
        """What the changes made so far add to the error rate at most."""
        return ERROR * sum(_share(number) for number in range(1, len(self.declared)))

    def level(self, n: int, error: float = ERROR) -> float:
        """As `SeedSchedule.level`: of the first declaration that looks at `n` seeds."""
        place = self._declaration(n)
        if place is None:
            return error * _share(len(self.declared) - 1) if self._is_short(n) else 0.0
        declared, part = self.declared[place], error * _share(place)
        return part if isinstance(declared, int) else declared.level(n, part)

    def looks(self, pairs: int) -> Iterator[int]:
        """As `SeedSchedule.looks`, over the seeds of all looks."""
        for n in range(2, pairs + 1):
            if self._declaration(n) is not None or (n == pairs and self._is_short(n)):
                yield n

    def declares(self, n: int) -> bool:
        """Whether a declaration looks at this many seeds, rather than trials that failed having left no more."""
        return self._declaration(n) is not None

    def _declaration(self, n: int) -> int | None:
        """Index of the first declaration that looks at this many seeds."""
        for number, one in enumerate(self.declared):
            if one == n if isinstance(one, int) else one.start <= n <= one.max:
                return number
        return None

    def _is_short(self, n: int) -> bool:
        """Whether trials that failed left fewer pairs than the fixed number declared last."""
        last = self.declared[-1]
        return isinstance(last, int) and n < last

    def overall(self, p_at: Mapping[int, float]) -> float:
        """The p-value of the first looks together, as `SeedSchedule.overall` computes it."""
        least = 1.0
        for n in self.looks(max(p_at, default=0)):
            place = self._declaration(n)
            share = _share(len(self.declared) - 1 if place is None else place)
            declared = None if place is None else self.declared[place]
            p = declared.overall({n: p_at[n]}) if isinstance(declared, SeedSchedule) else p_at[n]
            least = min(least, p / share)
        return least


SeedPlan = SeedSchedule | ExtendedSeeds
"""How seeds are added."""


def seeds_declared(declared: Sequence[int | Mapping[str, int] | None]) -> SeedPlan | None:
    """Seeds as they were declared one after the other; None is what was not recorded."""
    known = [one for one in declared if one is not None]
    changes = [one for place, one in enumerate(known) if place == 0 or one != known[place - 1]]
    plans = tuple(
        change if isinstance(change, int) else SeedSchedule(change["start"], change["max"]) for change in changes
    )
    if len(plans) > 1:
        return ExtendedSeeds(plans)
    return plans[0] if plans and isinstance(plans[0], SeedSchedule) else None


def _share(number: int) -> float:
    """What the declaration of this number, from 0 on, gets of the error rate."""
    return 1.0 if number == 0 else ADDED * 0.5**number


@functools.cache
def _table() -> dict[tuple[int, int], dict[float, float]]:
    """(start, max) to error rate to k."""
    text = (files("ablate.stats") / "boundaries.csv").read_text(encoding="utf-8")
    head, *rows = csv.reader(text.splitlines())
    errors = [float(error) for error in head[2:]]
    return {
        (int(start), int(last)): dict(zip(errors, map(float, levels), strict=True)) for start, last, *levels in rows
    }

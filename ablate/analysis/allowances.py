"""Sources of error that the spread between seeds does not include: failed trials, tuned values, heavy tails."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ablate.analysis.fairness import Tuned, Tuning
from ablate.analysis.runs import VariantRuns, pairs_windows, seed_schedule
from ablate.analysis.text import plural
from ablate.stats import Allowance, Tails, tails_at_looks, tails_of
from ablate.stats.bounds import at_most
from ablate.stats.hidden_noise import regret_bound, tuning_noise
from ablate.store.records import StudyRecord


@dataclass(frozen=True, slots=True)
class Allowances:
    """By how much the bounds of a study's comparisons are widened, and why.

    Attributes:
        baseline: Name of the study's baseline.
        failed: Variant to how many of its trials failed; those without any are left out.
        regret: Variant to how much worse than the best of the tuning grid its value may be; empty if nothing is tuned.
        tails: Of the differences of the variants from the baseline, oriented so that positive is worse.
        tails_at: The same at each look of a schedule, by its number of paired seeds.
    """

    baseline: str
    failed: Mapping[str, int] = field(default_factory=dict)
    regret: Mapping[str, float] = field(default_factory=dict)
    tails: Tails | None = None
    tails_at: Mapping[int, Tails | None] = field(default_factory=dict)

    def versus(self, left: str, right: str, *, failed: bool = True) -> Allowance:
        """The allowance on how much worse one variant is than another.

        Args:
            left: Name of the variant.
            right: Name of the variant that it is compared with.
            failed: Whether to count the failed trials of the left variant; those of the right one always count.
        """
        allowance = Allowance()
        if failed and left in self.failed:
            allowance += Allowance(high=math.inf, why_high=(self._lost(left),))
        if right in self.failed:
            allowance += Allowance(low=math.inf, why_low=(self._lost(right),))
        if (regret := self.regret.get(left, 0.0)) > 0:
            allowance += Allowance(low=regret, why_low=(_choice(left, regret),))
        if (regret := self.regret.get(right, 0.0)) > 0:
            allowance += Allowance(high=regret, why_high=(_choice(right, regret),))
        tails, tails_at = self.tails, self.tails_at
        if right != self.baseline:
            tails, tails_at = _both(tails), {n: _both(at) for n, at in tails_at.items()}
        shown = [tail for tail in (tails, *tails_at.values()) if tail is not None]
        if not shown:
            return allowance
        low, high = ([tail_words(tail) for tail in shown if getattr(tail, side)][-1:] for side in ("low", "high"))
        return allowance + Allowance(tails=tails, why_low=tuple(low), why_high=tuple(high), tails_at=tails_at)

    def _lost(self, name: str) -> str:
        whose = "the baseline" if name == self.baseline else name
        return (
            f"{plural(self.failed[name], 'trial')} of {whose} failed, and the "
            f"{'result is' if self.failed[name] == 1 else 'results are'} unknown; run the study again"
        )


def read_allowances(record: StudyRecord, runs: Mapping[str, VariantRuns], tuning: Tuning | None = None) -> Allowances:
    """What a study's comparisons must allow for.

    Args:
        record: The study.
        runs: Variant name to its trials, as they are compared.
        tuning: What it tuned.
    """
    metric, sign = record.objective["metric"], 1.0 if record.objective["direction"] == "minimize" else -1.0
    tails, tails_at, schedule = None, {}, seed_schedule(record)
    if not pairs_windows(record):
        worse = _worse(record, runs, metric, sign)
        if schedule is None:
            tails = tails_of([by_seed[seed] for seed in sorted(by_seed)] for by_seed, lost in worse if not lost)
        else:
            tails_at = tails_at_looks(worse, schedule)
    return Allowances(
        baseline=record.baseline,
        failed={name: len(run.failed) for name, run in runs.items() if run.failed},
        regret=_regrets(tuning, sign) if tuning is not None else {},
        tails=tails,
        tails_at=tails_at,
    )


def worst_results(
    runs: VariantRuns,
    values: Mapping[int, float],
    baseline: Mapping[int, float],
    trivial: float | None,
    sign: float,
) -> tuple[float, ...]:
    """An upper bound of how much worse than the baseline each failed trial is: the value of a trivial baseline.

    Empty if nothing bounds them: the task has no trivial baseline, or a trial that finished is worse than it already.

    Args:
        runs: The trials of a variant.
        values: Seed to the objective of those that finished.
        baseline: The same of the baseline.
        trivial: The objective without learning.
        sign: 1 where a smaller objective is better, else -1.
    """
    if trivial is None or not baseline:
        return ()
    finished = [sign * value for value in (*values.values(), *baseline.values())]
    if max(finished) > sign * trivial:
        return ()
    best = min(sign * value for value in baseline.values())
    return tuple(sign * trivial - (sign * baseline[seed] if seed in baseline else best) for seed in sorted(runs.failed))


def tail_words(tails: Tails) -> str:
    """How a heavy tail affects the bounds, as a clause."""
    how = "worse" if tails.skewness > 0 else "better"
    tail = f"a few seeds end far {how} than the others (skewness {tails.skewness:.1f} over {_over(tails)})"
    if tails.pooled:
        return f"{tail}, and bounds that account for this tail do not decide"
    return f"{tail}, and so few comparisons give no valid bound; at least four with many seeds are required"


def _over(tails: Tails) -> str:
    return plural(tails.comparisons, "comparison")


def _choice(name: str, regret: float) -> str:
    if math.isinf(regret):
        return f"its tuning seeds do not bound how much better {name} may be at another value; tune with more seeds"
    return (
        f"by its tuning seeds {name} may be up to {at_most(regret, 0.0)} better at another value; tune with more seeds"
    )


def _both(tails: Tails | None) -> Tails | None:
    return tails.both() if tails is not None else None


def _worse(
    record: StudyRecord, runs: Mapping[str, VariantRuns], metric: str, sign: float
) -> list[tuple[dict[int, float], Iterable[int]]]:
    """How much worse each variant is than the baseline by seed, and the seeds at which it diverged."""
    baseline = runs[record.baseline].values(metric)
    found: list[tuple[dict[int, float], Iterable[int]]] = []
    for name, run in runs.items():
        if name != record.baseline and not run.pruned:
            values = run.values(metric)
            by_seed = {seed: sign * (values[seed] - baseline[seed]) for seed in values.keys() & baseline.keys()}
            found.append((by_seed, run.diverged))
    return found


def _regrets(tuning: Tuning, sign: float) -> dict[str, float]:
    regrets = {}
    for name, tuned in tuning.of.items():
        values = tuned.values
        chosen = [place for place, one in enumerate(tuned.tried) if values and one.values.items() <= values.items()]
        if chosen and tuned.tried[chosen[0]].by_seed:
            tried = _oriented(tuned, sign)
            regrets[name] = regret_bound(tried, chosen[0], *tuning_noise([tried]))
    return regrets


def _oriented(tuned: Tuned, sign: float) -> list[dict[int, float]]:
    return [{seed: sign * value for seed, value in one.by_seed.items()} for one in tuned.tried]

"""The verdict on two variants of a study from their trials, and what its bounds allow for besides the spread of seeds.

A fixed number of seeds has one look, with the whole error rate. To read a verdict while trials are missing is to look
early, and whoever looks often is wrong often. So a comparison has estimates, but no verdict, until its last seed has
ended. With a schedule each look has its own level: it takes the seeds up to the first that is missing.

Sources of error that the spread between seeds does not include: failed trials, tuned values, heavy tails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.analysis.fairness import Tuning
from ablate.analysis.numbers import plural
from ablate.analysis.rows import JudgingRule
from ablate.analysis.runs import VariantRuns, baselines_of, pairs_windows, seed_schedule
from ablate.analysis.times import Target
from ablate.analysis.trivial import nothing_learnt, standings_of, trivial_baselines
from ablate.spec.fairness import BUDGET
from ablate.stats import (
    Allowance,
    Bounds,
    Direction,
    ExtendedSeeds,
    PairedDifference,
    SeedPlan,
    SeedSchedule,
    Tails,
    Verdict,
    judge,
    over_looks,
    paired_difference,
    tails_at_looks,
    tails_of,
    unpaired_difference,
)
from ablate.stats.bounds import at_most
from ablate.stats.hidden_noise import regret_bound, tuning_noise
from ablate.store.records import StudyRecord


@dataclass(frozen=True, slots=True)
class Allowances:
    """By how much the bounds of a study's comparisons are widened, and why.

    Attributes:
        baseline: Name of the study's baseline.
        failed: Variant to how many of its trials failed; those without any are left out.
        censored: Variant to how many of its runs ended before they reached a target, so that they are worse than known.
        regret: Variant to how much worse than the best of the tuning grid its value may be; empty if nothing is tuned.
        tails: Of the differences of the variants from the baseline, oriented so that positive is worse.
        tails_at: The same at each look of a schedule, by its number of paired seeds.
    """

    baseline: str
    failed: Mapping[str, int] = field(default_factory=dict)
    censored: Mapping[str, int] = field(default_factory=dict)
    regret: Mapping[str, float] = field(default_factory=dict)
    tails: Tails | None = None
    tails_at: Mapping[int, Tails | None] = field(default_factory=dict)

    def versus(self, left: str, right: str, *, failed: bool = True) -> Allowance:
        """The allowance on how much worse one variant is than another.

        Args:
            right: Name of the variant that it is compared with.
            failed: Whether to count the failed trials of the left variant; those of the right one always count.
        """
        allowance = Allowance()
        if failed and left in self.failed:
            allowance += Allowance(high=math.inf, why_high=(self._lost(left),))
        if right in self.failed:
            allowance += Allowance(low=math.inf, why_low=(self._lost(right),))
        if left in self.censored:
            allowance += Allowance(high=math.inf, why_high=(self._censored(left),))
        if right in self.censored:
            allowance += Allowance(low=math.inf, why_low=(self._censored(right),))
        if (regret := self.regret.get(left, 0.0)) > 0:
            allowance += Allowance(low=regret, why_low=(_choice(self._whose(left), regret),))
        if (regret := self.regret.get(right, 0.0)) > 0:
            allowance += Allowance(high=regret, why_high=(_choice(self._whose(right), regret),))
        tails, tails_at = self.tails, self.tails_at
        if self.baseline not in (left, right):
            tails, tails_at = _both(tails), {n: _both(at) for n, at in tails_at.items()}
        shown = [tail for tail in (tails, *tails_at.values()) if tail is not None]
        if not shown:
            return allowance
        low, high = ([tail_words(tail) for tail in shown if getattr(tail, side)][-1:] for side in ("low", "high"))
        of_tails = Allowance(tails=tails, why_low=tuple(low), why_high=tuple(high), tails_at=tails_at)
        return allowance + (of_tails.turned() if left == self.baseline else of_tails)

    def _whose(self, name: str) -> str:
        return "the baseline" if name == self.baseline else name

    def _censored(self, name: str) -> str:
        runs = plural(self.censored[name], "run")
        return f"{runs} of {self._whose(name)} never reached the target, and the true values are worse"

    def _lost(self, name: str) -> str:
        return (
            f"{plural(self.failed[name], 'trial')} of {self._whose(name)} failed, and the "
            f"{'result is' if self.failed[name] == 1 else 'results are'} unknown; run the study again"
        )


def read_allowances(record: StudyRecord, runs: Mapping[str, VariantRuns], tuning: Tuning | None = None) -> Allowances:
    """What a study's comparisons must allow for.

    Args:
        runs: Variant name to its trials, as they are compared.
    """
    runs = _own(record, runs)
    tails, tails_at = read_tails(record, runs, record.objective["metric"], record.objective["direction"])
    return Allowances(
        baseline=record.baseline,
        failed={name: len(run.failed) for name, run in runs.items() if run.failed},
        censored={name: len(run.unreached) for name, run in runs.items() if run.unreached}
        if record.judged is None
        else record.judged.censored,
        regret={} if tuning is None else read_regrets(tuning, record.objective["direction"]),
        tails=tails,
        tails_at=tails_at,
    )


def read_tails(
    record: StudyRecord, runs: Mapping[str, VariantRuns], metric: str, direction: Direction
) -> tuple[Tails | None, Mapping[int, Tails | None]]:
    """The tail of a study's differences in a metric, and with a schedule of seeds that at each look."""
    if pairs_windows(record):
        return None, {}
    worse = _worse(record, _own(record, runs), metric, 1.0 if direction == "minimize" else -1.0)
    if (schedule := seed_schedule(record)) is not None:
        return None, tails_at_looks(worse, schedule)
    return tails_of([*by_seed.values()] for by_seed, lost in worse if not lost), {}


def _own(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> dict[str, VariantRuns]:
    """The trials of a study's variants, not those at other budgets."""
    names = {variant.name for variant in record.variants}
    return {name: run for name, run in runs.items() if name in names}


def rule_of(record: StudyRecord, axis: str = "steps") -> JudgingRule:
    """The rule of a study.

    Args:
        axis: What its variants are compared along before their end.
    """
    return JudgingRule(
        record.objective["metric"],
        record.objective["direction"],
        float(record.objective["margin"]),
        seed_schedule(record),
        "window" if pairs_windows(record) else record.unit,
        axis,
        record.traits.adds_seeds,
        relative=Target.of(record) is not None,
    )


def nothing_learnt_by(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> str:
    """Why a study has no answer at all, as a clause: no model has learnt enough. Empty if one has."""
    own = {variant.name: runs[variant.name] for variant in record.variants}
    return nothing_learnt(standings_of(own, rule_of(record)))


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
        values: Seed to the objective of those that finished.
        trivial: The objective without learning.
        sign: 1 where a smaller objective is better, else -1.
    """
    if trivial is None or not baseline:
        return ()
    finished = [sign * value for value in (*values.values(), *baseline.values())]
    if max(finished) > sign * trivial:
        return ()
    best = min(sign * value for value in baseline.values())
    return tuple(
        sign * (trivial - baseline[seed]) if seed in baseline else sign * trivial - best for seed in runs.failed
    )


def tail_words(tails: Tails) -> str:
    """How a heavy tail affects the bounds, as a clause."""
    how = "worse" if tails.skewness > 0 else "better"
    over = plural(tails.comparisons, "comparison")
    tail = f"a few seeds end far {how} than the others (skewness {tails.skewness:.1f} over {over})"
    if tails.pooled:
        return f"{tail}, and bounds that account for this tail do not decide"
    return f"{tail}, and so few comparisons give no valid bound; at least four with many seeds are required"


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
    """How much worse each variant is than its baseline, in the order of seeds, and the seeds at which it diverged."""
    baselines = baselines_of(record)
    found: list[tuple[dict[int, float], Iterable[int]]] = []
    for name, run in runs.items():
        if name != baselines[name] and not run.pruned and record.pairs(name):
            values, baseline = run.compared(metric), runs[baselines[name]].compared(metric)
            by_seed = {seed: sign * (value - baseline[seed]) for seed, value in values.items() if seed in baseline}
            found.append(({seed: gap for seed, gap in by_seed.items() if math.isfinite(gap)}, run.diverged))
    return found


def read_regrets(tuning: Tuning, direction: Direction, metric: str = "") -> dict[str, float]:
    """Variant to how much worse than the best of the tuning grid its value may be, in a metric.

    At another budget that is as at the study's own, where values are tuned.

    Args:
        metric: Unless given, the objective's.
    """
    regrets, sign = {}, 1.0 if direction == "minimize" else -1.0
    for name, own in tuning.of.items():
        tuned = own if own.tried else tuning.of.get(name.partition(f"@{BUDGET}=")[0], own)
        values = tuned.values
        places = (place for place, at in enumerate(tuned.tried) if values and at.values.items() <= values.items())
        chosen = next(places, None)
        if chosen is not None and tuned.tried[chosen].by_seed:
            of_tried = [point.metrics.get(metric, {}) if metric else point.by_seed for point in tuned.tried]
            tried = [
                {seed: sign * value for seed, value in point.items() if math.isfinite(value)} for point in of_tried
            ]
            regrets[name] = regret_bound(tried, chosen, *tuning_noise([tried])) if tried[chosen] else math.inf
    return regrets


def compare_trials(
    name: str,
    runs: VariantRuns,
    baseline: VariantRuns,
    *,
    rule: JudgingRule,
    allowances: Allowances,
    paired: bool = True,
) -> tuple[PairedDifference, Verdict]:
    """The difference of a variant from its baseline, and the verdict, in the words for a removal.

    Args:
        name: Of the variant, in the allowances.
        runs: Its trials.
        baseline: Those of its baseline.
        rule: By what it is judged.
        allowances: By how much bounds are widened.
        paired: Whether equal seeds share something (`ablate.stats.judge`).
    """
    values, baseline_values = runs.compared(rule.metric), baseline.compared(rule.metric)
    trivials = trivial_baselines(runs.rules, rule.metric, rule.direction)
    worst = worst_results(runs, values, baseline_values, trivials[-1].value if trivials else None, rule.sign)
    allowance = allowances.versus(name, allowances.baseline, failed=not worst)
    if not paired:
        allowance, worst = replace(allowance, tails=None), ()
    verdict = _verdict(runs, baseline, rule, allowance, worst, paired)
    if not paired:
        return unpaired_difference([*values.values()], [*baseline_values.values()]), verdict
    # The seeds that did not diverge are a biased selection; of a bound on one side there is no interval.
    if verdict.word == "diverged" or runs.unreached or baseline.unreached:
        return PairedDifference(None, None, None, len(values.keys() & baseline_values.keys()), None, None), verdict
    difference = paired_difference(values, baseline_values)
    difference = over_looks(difference, rule.schedule, allowance=allowance.of_change(rule.direction))
    return difference.as_shares() if rule.relative else difference, verdict


def _verdict(
    runs: VariantRuns,
    baseline: VariantRuns,
    rule: JudgingRule,
    allowance: Allowance,
    worst: Sequence[float],
    paired: bool,
) -> Verdict:
    values, theirs, schedule = runs.compared(rule.metric), baseline.compared(rule.metric), rule.schedule
    if runs.diverged:  # of all seeds that have ended, whatever is known of them
        values = dict.fromkeys(runs.finished, 0.0)
    elif rule.relative and (why := runs.unknown or baseline.unknown):
        return Verdict("undecided", f"undecided: {why}", None, withheld=why)
    elif rule.unit == "seed" and (missing_seeds(runs, baseline) or runs.unplanned or baseline.unplanned):
        seeds = _seeds_of_looks(schedule, runs, baseline, [seed for seed in values if seed in theirs])
        values, theirs = ({seed: of[seed] for seed in seeds} for of in (values, theirs))
    verdict = judge(
        values,
        theirs,
        margin=rule.margin,
        direction=rule.direction,
        schedule=schedule,
        diverged={seed: trial.stopped_at for seed, trial in runs.diverged.items()},
        baseline_diverged={seed: trial.stopped_at for seed, trial in baseline.diverged.items()},
        allowance=allowance,
        worst=worst,
        unit=rule.unit,
        paired=paired,
        relative=rule.relative,
    )
    if rule.relative and verdict.word == "undecided" and (runs.unreached or baseline.unreached):  # seeds do not help
        why = "; ".join(dict.fromkeys((*allowance.why_high, *allowance.why_low)))
        verdict = withheld(verdict, why)
    missing = awaited_seeds(schedule, runs, baseline) if rule.unit == "seed" else ""
    if verdict.word == "undecided" and missing:
        return replace(verdict, sentence=f"undecided: {missing}", further_seeds=None, withheld="", chance=None)
    return verdict


def withheld(verdict: Verdict, why: str) -> Verdict:
    """The verdict as undecided, for a reason that no seeds remove. The verdict `diverged` is kept."""
    if verdict.word == "diverged":
        return verdict
    sentence = f"undecided: {why}"
    return replace(verdict, word="undecided", sentence=sentence, further_seeds=None, withheld=why, chance=None)


def missing_seeds(*sides: VariantRuns) -> list[int]:
    """The seeds at which a trial of a comparison waits or runs, of those that all sides have planned."""
    return [seed for seed in _planned(sides) if any(side.states[seed].is_open for side in sides)]


def awaited_seeds(schedule: SeedPlan | None, *sides: VariantRuns) -> str:
    """What a comparison waits for, as a clause: `3 of 10 seeds have ended`; empty if it waits for nothing.

    A schedule waits for nothing: it looks after every seed.
    """
    if not all(side.states for side in sides):
        return "not planned yet"
    missing, unplanned = missing_seeds(*sides), max(side.unplanned for side in sides)
    if not (missing or unplanned) or _looks_at_any_seed(schedule):
        return ""
    planned = len(_planned(sides))
    ended = planned - len(missing)
    so_far = f"{ended} of {plural(planned + unplanned, 'seed')} {'has' if ended == 1 else 'have'} ended"
    return f"{so_far}, and its design asked for no others" if unplanned and not missing else so_far


def _planned(sides: Sequence[VariantRuns]) -> set[int]:
    return set.intersection(*(set(side.states) for side in sides))


def _looks_at_any_seed(schedule: SeedPlan | None) -> bool:
    """Whether what was declared last is a schedule."""
    return isinstance(schedule.declared[-1] if isinstance(schedule, ExtendedSeeds) else schedule, SeedSchedule)


def _seeds_of_looks(
    schedule: SeedPlan | None, runs: VariantRuns, baseline: VariantRuns, paired: Sequence[int]
) -> Sequence[int]:
    """The paired seeds that looks may use while others are missing; none of a fixed number."""
    if schedule is None:
        return ()
    first = min(missing_seeds(runs, baseline), default=math.inf)
    before = [seed for seed in paired if seed < first]
    if isinstance(schedule, ExtendedSeeds) and not _looks_at_any_seed(schedule):
        return before[: max(filter(schedule.declares, schedule.looks(len(before))), default=0)]
    return before


def worst_margin(margin: float, direction: Direction) -> float:
    """The difference from which on a variant is worse by more than the margin."""
    return margin if direction == "minimize" else -margin


def deciding_bounds(verdict: Verdict | None, direction: Direction) -> Bounds | None:
    """The bounds that a verdict rests on, of variant minus baseline; None if there are none.

    One is infinite where nothing bounds it, as of a variant with failed trials.
    """
    bound = None if verdict is None else verdict.bound
    if bound is None:
        return None
    return bound if direction == "minimize" else Bounds(-bound.mean, -bound.high, -bound.low, bound.n)

"""A study as a report shows it: a row for each variant, compared with the baseline seed by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from ablate.analysis.changes import Change, changes_of
from ablate.analysis.claims import ClaimVerdict, judge_claims
from ablate.analysis.course import (
    comparable_before_end,
    course_of,
    course_sentences,
    has_own_schedule,
    read_goals,
    to_baseline,
)
from ablate.analysis.curves import Axis, Line, line
from ablate.analysis.declarations import (
    Redeclaration,
    changed_code,
    declared_otherwise,
    dropped_variants,
    read_elsewhere,
    redeclarations,
    seed_sets_read,
    seeds_added,
)
from ablate.analysis.fairness import MatchedBudgets, Tuning, longer_in_all, read_matching, read_tuning, scouts_of
from ablate.analysis.judging import Allowances, awaited_seeds, judge_trials, read_allowances, worst_results
from ablate.analysis.rows import Divergence, JudgingRule, VariantRow
from ablate.analysis.runs import (
    Curve,
    Failure,
    StudyReader,
    VariantRuns,
    confirming,
    failures_of,
    is_trained,
    pairs_windows,
    read_confirming,
    read_runs,
    relative_speed,
    seed_schedule,
)
from ablate.analysis.scaling import Scalings, at_own_length, read_scalings, scaling_sentences
from ablate.analysis.sentences import answer_sentences, best_sentence, confirmed_sentences, window_sentences
from ablate.analysis.trivial import (
    Standing,
    TrivialBaseline,
    behind,
    learning_warnings,
    standing_of,
    trivial_baselines,
    trivial_sentences,
)
from ablate.analysis.warnings import (
    StudyWarning,
    assumption,
    changes_after_results,
    draw_noise,
    evidence,
    limits_of_table,
    lost_trials,
    missing_trials,
    selected_variants,
    tuning_edges,
    validation_draw,
)
from ablate.collector import paused_collector
from ablate.metrics import Metric
from ablate.stats import (
    Direction,
    Interval,
    PairedDifference,
    SeedPlan,
    Tails,
    Verdict,
    hold_together,
    mean_interval,
    over_looks,
    paired_difference,
    unpaired_difference,
)
from ablate.store.records import StudyRecord, TrialState, VariantRecord


@dataclass(frozen=True, slots=True)
class OtherLength:
    """A variant at another budget, which is compared with the baseline of that budget (`Scalings`).

    Attributes:
        record: As the store has it; its name ends with the budget.
        states: Planned seed to the state of its trial.
        metrics: Final metric to its mean over the finished seeds, with a 95 % interval.
    """

    record: VariantRecord
    states: dict[int, TrialState]
    metrics: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class StudyReport:
    """A study, its variants in the order of the design, and its answer.

    Attributes:
        record: The study as the store holds it, without its variants at other budgets.
        metric: Name of the objective's metric.
        direction: Whether a smaller or a larger metric is better.
        margin: How much worse matters, in the unit of the metric.
        variants: A row for each variant.
        progress: How many planned trials are in each state.
        warnings: What supports the answer and what limits it: the evidence, then what the answer begins with.
        answer: The answer to the study's question, as sentences; its caveats first.
        schedule: How the study adds seeds; None if their number is fixed.
        together: Names of the variants whose verdicts hold together (`ablate.stats.joint`).
        claims: The verdicts on the claims of its space, in their order.
        matching: The budgets of the variants, and the quantity that is equal.
        tuning: What was tuned for each variant; None if nothing was.
        trivials: The trivial baselines of its task, the best first.
        standings: How each variant compares with them.
        failures: All trials that failed, those among them that only tune or time others.
        windows: Validation windows that are paired where nothing was trained; 0 if seeds are.
        scaling: The variants at other budgets, or along the path of a sweep; None if the study has neither.
        other_lengths: The variants at other budgets, the baseline among them.
        redeclared: What was declared otherwise after results, oldest first.
        draw_sd: Standard deviation of a difference over other draws of the validation data; None if it was not measured
            in parts (`ablate.analysis.warnings.draw_noise`).
        tails: The long tail that the differences from the baseline show, oriented so that positive is worse; None if
            they show none.
    """

    record: StudyRecord
    metric: str
    direction: Direction
    margin: float
    variants: tuple[VariantRow, ...]
    progress: dict[TrialState, int]
    warnings: tuple[StudyWarning, ...]
    answer: tuple[str, ...]
    schedule: SeedPlan | None
    together: frozenset[str]
    claims: tuple[ClaimVerdict, ...]
    matching: MatchedBudgets
    tuning: Tuning | None
    trivials: tuple[TrivialBaseline, ...] = ()
    standings: tuple[Standing, ...] = ()
    failures: tuple[Failure, ...] = ()
    windows: int = 0
    scaling: Scalings | None = None
    other_lengths: tuple[OtherLength, ...] = ()
    draw_sd: float | None = None
    redeclared: tuple[Redeclaration, ...] = ()
    tails: Tails | None = None

    @property
    def caveats(self) -> tuple[str, ...]:
        """The sentences that the answer begins with: what limits all that follows."""
        return tuple(one.full for one in self.warnings if one.full and one.key not in _AMONG_VERDICTS)

    @property
    def learnt(self) -> bool:
        """Whether a model has learnt enough for the study to have an answer."""
        return not any(warning.replaces_headline for warning in self.warnings)

    @property
    def assumption(self) -> str | None:
        """On what condition verdicts hold (`ablate.analysis.warnings.assumption`)."""
        return assumption(self.variants, self.tails, self.windows, self.unit)

    @property
    def test_metric(self) -> str | None:
        """The objective's metric on the test, which no verdict reads; None if nothing was tested."""
        metric = Metric.of(self.metric)
        name = str(metric.on("test"))
        return name if metric.split == "val" and any(name in row.metrics for row in self.variants) else None

    @property
    def trivial(self) -> TrivialBaseline | None:
        """The best trivial baseline of its task; None if there is none."""
        return self.trivials[0] if self.trivials else None

    @property
    def unlearnt(self) -> frozenset[str]:
        """Names of the variants that learnt so little that differences between them are not informative."""
        return frozenset(one.name for one in behind(self.standings, self.trivials))

    @property
    def timed(self) -> bool:
        """Whether variants were timed beside the baseline, so that their speeds are known."""
        return any(row.relative_speed is not None for row in self.variants if row.name != self.record.baseline)

    @property
    def baseline(self) -> VariantRow:
        """The row that all others are compared with."""
        return next(row for row in self.variants if row.name == self.record.baseline)

    @property
    def unit(self) -> str:
        """What is paired: `seed`, or `window` where nothing was trained."""
        return self.record.unit if not self.windows else "window"

    @property
    def planned(self) -> int:
        """How many trials the study planned, those at other budgets and those that confirm among them."""
        return sum(self.progress.values())


_AMONG_VERDICTS = ("selected", "draw", "elsewhere")
"""Warnings whose sentences stand among those on the verdicts."""


@dataclass(frozen=True, slots=True)
class _Question:
    """By what a variant is judged, and what it is compared with."""

    rule: JudgingRule
    goals: Mapping[int, float]
    evaluated: Mapping[str, Curve]
    lines: Mapping[str, Line]
    allowances: Allowances
    trivial: float | None
    record: StudyRecord


@paused_collector()
def read_study(store: StudyReader, name: str) -> StudyReport:
    """Read a study out of the store and compare its variants with its baseline.

    Raises:
        NotFoundError: The store holds no such study.
    """
    whole = store.study(name)
    record = at_own_length(whole)
    metric, direction = record.objective["metric"], record.objective["direction"]
    margin = float(record.objective["margin"])
    runs = read_runs(store, record, metric)
    baseline = next(variant for variant in record.variants if variant.name == record.baseline)
    matching = read_matching(record, runs)
    fresh = read_confirming(store, record)
    finished = [trial for group in (runs, fresh) for run in group.values() for trial in run.finished.values()]
    evaluated = store.evaluations([trial.key for trial in finished])
    goals = read_goals(runs[baseline.name], evaluated)
    tuning = read_tuning(store, record)
    trivial = trivial_baselines(record.trivial, metric, direction)
    unit = "window" if pairs_windows(record) else record.unit
    rule = JudgingRule(metric, direction, margin, seed_schedule(record), unit, matching.axis, record.traits.adds_seeds)
    question = _Question(
        rule,
        goals,
        evaluated,
        {key: line(curve, cast(Axis, matching.axis)) for key, curve in evaluated.items()},
        read_allowances(record, runs, tuning),
        trivial[-1].value if trivial else None,
        record,
    )
    changes = changes_of(record)
    rows = tuple(_row(variant, baseline, runs, fresh, changes[variant.name], question) for variant in record.variants)
    verdicts = {row.name: row.verdict for row in rows if row.verdict is not None}
    dropped = {name: Verdict("undecided", "undecided: left out", None) for name in dropped_variants(whole)}
    together = hold_together({**dropped, **verdicts})
    redeclared = redeclarations(whole)
    all_runs = runs if record is whole else read_runs(store, whole, metric)
    scaling = read_scalings(store, whole)
    states = [
        state
        for group in (all_runs, fresh)
        for variant_runs in group.values()
        for state in variant_runs.states.values()
    ]
    progress = {state: states.count(state) for state in TrialState}
    first = next(row for row in rows if row.name == baseline.name)
    failures = failures_of(all_runs) + failures_of(fresh) + failures_of(_scouting(store, record, metric))
    standings = _standings(rows, runs, trivial, question)
    changed = (
        *declared_otherwise(redeclared),
        *seed_sets_read(record),
        *changed_code(store, whole),
        *seeds_added(rule.schedule),
        *seeds_added(seed_schedule(confirming(record)), "fresh seeds"),
    )
    windows = len(runs[baseline.name].windows.get(metric, ()))
    healed = [variant.name for variant in record.variants if is_trained(variant)] if windows else []
    draw_sd, tails = draw_noise(record, runs), question.allowances.tails
    learning = tuple(learning_warnings(standings, trivial))
    nothing = any(warning.replaces_headline for warning in learning)
    assumed = assumption(rows, tails, windows, unit)
    limits = (
        *(learning if nothing else ()),
        *missing_trials(progress, tuning),
        *lost_trials(failures, rows, first),
        *(() if nothing else learning),
        *tuning_edges(tuning, rows, first),
        *changes_after_results(changed),
        *limits_of_table(record),
    )
    among = (
        *selected_variants(rows),
        *validation_draw(draw_sd, margin, record),
        *([StudyWarning("assumption", "weak", f"a verdict {assumed}")] if assumed else ()),
        *read_elsewhere(record, decided=any(verdict.is_decided for verdict in verdicts.values())),
    )
    verdicts_in_words = (
        *answer_sentences(rows, first, together, rule),
        *course_sentences(rows, rule, advise=_may_have_budgets(record)),
        *scaling_sentences(scaling, metric),
        *(trivial_sentences(standings, trivial) if trivial else ()),
        *confirmed_sentences(rows),
        *(one.full for one in among if one.full and one.key != "elsewhere"),
        *(best_sentence(rows, metric, direction, margin) if record.traits.finds_best else ()),
        *(one.full for one in among if one.key == "elsewhere"),
    )
    return StudyReport(
        record=record,
        metric=metric,
        direction=direction,
        margin=margin,
        variants=rows,
        progress=progress,
        warnings=(evidence(record, progress, rows, unit, tuning, matching), *limits, *among),
        answer=(
            *(warning.full for warning in limits),
            *window_sentences(windows, healed),
            *(() if nothing else verdicts_in_words),
        ),
        schedule=rule.schedule,
        together=together,
        claims=_claims(whole, all_runs, question.allowances),
        scaling=scaling,
        other_lengths=tuple(
            OtherLength(variant, all_runs[variant.name].states, _metrics(all_runs[variant.name]))
            for variant in whole.variants
            if variant.name not in runs
        ),
        windows=windows,
        matching=matching,
        tuning=tuning,
        trivials=tuple(trivial),
        standings=tuple(standings),
        failures=failures,
        draw_sd=draw_sd,
        redeclared=redeclared,
        tails=tails,
    )


def _standings(
    rows: Sequence[VariantRow],
    runs: Mapping[str, VariantRuns],
    trivial: Sequence[TrivialBaseline],
    question: _Question,
) -> list[Standing]:
    """How the variants compare with the trivial baselines; those that diverged or were pruned have no mean."""
    standings = [
        standing_of(
            row.name,
            list(runs[row.name].values(question.rule.metric).values()),
            trivial,
            question.rule.direction,
            question.rule.schedule,
        )
        for row in rows
        if not row.diverged and not row.pruned
    ]
    return [standing for standing in standings if standing is not None]


def _may_have_budgets(record: StudyRecord) -> bool:
    """Whether the space has no budgets and could have some, as far as its record tells (`check_budgets`)."""
    traits, match = record.traits, record.space.get("match", {}).get("equal", "steps")
    may = traits.plans_points and not traits.sets_values
    return may and not record.space.get("budgets") and match in ("steps", "parameters")


def _scouting(store: StudyReader, record: StudyRecord, metric: str) -> Mapping[str, VariantRuns]:
    return read_runs(store, scouts_of(record), metric) if record.scout_trials else {}


def _row(
    variant: VariantRecord,
    baseline: VariantRecord,
    all_runs: Mapping[str, VariantRuns],
    fresh: Mapping[str, VariantRuns],
    change: Change,
    question: _Question,
) -> VariantRow:
    runs, baseline_runs = all_runs[variant.name], all_runs[baseline.name]
    chosen = variant.chosen
    ours, theirs, asked = runs, baseline_runs, question
    if variant.name in fresh and variant.name != baseline.name:
        ours, theirs, chosen = fresh[variant.name], fresh[baseline.name], False
        apart = confirming(question.record)
        rule = replace(question.rule, schedule=seed_schedule(apart))
        asked = replace(question, rule=rule, allowances=read_allowances(apart, fresh))
    difference, verdict = None, None
    if variant.name != baseline.name and not ours.pruned:
        difference, verdict = _judged(variant.name, ours, theirs, asked)
        verdict = verdict.of_replacement() if change.otherwise or question.record.judged else verdict
    more = variant.parameters - baseline.parameters
    steps = to_baseline(runs, question.goals, "step", question.evaluated)
    axis, course = question.rule.axis, None
    if variant.name != baseline.name:
        course = course_of(
            ours,
            theirs,
            question.evaluated,
            question.lines,
            asked.rule,
            allowance=asked.allowances.versus(variant.name, baseline.name),
            comparable=comparable_before_end(variant, baseline),
            own_schedule=has_own_schedule(variant, baseline),
            replaces=bool(change.otherwise),
        )
    return VariantRow(
        name=variant.name,
        hash=variant.hash,
        settings=variant.settings,
        change=change,
        parameters=variant.parameters,
        parameter_change=more / baseline.parameters if baseline.parameters else None,
        planned=tuple(runs.states),
        finished=tuple(sorted(runs.finished)),
        states=runs.states,
        metrics={} if runs.pruned else _metrics(runs),
        diverged=tuple(
            Divergence(seed, runs.diverged[seed].stopped_at, runs.diverged[seed].reason)
            for seed in sorted(runs.diverged)
        ),
        failed=failures_of({variant.name: runs}),
        difference=difference,
        verdict=None if chosen else verdict,
        chosen=chosen and not runs.pruned,
        confirmed=tuple(ours.states) if ours is not runs else (),
        steps_to_baseline=steps,
        spent_to_baseline=steps if axis == "steps" else to_baseline(runs, question.goals, axis, question.evaluated),
        relative_speed=relative_speed(runs.rates, baseline_runs.rates),
        course=course,
        seconds=math.fsum(trial.seconds for trial in runs.finished.values()),
        longer=longer_in_all(variant, baseline, runs, baseline_runs, axis),
        awaits=awaited_seeds(asked.rule.schedule, ours, theirs) if question.rule.unit != "window" else "",
    )


def _judged(
    name: str, runs: VariantRuns, baseline: VariantRuns, question: _Question
) -> tuple[PairedDifference, Verdict]:
    """The difference from the baseline on the seeds of these trials, and the verdict."""
    rule = question.rule
    values, baseline_values = runs.values(rule.metric), baseline.values(rule.metric)
    worst = worst_results(runs, values, baseline_values, question.trivial, rule.sign)
    allowance = question.allowances.versus(name, question.record.baseline, failed=not worst)
    paired = question.record.pairs(name)
    if not paired:
        allowance, worst = replace(allowance, tails=None), ()
    verdict = judge_trials(
        runs,
        baseline,
        metric=rule.metric,
        margin=rule.margin,
        direction=rule.direction,
        schedule=rule.schedule,
        allowance=allowance,
        worst=worst,
        unit=rule.unit,
        paired=paired,
    )
    if not paired:
        return unpaired_difference([*values.values()], [*baseline_values.values()]), verdict
    difference = paired_difference(values, baseline_values)
    return over_looks(difference, rule.schedule, allowance=allowance.of_change(rule.direction)), verdict


def _claims(record: StudyRecord, runs: Mapping[str, VariantRuns], allowances: Allowances) -> tuple[ClaimVerdict, ...]:
    failed = {name: len(run.failed) for name, run in runs.items() if run.failed}
    return judge_claims(record, runs, replace(allowances, failed=failed)) if record.space.get("claims") else ()


def _metrics(runs: VariantRuns) -> dict[str, Interval]:
    names = sorted({name for trial in runs.finished.values() for name in trial.metrics})
    if runs.windows:
        return {name: _of_windows(runs, name) for name in names}
    return {name: _interval(list(runs.values(name).values())) for name in names}


def _of_windows(runs: VariantRuns, name: str) -> Interval:
    """A metric of one trial with its interval over windows, as far as it is a mean over them."""
    (trial,) = runs.finished.values()
    mean, interval = trial.metrics[name], mean_interval(runs.windows.get(name, {}).values())
    alike = interval.mean is not None and math.isclose(interval.mean, mean, rel_tol=1e-3)
    return interval if alike else Interval(mean if math.isfinite(mean) else None, None, None, 1)


def _interval(values: list[float]) -> Interval:
    if all(math.isfinite(value) for value in values):
        return mean_interval(values)
    return Interval(None, None, None, len(values))  # a side metric may overflow; the objective's is never here then

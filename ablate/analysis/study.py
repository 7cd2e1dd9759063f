"""Reads a study out of a store: compares its variants with its baseline, and says what follows."""

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
    changed_code,
    declared_otherwise,
    dropped_variants,
    read_elsewhere,
    redeclarations,
    seed_sets_read,
    seeds_added,
)
from ablate.analysis.effects import effects_of
from ablate.analysis.fairness import (
    MatchedBudgets,
    Tuning,
    early_ends,
    longer_in_all,
    read_matching,
    read_tuning,
    scouts_of,
)
from ablate.analysis.judging import Allowances, awaited_seeds, compare_trials, read_allowances, rule_of, withheld
from ablate.analysis.ladder import Climbs, climb_sentences, last_rung, read_climbs
from ablate.analysis.numbers import decimals_for, listed
from ablate.analysis.report import Evidence, OtherLength, Progress, StudyAnswer, StudyReport
from ablate.analysis.rows import Divergence, JudgingRule, VariantRow
from ablate.analysis.runs import (
    Curve,
    StudyReader,
    VariantRuns,
    baselines_of,
    confirming_study,
    failures_of,
    is_trained,
    read_confirming,
    read_runs,
    seed_schedule,
    values_of,
)
from ablate.analysis.scaling import (
    AxisPoints,
    Scalings,
    main_part,
    read_axis_points,
    rungs_of,
    scaling_sentences,
    scalings_of,
)
from ablate.analysis.sentences import answer_sentences, best_sentence, confirmed_sentences, window_sentences
from ablate.analysis.suite import SuiteReader, scales_of, suite_sentences, suite_warnings, tasks_of
from ablate.analysis.times import relative_speed
from ablate.analysis.trivial import (
    TrivialBaseline,
    measured_otherwise,
    standings_of,
    trivial_baselines,
    trivial_sentences,
    warn_of_unchecked,
)
from ablate.analysis.warnings import (
    StudyWarning,
    assumption,
    changes_after_results,
    draw_noise,
    ended_early,
    limits_of_table,
    lost_trials,
    missing_trials,
    selected_variants,
    support,
    target_limits,
    timed_apart,
    tuning_edges,
    validation_draw,
)
from ablate.designs.ladder import RUNG
from ablate.errors import NotFoundError
from ablate.metrics import COSTS
from ablate.processes import paused_collector
from ablate.spec.suite import at_task
from ablate.stats import (
    Interval,
    Tails,
    Verdict,
    hold_together,
    mean_interval,
)
from ablate.store.records import StudyRecord, TrialRecord, TrialState, VariantRecord


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a store holds of a study.

    Attributes:
        whole: Its record.
        record: The same without the variants at other budgets.
        runs: Variant of `record` to its trials.
        all_runs: Variant of `whole` to its trials.
        fresh: Variant to the trials that confirm it.
        scouting: Variant to the trials that only tune or time others.
        evaluated: Key of a finished trial to its evaluations.
    """

    whole: StudyRecord
    record: StudyRecord
    runs: Mapping[str, VariantRuns]
    all_runs: Mapping[str, VariantRuns]
    fresh: Mapping[str, VariantRuns]
    scouting: Mapping[str, VariantRuns]
    evaluated: Mapping[str, Curve]

    @property
    def finished(self) -> dict[str, dict[int, TrialRecord]]:
        """Variant to seed to its trial, those that confirm it among them."""
        return {
            name: {**run.finished, **(self.fresh[name].finished if name in self.fresh else {})}
            for name, run in self.runs.items()
        }

    @property
    def baselines(self) -> Mapping[str, VariantRecord]:
        """Variant name to what it is compared with."""
        variants = {variant.name: variant for variant in self.record.variants}
        return {name: variants[baseline] for name, baseline in baselines_of(self.record).items()}


@dataclass(frozen=True, slots=True)
class _Question:
    """By what a variant is judged, and what it is compared with."""

    rule: JudgingRule
    matching: MatchedBudgets
    tuning: Tuning | None
    trivials: tuple[TrivialBaseline, ...]
    goals: Mapping[str, Mapping[int, float]]
    lines: Mapping[str, Line]
    allowances: Allowances
    record: StudyRecord
    early: Mapping[str, str]


@paused_collector()
def read_study(store: StudyReader, name: str) -> StudyReport:
    """Read a study out of the store and compare its variants with its baseline.

    A suite is compared by its mean score, and on each task apart.

    Raises:
        NotFoundError: The store holds no such study, or no variant of it.
    """
    record = store.study(name)
    if all(variant.name != record.baseline for variant in record.variants):
        raise NotFoundError(
            "this study has no variants: its command was killed before it wrote any, or they were lost",
            where=f"study {name!r}",
            remedy="Run `ablate study FILE` again. `ablate check-store` says whether the store is damaged.",
        )
    parts = tasks_of(record)
    if not parts:
        return _read_record(store, record)
    tasks = {task: _read_record(store, part) for task, part in parts.items()}
    reader = SuiteReader(store, record)
    whole = _read_record(reader, reader.study(name), _progress_on(tasks))
    longer = _longer_on(tasks)
    warned = [one for of in tasks.values() for one in of.answer.warnings if one.key == "ended early"]
    early = {name: longer[name] for one in warned for name in one.variants}
    limits = (*ended_early(early), *suite_warnings(tasks))
    known = whole.answer.warning_sentences
    judged = {claim.id: claim for report in (whole, *tasks.values()) for claim in report.answer.claims}
    answer = replace(
        whole.answer,
        warnings=(*whole.answer.warnings, *limits),
        sentences=(
            *known,
            *(warning.full for warning in limits),
            *whole.answer.sentences[len(known) :],
            *suite_sentences(tasks),
        ),
        claims=tuple(judged[claim["id"]] for claim in record.space.get("claims", ())),
    )
    declared = replace(whole.record, space=record.space)  # with the claims on single tasks
    rows = tuple(replace(row, longer=longer.get(row.name, "")) for row in whole.variants)
    return replace(whole, record=declared, variants=rows, answer=answer, tasks=tasks, scales=scales_of(record))


def _longer_on(tasks: Mapping[str, StudyReport]) -> dict[str, str]:
    """Variant of a suite to how long it was trained, where that differs, with the tasks if it is not so on all."""
    found: dict[str, dict[str, list[str]]] = {}
    for task, report in tasks.items():
        for row in report.variants:
            if row.longer:
                found.setdefault(row.name, {}).setdefault(row.longer, []).append(task)
    return {
        name: "; ".join(said if len(on) == len(tasks) else f"{said} on {listed(on)}" for said, on in of.items())
        for name, of in found.items()
    }


def _progress_on(tasks: Mapping[str, StudyReport]) -> Progress:
    """How far all tasks of a suite are together."""
    failures = tuple(
        replace(failure, variant=at_task(failure.variant, task))
        for task, report in tasks.items()
        for failure in report.progress.failures
    )
    return Progress(
        {state: sum(report.progress.states[state] for report in tasks.values()) for state in TrialState}, failures
    )


def _read_record(store: StudyReader, whole: StudyRecord, progress: Progress | None = None) -> StudyReport:
    stored = _read_stored(store, whole)
    question = _question(store, stored)
    changes = changes_of(stored.record)
    baselines = stored.baselines
    rows = tuple(
        _row(variant, baselines[variant.name], stored, changes[variant.name], question)
        for variant in stored.record.variants
    )
    progress = progress or _progress(stored)
    places = read_axis_points(store, stored.whole)
    scaling = scalings_of(places)
    tails = question.allowances.tails
    if scaling is not None and scaling.is_swept:
        rows, tails = tuple(_at_its_value(row, scaling) for row in rows), scaling.tails
    evidence = _evidence(stored, question, tails)
    if why := evidence.nothing_learnt:
        rows = tuple(row if row.verdict is None else replace(row, verdict=withheld(row.verdict, why)) for row in rows)
    rows = tuple(_without_verdicts(row, evidence, places) for row in rows)
    rows = tuple(_row_of_dropped(row, stored.whole, scaling) for row in rows)
    climbs = read_climbs(store, stored.whole, scaling)
    return StudyReport(
        record=stored.record,
        rule=question.rule,
        variants=rows,
        evidence=evidence,
        answer=_answer(store, stored, question, rows, evidence, progress, scaling, climbs, places),
        progress=progress,
        scaling=scaling,
        climbs=climbs,
        other_lengths=tuple(
            OtherLength(variant, stored.all_runs[variant.name].states, _metrics(stored.all_runs[variant.name]))
            for variant in stored.whole.variants
            if variant.name not in stored.runs
        ),
        effects=effects_of(stored.record, stored.runs, question.tuning),
    )


def _without_verdicts(row: VariantRow, evidence: Evidence, places: AxisPoints) -> VariantRow:
    """The row with a course that has verdicts only where the comparison may have one."""
    place = places.of(row.name)
    unlearnt = evidence.nothing_learnt or (place is not None and place.unlearnt)
    if row.course is None or not (row.awaits or unlearnt):
        return row
    return replace(row, course=row.course.without_verdicts())


def _row_of_dropped(row: VariantRow, whole: StudyRecord, scaling: Scalings | None) -> VariantRow:
    """The row of a variant that a ladder has dropped: its verdict is that of the last rung on which it was trained."""
    rungs, (name, _, _) = rungs_of(whole), row.name.partition(f"@{RUNG}=")
    dropped = (
        next((dropped for dropped in scaling.of if dropped.variant == name), None) if scaling is not None else None
    )
    if dropped is None or (last := last_rung(rungs, name)) is None:
        return row
    return replace(
        row, verdict=dropped.points[-1].verdict, longer=f"on rung {last}, after which it was dropped", awaits=""
    )


def _read_stored(store: StudyReader, whole: StudyRecord) -> _Stored:
    record, metric = main_part(whole), whole.objective["metric"]
    runs, fresh = read_runs(store, record, metric), read_confirming(store, record)
    finished = [trial for group in (runs, fresh) for run in group.values() for trial in run.finished.values()]
    return _Stored(
        whole,
        record,
        runs,
        runs if record is whole else read_runs(store, whole, metric),
        fresh,
        read_runs(store, scouts_of(record), metric) if record.scout_trials else {},
        store.evaluations([trial.key for trial in finished]),
    )


def _question(store: StudyReader, stored: _Stored) -> _Question:
    record, runs = stored.record, stored.runs
    matching, tuning = read_matching(record, runs), read_tuning(store, record)
    rule = rule_of(record, matching.axis)
    return _Question(
        rule,
        matching,
        tuning,
        trivial_baselines(runs[record.baseline].rules, rule.metric, rule.direction),
        {name: read_goals(runs[name], stored.evaluated) for name in {*baselines_of(record).values()}},
        {key: line(curve, cast(Axis, matching.axis)) for key, curve in stored.evaluated.items()},
        read_allowances(record, runs, tuning),
        record,
        early_ends(record.variants, stored.finished),
    )


def _evidence(stored: _Stored, question: _Question, tails: Tails | None) -> Evidence:
    return Evidence(
        matching=question.matching,
        tuning=question.tuning,
        trivials=question.trivials,
        standings=tuple(standings_of(stored.runs, question.rule)),
        windows=len(stored.runs[stored.record.baseline].windows.get(question.rule.metric, ())),
        redeclared=redeclarations(stored.whole),
        draw_sd=draw_noise(stored.record, stored.runs),
        tails=tails,
    )


def _progress(stored: _Stored) -> Progress:
    groups = (stored.all_runs, stored.fresh)
    states = [state for group in groups for runs in group.values() for state in runs.states.values()]
    failures = failures_of(stored.all_runs) + failures_of(stored.fresh) + failures_of(stored.scouting)
    return Progress({state: states.count(state) for state in TrialState}, failures)


def _answer(
    store: StudyReader,
    stored: _Stored,
    question: _Question,
    rows: Sequence[VariantRow],
    evidence: Evidence,
    progress: Progress,
    scaling: Scalings | None,
    climbs: Climbs | None,
    places: AxisPoints,
) -> StudyAnswer:
    """The warnings, the sentences and the claims, once the rows are judged."""
    record, rule = stored.record, question.rule
    baseline = next(row for row in rows if row.name == record.baseline)
    verdicts = {row.name: row.verdict for row in rows if row.verdict is not None}
    dropped = {name: Verdict("undecided", "undecided: left out", None) for name in dropped_variants(stored.whole)}
    together = hold_together({**dropped, **verdicts})
    learning, learnt = evidence.learning, not evidence.nothing_learnt
    limits = (
        *(() if learnt else learning),
        *missing_trials(progress.states, evidence.tuning),
        *lost_trials(progress.failures, rows, baseline, record.unit),
        *ended_early(question.early),
        *target_limits(record, rows),
        *(learning if learnt else ()),
        *tuning_edges(evidence.tuning, rows, baseline),
        *timed_apart(stored.whole, stored.scouting),
        *changes_after_results(_changes_after_results(store, stored, question, evidence)),
        *limits_of_table(record),
    )
    assumed = assumption(rows, evidence.tails, evidence.windows, rule.unit)
    among = (
        *(warn_of_unchecked(stored.runs, evidence.standings, rule.metric) if record.judged is None else ()),
        *measured_otherwise(stored.runs, baselines_of(record), rule),
        *selected_variants(rows),
        *validation_draw(evidence.draw_sd, rule.margin, record),
        *([StudyWarning("assumption", "weak", assumed)] if assumed else ()),
        *read_elsewhere(record, decided=any(verdict.is_decided for verdict in verdicts.values())),
    )
    of_verdicts = (
        *answer_sentences(rows, baseline, together, rule),
        *course_sentences(rows, rule, advise=_may_have_budgets(record)),
        *scaling_sentences(scaling, rule.metric),
        *climb_sentences(climbs, rule.metric, decimals_for(rule.margin, ())),
        *trivial_sentences(evidence.standings),
        *confirmed_sentences(rows),
        *(warning.full for warning in among if warning.full and warning.key != "elsewhere"),
        *(best_sentence(rows, rule.metric, rule.direction, rule.margin) if record.traits.finds_best else ()),
        *(warning.full for warning in among if warning.key == "elsewhere"),
    )
    healed = [variant.name for variant in record.variants if is_trained(variant)] if evidence.windows else []
    supports = support(record, progress.states, rows, rule.unit, evidence.tuning, evidence.matching)
    return StudyAnswer(
        warnings=(supports, *limits, *among),
        sentences=(
            *(warning.full for warning in limits),
            *window_sentences(evidence.windows, healed),
            *(of_verdicts if learnt else ()),
        ),
        together=together,
        claims=_claims(store, stored, question.allowances, evidence, places),
    )


def _changes_after_results(
    store: StudyReader, stored: _Stored, question: _Question, evidence: Evidence
) -> tuple[str, ...]:
    return (
        *declared_otherwise(evidence.redeclared),
        *seed_sets_read(stored.record),
        *changed_code(store, stored.whole),
        *seeds_added(question.rule.schedule),
        *seeds_added(seed_schedule(confirming_study(stored.record)), "fresh seeds"),
    )


def _may_have_budgets(record: StudyRecord) -> bool:
    """Whether the space has no budgets and could have some, as far as its record tells (`check_budgets`)."""
    traits, match = record.traits, record.space.get("match", {}).get("equal", "steps")
    may = traits.plans_points and not traits.sets_values
    return may and not record.space.get("budgets") and match in ("steps", "parameters")


def _at_its_value(row: VariantRow, scaling: Scalings) -> VariantRow:
    """A row of a sweep with its comparison at its value."""
    point = scaling.point(row.name)
    return row if point is None else replace(row, difference=point.difference, verdict=point.verdict)


def _row(
    variant: VariantRecord, baseline: VariantRecord, stored: _Stored, change: Change, question: _Question
) -> VariantRow:
    fresh, evaluated = stored.fresh, stored.evaluated
    runs, baseline_runs = stored.runs[variant.name], stored.runs[baseline.name]
    chosen = variant.chosen
    asked = replace(question, allowances=replace(question.allowances, baseline=baseline.name))
    ours, theirs = runs, baseline_runs
    if variant.name in fresh and variant.name != baseline.name:
        ours, theirs, chosen = fresh[variant.name], fresh[baseline.name], False
        apart = confirming_study(question.record)
        rule = replace(question.rule, schedule=seed_schedule(apart))
        asked = replace(question, rule=rule, allowances=read_allowances(apart, fresh, question.tuning))
    difference, verdict = None, None
    if variant.name != baseline.name and not ours.pruned:
        difference, verdict = compare_trials(
            variant.name,
            ours,
            theirs,
            rule=asked.rule,
            allowances=asked.allowances,
            paired=question.record.pairs(variant.name),
        )
        verdict = verdict.of_replacement() if change.otherwise or question.record.judged else verdict
    goals = question.goals[baseline.name]
    steps = to_baseline(runs, goals, "step", evaluated)
    axis, course = question.rule.axis, None
    if variant.name != baseline.name:
        course = course_of(
            ours,
            theirs,
            evaluated,
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
        parameter_change=(
            (variant.parameters - baseline.parameters) / baseline.parameters
            if variant.parameters is not None and baseline.parameters
            else None
        ),
        planned=tuple(runs.states),
        finished=tuple(runs.finished),
        states=runs.states,
        metrics=_metrics(runs) | ({} if runs.pruned else _costs(variant, runs, question.record)),
        diverged=tuple(Divergence(seed, trial.stopped_at, trial.reason) for seed, trial in runs.diverged.items()),
        failed=failures_of({variant.name: runs}),
        difference=difference,
        verdict=None if chosen else verdict,
        chosen=chosen and not runs.pruned,
        confirmed=tuple(ours.states) if ours is not runs else (),
        beside=_mean_beside(ours, theirs, question.rule.metric) if ours is not runs else None,
        steps_to_baseline=steps,
        spent_to_baseline=steps if axis == "steps" else to_baseline(runs, goals, axis, evaluated),
        relative_speed=relative_speed(runs.rates, baseline_runs.rates),
        course=course,
        seconds=math.fsum(trial.seconds for trial in runs.finished.values()),
        longer=longer_in_all(variant, baseline, runs, baseline_runs, axis) or question.early.get(variant.name, ""),
        awaits=awaited_seeds(asked.rule.schedule, ours, theirs) if question.rule.unit != "window" else "",
        unreached=len(ours.unreached),
    )


def _mean_beside(ours: VariantRuns, theirs: VariantRuns, metric: str) -> float | None:
    """The mean objective of a baseline over the seeds that a variant has, too."""
    shared = ours.values(metric).keys() & theirs.values(metric).keys()
    return math.fsum(theirs.values(metric)[seed] for seed in shared) / len(shared) if shared else None


def _claims(
    store: StudyReader, stored: _Stored, allowances: Allowances, evidence: Evidence, places: AxisPoints
) -> tuple[ClaimVerdict, ...]:
    if not stored.whole.space.get("claims"):
        return ()
    failed = {name: len(run.failed) for name, run in stored.all_runs.items() if run.failed}
    tuning = read_tuning(store, stored.whole)
    allowances, unlearnt = replace(allowances, failed=failed), evidence.nothing_learnt
    return judge_claims(stored.whole, stored.all_runs, allowances, unlearnt, tuning, places, evidence.unlearnt)


def _metrics(runs: VariantRuns) -> dict[str, Interval]:
    """The means of final metrics; none where seeds were lost by what they did, as the others are a biased selection."""
    if runs.pruned or runs.diverged:
        return {}
    names = sorted({name for trial in runs.finished.values() for name in trial.metrics})
    if runs.unreached:  # the mean of times of which some are only known to be longer is none
        names.remove(runs.target)
    if runs.windows:
        return {name: _of_windows(runs, name) for name in names}
    return {name: _interval(list(runs.values(name).values())) for name in names}


def _costs(variant: VariantRecord, runs: VariantRuns, record: StudyRecord) -> dict[str, Interval]:
    """The costs among the columns that the space declares."""
    asked = [name for name in record.space.get("columns", ()) if name in COSTS]
    values = {name: values_of(name, variant, runs).values() for name in asked}
    same = {
        name: Interval(next(iter(known)), None, None, len(known))
        for name, known in values.items()
        if len({*known}) == 1
    }
    return {name: mean_interval(known) for name, known in values.items() if known} | same


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

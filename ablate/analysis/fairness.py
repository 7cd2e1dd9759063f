"""Fair comparisons: values tuned for each variant, and how far budgets deviate from the baseline's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.analysis.numbers import listed, plural
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs
from ablate.roles import TrialRole
from ablate.spec.fairness import MatchSpec
from ablate.spec.paths import full_path, value_at
from ablate.spec.suite import at_task
from ablate.store.records import StudyRecord, TrialRecord, TrialState, VariantRecord

COUNTED = ("tokens", "seconds", "flops")
"""Quantities that accumulate during a trial, besides steps."""

NEAR = 0.05
"""The relative deviation of a budget from the baseline's above which there is a warning."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Values that a variant was tried with.

    Attributes:
        values: Spec path to value.
        mean: Mean objective over the seeds that finished; None if none did.
        finished: Seeds that finished.
        lost: Seeds that diverged or failed; a value with fewer of them goes before any mean.
        planned: Seeds in all.
        by_seed: Seed to objective of those that finished.
        metrics: Final metric to seed to its value, of the same.
    """

    values: dict[str, Any]
    mean: float | None
    finished: int
    lost: int
    planned: int
    by_seed: dict[int, float] = field(default_factory=dict)
    metrics: dict[str, dict[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning one variant.

    Attributes:
        values: Spec path to the value that it is compared with, or to the value of each task where tasks differ; None
            before all of its grid has ended.
        edges: Paths whose chosen value is at an edge of the grid, so that a better one may lie outside.
        tried: The values that were tried.
    """

    values: dict[str, Any] | None
    edges: tuple[str, ...]
    tried: tuple[Tried, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a study tuned, or what was tuned before it.

    Attributes:
        grid: Spec path to the values that every variant was tried with; of a path that was tuned before the study, to
            the values of its variants.
        seeds: Seeds of the tuning trials; no comparison uses them.
        of: Variant name to the result of its tuning.
        before: Paths that were tuned before the study.
    """

    grid: dict[str, list[Any]]
    seeds: tuple[int, ...]
    of: dict[str, Tuned]
    before: tuple[str, ...] = ()

    @property
    def edges(self) -> tuple[str, ...]:
        """Names of the variants whose best value lies at an edge of the grid."""
        return tuple(name for name, tuned in self.of.items() if tuned.edges)


@dataclass(frozen=True, slots=True)
class Spent:
    """The training settings of a variant and the budget that its trials used.

    Attributes:
        steps: Of each trial.
        width: Of its model.
        parameters: Trainable.
        tokens: Mean over the finished trials; None before one has finished.
        seconds: The same, of training.
        flops: The same, arithmetic of training.
        relative: The quantity that the study matches, over that of the baseline; None while either is unknown.
    """

    steps: int
    width: int
    parameters: int | None
    tokens: float | None
    seconds: float | None
    flops: float | None
    relative: float | None


@dataclass(frozen=True, slots=True)
class MatchedBudgets:
    """The budget of a study.

    Attributes:
        equal: What is equal: `steps`, `tokens`, `seconds`, `flops` or `parameters`.
        path: The spec path that was solved for it; None for steps.
        of: Variant name to what it spent; empty if the space matches nothing but steps.
    """

    equal: str
    path: str | None
    of: dict[str, Spent]

    @property
    def axis(self) -> str:
        """The axis for comparing unfinished variants: the matched quantity, if a trial spends it step by step."""
        return self.equal if self.equal in COUNTED else "steps"

    @property
    def furthest(self) -> tuple[str, float] | None:
        """The variant with the largest deviation from the baseline's budget, and its share of it; None if unknown."""
        known = [(name, spent.relative) for name, spent in self.of.items() if spent.relative is not None]
        return max(known, key=lambda one: abs(one[1] - 1), default=None)


def scouts_of(record: StudyRecord) -> StudyRecord:
    """A study with the trials and variants that tune or time others instead of those that are compared."""
    names = {planned.variant for planned in record.scout_trials}
    compared = (
        variant for variant in record.variants if variant.name in names
    )  # with seeds that only others start from
    return replace(record, variants=(*record.scout_variants, *compared), planned=record.scout_trials)


def read_tuning(store: StudyReader, record: StudyRecord) -> Tuning | None:
    """What a study tuned, or what was tuned before it; None if its space tunes nothing."""
    tune, before = record.space.get("tune"), record.space.get("tuned") or {}
    if not tune and not before:
        return None
    metric = record.objective["metric"]
    planned = tuple(trial for trial in record.scout_trials if trial.role is TrialRole.TUNING)
    runs = read_runs(store, replace(scouts_of(record), planned=planned), metric)
    tried = [variant for variant in record.scout_variants if runs[variant.name].states]
    ready = {trial.variant for trial in record.planned}
    tried_values = {path: list(values) for path, values in tune["grid"].items()} if tune else {}
    given = {path: list({repr(value): value for value in values.values()}.values()) for path, values in before.items()}
    grid = {**given, **tried_values}
    of = {}
    for row in record.variants:
        mine = [variant for variant in tried if variant.settings == row.settings]
        values = {**_values(row, grid), **_by_task(record.space, row.name)} if row.name in ready else None
        edges = tuple(path for path in tried_values if values and _at_edge(values[path], grid[path]))
        of[row.name] = Tuned(
            values, edges, tuple(_tried(variant, runs[variant.name], tried_values, metric) for variant in mine)
        )
    return Tuning(grid, tuple(sorted({trial.seed for trial in planned})), of, tuple(given))


def read_matching(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> MatchedBudgets:
    """The budget of a study."""
    match = MatchSpec.model_validate(record.space.get("match") or {})
    if match.path is None:
        return MatchedBudgets("steps", None, {})
    baseline = next(variant for variant in record.variants if variant.name == record.baseline)
    ours = _spent(baseline, runs[baseline.name])
    of = {}
    for variant in record.variants:
        spent = _spent(variant, runs[variant.name])
        theirs, base = getattr(spent, match.equal), getattr(ours, match.equal)
        relative = theirs / base if theirs is not None and base else None
        of[variant.name] = replace(spent, relative=relative)
    return MatchedBudgets(match.equal, match.path, of)


def fairness_lines(tuning: Tuning | None, matching: MatchedBudgets, metric: str) -> tuple[str, ...]:
    """Sentences on the fairness of the comparison: what was tuned, and what was matched."""
    lines = []
    if tuning is not None and tuning.before:
        lines.append(
            f"Tuned for each variant before this study: {' and '.join(tuning.before)}, to the values in the space."
        )
    if tuning is not None and len(tuning.before) < len(tuning.grid):
        grids = " and ".join(
            f"{path} over {', '.join(map(str, values))}"
            for path, values in tuning.grid.items()
            if path not in tuning.before
        )
        seeds = ", ".join(map(str, tuning.seeds)) or "none yet"
        lines.append(
            f"Tuned for each variant over the same grid: {grids}, by the mean {metric} on validation over seeds "
            f"({seeds}) that no comparison uses."
        )
        if missing := [name for name, tuned in tuning.of.items() if tuned.values is None]:
            lines.append(f"Still tuning: {', '.join(missing)}.")
        if tuning.edges:
            lines.append(
                f"* The best value lies at the edge of the grid for {', '.join(tuning.edges)}: a better one may lie "
                "outside. Widen the grid before you rely on a difference."
            )
    if matching.path is not None:
        timed = " (timed on this study's machine; another machine gives other values)"
        how, near, furthest = timed if matching.equal == "seconds" else "", matching.furthest, ""
        if all(spent.relative == 1 for spent in matching.of.values()):
            furthest = " All match the baseline exactly."
        elif near and near[1] != 1:
            furthest = f" The furthest from the baseline: {near[0]}, {100 * (near[1] - 1):+.2f} %."
        far = "* " if near and abs(near[1] - 1) > NEAR else ""
        lines.append(
            f"{far}Matched: equal {matching.equal}, by `{matching.path}`{how}: {_solved_range(matching)}.{furthest}"
        )
    return tuple(lines)


def _solved_range(matching: MatchedBudgets) -> str:
    """The solved values, from the least to the greatest."""
    if matching.path == "model.block.mlp.ratio":
        return "hidden widths were solved"
    word = "steps" if matching.path == "training.steps" else "widths"
    numbers = [spent.steps if word == "steps" else spent.width for spent in matching.of.values()]
    return f"{word} from {min(numbers):,} to {max(numbers):,}"


def _spent(variant: VariantRecord, runs: VariantRuns) -> Spent:
    trials = list(runs.finished.values())

    def mean(values: Sequence[float]) -> float | None:
        return math.fsum(values) / len(values) if values else None

    return Spent(
        steps=variant.spec["training"]["steps"],
        width=variant.spec["model"]["width"],
        parameters=variant.parameters,
        tokens=mean([trial.tokens for trial in trials]),
        seconds=mean([trial.seconds for trial in trials]),
        flops=mean([trial.flops for trial in trials]),
        relative=None,
    )


def _tried(variant: VariantRecord, runs: VariantRuns, grid: Mapping[str, object], metric: str) -> Tried:
    values = list(runs.values(metric).values())
    lost = [state for state in runs.states.values() if state in (TrialState.DIVERGED, TrialState.FAILED)]
    mean = math.fsum(values) / len(values) if values else None
    names = {name for trial in runs.finished.values() for name in trial.metrics}
    return Tried(
        _values(variant, grid),
        mean,
        len(values),
        len(lost),
        len(runs.states),
        runs.values(metric),
        {name: runs.values(name) for name in names},
    )


def _values(variant: VariantRecord, grid: Mapping[str, object]) -> dict[str, Any]:
    return {path: value_at(variant.spec, full_path(path)) for path in grid}


def _by_task(space: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The values of paths that were tuned before a suite, by task, where tasks have different ones."""
    found = {}
    for path, values in (space.get("tuned") or {}).items():
        of = {task: values.get(at_task(name, task), values.get(name)) for task in space.get("tasks") or {}}
        if len(set(map(repr, of.values()))) > 1:
            found[path] = of
    return found


def _at_edge(value: Any, grid: Sequence[Any]) -> bool:
    numbers = [value for value in grid if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return len(numbers) == len(grid) and value in (min(numbers), max(numbers))


def longer_in_all(
    variant: VariantRecord, baseline: VariantRecord, runs: VariantRuns, baseline_runs: VariantRuns, axis: str
) -> str:
    """By how much longer a variant was trained in all, as a clause for its verdict.

    Args:
        baseline: That of the study.
        runs: Trials of the variant, with their stages.
        axis: What the study matches: `steps`, `tokens`, `seconds` or `flops`. Steps are compared exactly, the others
            if they differ by more than `NEAR`.
    """
    if not (runs.stages or baseline_runs.stages) or (
        axis != "steps" and not (runs.finished and baseline_runs.finished)
    ):
        return ""
    ours, theirs = _in_all(variant, runs, axis), _in_all(baseline, baseline_runs, axis)
    if axis == "steps":
        steps = plural(round(abs(ours - theirs)), "step")
        return "" if ours == theirs else f"trained {steps} {'more' if ours > theirs else 'less'} than the baseline"
    if not theirs or abs(ours / theirs - 1) <= NEAR:
        return ""
    return f"trained on {ours / theirs:.3g} times the {axis} of the baseline"


def _in_all(variant: VariantRecord, runs: VariantRuns, axis: str) -> float:
    """Steps, tokens, seconds or FLOPs of a trial with its stages: of steps those asked for, else those of one seed."""
    stages = next(iter(runs.stages.values()), ())
    if axis == "steps":
        return float(variant.spec["training"]["steps"]) + sum(stage.steps for stage in stages)
    return math.fsum(getattr(trial, axis) for trial in (next(iter(runs.finished.values())), *stages))


def early_ends(variants: Sequence[VariantRecord], finished: Mapping[str, Mapping[int, TrialRecord]]) -> dict[str, str]:
    """Variants of the user's trainer with results of an earlier step than others, as a trainer that ends early has.

    A result should be of the step of the latest among those that were asked for as many steps or, if none comes near
    to what was asked for, of that.

    Args:
        finished: Variant to seed to its trial.

    Returns:
        Variant to which and when, as a clause: `seed 1 measured at step 40 of 100`.
    """
    own = [variant for variant in variants if "trainer" in variant.spec and finished[variant.name]]
    asked = {variant.name: _asked_steps(variant.spec) for variant in own}
    latest = {
        steps: max(trial.steps for name, of in asked.items() if of == steps for trial in finished[name].values())
        for steps in asked.values()
    }
    found = {}
    for name, steps in asked.items():
        end = steps if latest[steps] < (1 - NEAR) * steps else latest[steps]
        early = {seed: trial.steps for seed, trial in sorted(finished[name].items()) if trial.steps < end}
        if early:
            first, last = min(early.values()), max(early.values())
            when = f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
            which = f"{'seed' if len(early) == 1 else 'seeds'} {listed(map(str, early))}"
            found[name] = f"{which} measured at {when} of {end:,}"
    return found


def _asked_steps(spec: Mapping[str, Any]) -> int:
    """The steps that a variant of the user's trainer was asked for; 0 if that is not known."""
    steps = spec["trainer"].get("steps")
    return int((spec[steps] if isinstance(steps, str) else steps) or 0)

"""What commands print with `--json` of a study, as records: the schema that `ablate schema --output` prints is of them.

Dataclasses stand in a record as they are: `as_data` makes them plain. What other commands print is beside its function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypeVar, cast

from typing_extensions import TypedDict

from ablate.analysis.answer import Answer
from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.effects import StudyEffects, StudyImportances
from ablate.analysis.fairness import Spent, Tuned
from ablate.analysis.findings import FullGrid, TrainingCost
from ablate.analysis.ladder import Climbs
from ablate.analysis.pareto import Front
from ablate.analysis.path import RemovalPath
from ablate.analysis.rows import CoursePoint, StepsToBaseline
from ablate.analysis.runs import Failure
from ablate.analysis.slices import Slice
from ablate.stats import Interval
from ablate.store.records import DriverRecord, Environment, RunningTrial

Record = TypeVar("Record")
Value = str | int | float | bool | None


def as_data(record: Record) -> Record:
    """The fields of a dataclass as plain data for JSON, typed as the record, from which the schema is made.

    A number that is infinite or NaN is null, and a time is text in ISO 8601.
    """
    return cast(Record, _plain(asdict(cast(Any, record))))


def extended(kind: type[Record], record: Any, **more: Any) -> Record:
    """A record of a dataclass that extends that of `record`, with the values of the fields that it adds."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)}, **more)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


class ObjectiveOutput(TypedDict):
    """What is compared, and by how much it matters."""

    metric: str
    direction: str
    margin: float


class TrivialBaselinesOutput(TypedDict):
    """What models that learn nothing reach.

    Attributes:
        best: Name of the best one by the objective.
        metrics: Name to its metrics.
    """

    best: str | None
    metrics: dict[str, dict[str, float]]


class ChangeOutput(TypedDict):
    """What a variant changes in the baseline, in words."""

    removed: list[str]
    otherwise: list[str]


class FailedTrialOutput(TypedDict):
    """A trial that failed."""

    seed: int
    reason: str


class DivergedTrialOutput(TypedDict):
    """A trial whose loss became infinite or NaN."""

    seed: int
    step: int | None
    reason: str


class PairedOutput(TypedDict):
    """A difference to the baseline with its two-sided 95 % interval over `n` pairs."""

    difference: float | None
    low: float | None
    high: float | None
    n: int


class VersusBaselineOutput(PairedOutput):
    """A comparison with the baseline.

    Attributes:
        effect_size: The difference divided by the standard deviation of the paired differences.
        verdict: `needed`, `not needed`, `undecided`.
        sentence: The verdict with the bound that it rests on.
        further_seeds: How many more seeds may decide it.
        chance_of_decision: The chance that they do.
        holds_together: Whether it also holds jointly with all others (Holm's procedure).
        sign_flip_at_margin: The p-value of the exact sign-flip test at the margin (`p`), and the smallest that so
            many pairs can give (`floor`).
    """

    effect_size: float | None
    verdict: str
    sentence: str | None
    further_seeds: int | None
    chance_of_decision: float | None
    holds_together: bool
    sign_flip_at_margin: dict[str, float] | None


class ReachedOutput(TypedDict):
    """Steps until the final loss of the baseline was reached: the median, and by how many of the trials."""

    median: float | None
    reached: int
    of: int


class CourseOutput(TypedDict):
    """A comparison along training.

    Attributes:
        word: Whether it still moves at the end.
        movement: By how much it moved over the last third.
        provisional: Whether it moves so much that the verdict may change with longer training.
        comparable: Whether earlier points show where shorter training runs would end.
        own_schedule: Whether the variant's learning rate follows another schedule than the baseline's.
    """

    word: str
    movement: float | None
    movement_low: float | None
    movement_high: float | None
    provisional: bool
    comparable: bool | None
    own_schedule: bool
    points: list[CoursePoint]


class VariantOutput(TypedDict):
    """A variant of a study.

    Attributes:
        settings: Switch to setting.
        varied: Spec path to value.
        role: `comparison`, or `confirmation` for a selected variant.
        parameter_change: As a share of the baseline's parameters.
        seeds: Those that finished.
        states: Seed to state.
        versus_baseline: None for the baseline, and without finished pairs.
        chosen: Whether it was selected by results of this study.
        confirmed: Seeds that confirmed it.
        table: The columns of the ablation table.
    """

    name: str
    hash: str
    settings: dict[str, Any]
    varied: dict[str, Any]
    role: str
    change: ChangeOutput
    parameters: int | None
    parameter_change: float | None
    seeds: list[int]
    states: dict[str, str]
    failed: list[FailedTrialOutput]
    diverged: list[DivergedTrialOutput]
    metrics: dict[str, Interval]
    versus_baseline: VersusBaselineOutput | None
    steps_to_baseline: ReachedOutput
    relative_speed: Interval | None
    course: CourseOutput | None
    chosen: bool
    confirmed: list[int]
    spent_to_baseline: StepsToBaseline
    budget: Spent | None
    tuned: Tuned | None
    table: dict[str, Value]


class OtherBudgetOutput(TypedDict):
    """A variant at another budget than the main one, to which all verdicts apply: its states and metrics."""

    name: str
    hash: str
    settings: dict[str, Any]
    varied: dict[str, Any]
    role: str
    states: dict[str, str]
    metrics: dict[str, Interval]


class ScalePointOutput(PairedOutput):
    """A comparison at one place of the axis."""

    at: float
    verdict: str


class VariantScaleOutput(TypedDict):
    """A variant along the axis.

    Attributes:
        for_each_doubling: How the difference changes with each doubling.
        no_slope: Why there is none.
        steps: Changes between neighbouring places.
    """

    name: str
    outcome: str
    for_each_doubling: PairedOutput | None
    no_slope: str
    steps: list[PairedOutput]
    points: list[ScalePointOutput]


class ScaleOutput(TypedDict):
    """How differences change along an axis: a budget, compute, or a swept path."""

    axis: str
    places: list[float]
    variants: list[VariantScaleOutput]


class DeclaredChangeOutput(TypedDict):
    """A value of the space that was changed."""

    path: str
    before: Any
    after: Any


class RedeclaredOutput(TypedDict):
    """Changes of a study that were made when results were visible."""

    until: str
    finished: int
    changes: list[DeclaredChangeOutput]
    dropped: dict[str, int]


class LimitOutput(TypedDict):
    """What limits an answer."""

    level: Literal["weak", "void"]
    text: str


class JudgedOutput(TypedDict):
    """How a table of runs that were trained elsewhere was read."""

    unit: str
    paired: list[str]
    evidence: str
    limits: list[LimitOutput]
    notes: list[str]
    censored: dict[str, int]


@dataclass(frozen=True, slots=True)
class LongAnswer(Answer):
    """The answer, and the sentences of its long form."""

    sentences: tuple[str, ...]


class MatchOutput(TypedDict):
    """What is equal between the variants, and the spec path that was solved for it."""

    equal: str
    path: str | None
    axis: str


class TuneOutput(TypedDict):
    """What was tuned, with which values and seeds, and what was tuned before the study."""

    grid: dict[str, list[Any]]
    seeds: list[int]
    before: list[str]


class StudyOutput(TypedDict):
    """A study with its answer; what `ablate show STUDY --json` prints.

    Attributes:
        progress: Planned trials, and how many are in each state.
        variants: The baseline first.
        ladder: The laws of a ladder.
        validation_draw: Standard deviation that the draw of validation windows adds.
        judged: How a table was read; null for a study that was trained here.
        caveats: What limits the claims.
    """

    study: str
    question: str
    objective: ObjectiveOutput
    baseline: str
    trivial_baselines: TrivialBaselinesOutput
    progress: dict[str, int]
    variants: list[VariantOutput]
    other_budgets: list[OtherBudgetOutput]
    failures: list[Failure]
    claims: list[ClaimVerdict]
    scaling: ScaleOutput | None
    ladder: Climbs | None
    redeclared: list[RedeclaredOutput]
    validation_draw: float | None
    judged: JudgedOutput | None
    answer: LongAnswer
    assumption: str | None
    caveats: list[str]
    match: MatchOutput
    tune: TuneOutput | None


class ReportCostOutput(TypedDict):
    """What the training of a study took.

    Attributes:
        trials: Those that ended; the scouting is apart.
        seconds: Of training, evaluation left out.
        variants: Variant to its own cost.
        scouting: Of trials that only tuned or timed others.
        full_grid: What training every combination of the switches would have taken.
    """

    trials: int
    seconds: float
    tokens: int | None
    flops: float | None
    variants: dict[str, TrainingCost]
    scouting: TrainingCost
    full_grid: FullGrid | None


class ReportOutput(StudyOutput):
    """The report of a study; what `ablate report STUDY --format json` writes.

    Attributes:
        effects: Main effects and interactions of a factorial design.
        importances: How much each switch and axis explains.
        path: The removals of `simplify`.
        front: The objective against cost.
        slices: The objective along each numeric axis.
        environments: Where the trials ran.
        data: Fingerprints of the data that the trials saw.
        space: The space as it is stored.
        text: The text of its file.
    """

    effects: StudyEffects | None
    importances: StudyImportances | None
    path: RemovalPath | None
    front: Front | None
    slices: list[Slice]
    cost: ReportCostOutput
    environments: list[Environment]
    data: list[str]
    space: dict[str, Any]
    text: str


class JudgedTableOutput(TypedDict):
    """The questions on a table with their one answer; what `ablate judge TABLE --json` prints."""

    questions: dict[str, StudyOutput]
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenStudy(DriverRecord):
    """A study that runs, or that was `interrupted` at so many trials, as its driver is not `alive`."""

    interrupted: int
    left: int
    trials_per_hour: float | None
    flops_per_second: float | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInFlight(RunningTrial):
    """A trial that runs; `utilisation` is that of its device's peak, where the device is known."""

    utilisation: float | None

"""Frozen records that the store writes and returns. Plain data without SQL or torch.

A trial is first planned in a study (`PlannedTrial`), then `running`, then `finished`, `diverged`, `pruned` or `failed`.
The types of fields state bounds, by which `ablate.store.rows` validates what a store holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple

from annotated_types import Ge, Le, MaxLen, Predicate
from typing_extensions import TypedDict  # pydantic reads that of `typing` from Python 3.12 on

from ablate.roles import TrialRole


class _Strict:
    """Says to pydantic that a value must have the type itself: the text `1.5` is not a number."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(source), "strict": True}


LARGEST: Final = 1e100
"""Bound of metrics and losses, beyond which they are written as this: sums of their squares are finite."""


def _is_metric(value: float) -> bool:
    return not math.isfinite(value) or abs(value) <= LARGEST


Flag = Annotated[bool, _Strict()]
Text = Annotated[str, _Strict(), MaxLen(16 << 20)]
Name = Annotated[str, _Strict(), MaxLen(10_000)]
Metric = Annotated[float, _Strict(), Predicate(_is_metric)]
Amount = Annotated[float, _Strict(), Ge(0), Le(1e60)]
"""Seconds, floating-point operations, rates."""
Count = Annotated[int, _Strict(), Ge(0), Le(2**63 - 1)]
Steps = Annotated[int, _Strict(), Ge(0), Le(2**53)]
Seed = Annotated[int, _Strict(), Ge(-(2**63)), Le(2**63 - 1)]
Pid = Annotated[int, _Strict(), Ge(1), Le(2**31 - 1)]
Margin = Annotated[float, _Strict(), Ge(1e-30), Le(1e30)]
Time = Annotated[datetime, _Strict(), Ge(datetime(1970, 1, 2, tzinfo=UTC)), Le(datetime(9000, 1, 1, tzinfo=UTC))]


class TrialState(StrEnum):
    """The state of a trial.

    A `waiting` trial is planned by a study but has no row in the table of trials, or a dead driver left it as running.
    A `pruned` trial was stopped early by its design.
    """

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    DIVERGED = "diverged"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def is_open(self) -> bool:
        """Whether the trial has not come to an end yet."""
        return self in (TrialState.WAITING, TrialState.RUNNING)


SETTLED = (TrialState.FINISHED, TrialState.DIVERGED)
"""The states in which a trial is not trained again."""
ENDED = (*SETTLED, TrialState.PRUNED)
"""The states of trials that have ended as planned."""


_PARTS_OF_A_SPACE: Final = {
    "task": dict, "model": dict, "training": dict, "switches": dict, "variants": dict, "design": dict,
    "objective": dict, "claims": list,
}  # fmt: skip


def _is_spec(plain: dict[str, Any]) -> bool:
    return all(isinstance(plain.get(part, kind()), kind) for part, kind in _PARTS_OF_A_SPACE.items())


Spec = Annotated[dict[str, Any], Predicate(_is_spec)]
"""A space or the spec of a variant as plain JSON. Whether its parts are valid is left to `ablate.spec`."""


@dataclass(frozen=True, slots=True)
class VariantRecord:
    """A variant of a study: the full spec that results from settings of the switches.

    Attributes:
        name: Unique in its study: `baseline`, `switch=setting`, or the name given in the space.
        hash: Content hash of the full spec (hex).
        settings: Switch name to setting name.
        spec: The full spec as plain JSON: keys `model`, `task`, `training`.
        parameters: Trainable parameters of the model; None if ablate has not built it.
        activation_bytes: Bytes that one sequence keeps for the backward pass; None if an older version wrote the
            variant.
        chosen: Whether results led the design to it, or to further trials of it, so that these cannot judge it.
    """

    name: Name
    hash: Name
    settings: dict[Name, Name]
    spec: Spec
    parameters: Count | None
    activation_bytes: Count | None = None
    chosen: Flag = False


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial that a study has planned: one variant, one seed. `key` identifies it in all studies of the store.

    Attributes:
        key: Content hash (hex).
        variant: Name of the variant in the study.
        seed: Seed of its initial values and its batches.
        role: What the study trains it for.
        code: Identity of the code with which it was planned. If that of the trial is another, the user accepted it.
    """

    key: Name
    variant: Name
    seed: Seed
    role: TrialRole = TrialRole.COMPARISON
    code: Name = ""


@dataclass(frozen=True, slots=True)
class DesignTraits:
    """What the design of a study declares about its kind, so that reports need not know the kind.

    Attributes:
        chooses: Whether results decide which points it trains.
        adds_seeds: Whether its seeds may be a schedule.
        plans_points: Whether it names all its points before any result.
        sets_values: Whether its points set values of spec paths besides those of switches.
        finds_best: Whether it looks for the point with the best objective.
    """

    chooses: Flag = False
    adds_seeds: Flag = True
    plans_points: Flag = True
    sets_values: Flag = False
    finds_best: Flag = False


class DeclaredObjective(TypedDict):
    """What a study compares; see `ObjectiveSpec` in `ablate.spec`. The margin is in units of the metric."""

    metric: Name
    direction: Literal["minimize", "maximize"]
    margin: Margin


@dataclass(frozen=True, slots=True)
class StudyDraft:
    """The data that a driver writes when it starts or resumes a study.

    Attributes:
        space: The whole space as plain JSON (canonical), from which the study can be run again.
        text: The space file as the user wrote it (empty if it came from Python).
        objective: What it compares.
        baseline: Name of the variant with which all others are compared.
        trivial: Metrics of trivial baselines on the data of the baseline, by name; all are finite.
        traits: What its design declares.
    """

    name: str
    question: str
    source: str
    space: dict[str, Any]
    text: str
    objective: DeclaredObjective
    baseline: str
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    traits: DesignTraits = DesignTraits()


@dataclass(frozen=True, slots=True)
class Declaration:
    """A former declaration of a study, which has been changed.

    Attributes:
        objective: As in `StudyDraft`.
        claims: Claims of the space.
        until: When it was changed.
        finished: Number of trials that had finished by then.
        seeds: Of its design, as its space has them; None if an older version wrote it.
        space: Its space; empty if an older version wrote it.
        variants: Each variant that the design had named before results, to how many of its compared trials had
            finished.
        pairs: Seeds at which the baseline and a variant had finished; None if an older version wrote it.
        confirm: Fresh seeds that were planned to confirm what results chose.
        confirmed: Those of them at which the baseline and a variant had finished.
        other_code: Finished trials that were trained again because the code of their kinds had changed.
        other_data: Those trained again because their data had.
    """

    objective: DeclaredObjective
    claims: list[Any]
    until: datetime
    finished: Count
    seeds: Any = None
    space: Spec = field(default_factory=dict)
    variants: dict[Name, Count] = field(default_factory=dict)
    pairs: Count | None = None
    confirm: Count = 0
    confirmed: Count = 0
    other_code: Count = 0
    other_data: Count = 0

    @property
    def seeds_seen(self) -> Any:
        """Its seeds if they showed differences with their spread, so that they count as a look; else None."""
        return self.seeds if self.pairs is None or self.pairs > 1 else None


@dataclass(frozen=True, slots=True)
class SharedTrials:
    """An earlier study of the same store that compared trials of a study with its baseline, seed by seed.

    Attributes:
        study: Its name.
        variants: The compared variants, by their names in the later study.
    """

    study: str
    variants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JudgedRuns:
    """How a table of runs that were trained elsewhere was read. A study that has this was judged, not trained here.

    Attributes:
        unit: What is repeated, as a word: `seed`, `run`, `task` ...
        paired: The variants whose runs are paired with those of the baseline by their units; the others are compared
            by their means.
        evidence: How many units there are and how they are paired, as a clause.
        limits: What limits the answer, as pairs of a level (`weak`, `void`) and a clause.
        notes: What was put together or left out in reading, as sentences.
        censored: Variant to how many of its runs ended before they reached a target: their true values are worse.
        named: Whether the table names its units, so that runs could be paired by them.
        units: Seed number of a run to its unit, as the table has it.
    """

    unit: str
    paired: frozenset[str]
    evidence: str
    limits: tuple[tuple[Literal["weak", "void"], str], ...] = ()
    notes: tuple[str, ...] = ()
    censored: Mapping[str, int] = field(default_factory=dict)
    named: bool = True
    units: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study with its variants (in the order of the design) and its planned trials.

    Attributes:
        variants: What is compared.
        planned: Its trials.
        declared_before: Former declarations that were changed after trials had finished, oldest first.
        scout_variants: What is trained only to tune or time others.
        scout_trials: The trials of those.
        confirm_trials: Those that train again, with fresh seeds, what a design chose by the others.
        traits: What its design declares.
        shared: Earlier studies that compared the same trials.
        studies: Studies of its store with results, this one among them.
        lost: How many planned trials are left out because their rows, or those of their variants, cannot be read.
        judged: How its runs were read, if they were trained elsewhere; None if ablate trained them.
    """

    id: int
    name: Name
    question: Text
    source: Text
    space: Spec
    text: Text
    objective: DeclaredObjective
    baseline: Name
    created_at: Time
    updated_at: Time
    variants: tuple[VariantRecord, ...]
    planned: tuple[PlannedTrial, ...]
    trivial: dict[Name, dict[Name, Metric]] = field(default_factory=dict)
    scout_variants: tuple[VariantRecord, ...] = ()
    scout_trials: tuple[PlannedTrial, ...] = ()
    declared_before: tuple[Declaration, ...] = ()
    confirm_trials: tuple[PlannedTrial, ...] = ()
    traits: DesignTraits = DesignTraits()
    shared: tuple[SharedTrials, ...] = ()
    studies: int = 1
    lost: int = 0
    judged: JudgedRuns | None = None

    @property
    def knows_models(self) -> bool:
        """Whether ablate built the models, and knows their cost: neither judged runs, nor a trainer of the user's."""
        return self.judged is None and "trainer" not in self.space

    @property
    def unit(self) -> str:
        """What is repeated: seeds, where ablate trained the runs."""
        return "seed" if self.judged is None else self.judged.unit

    def pairs(self, variant: str) -> bool:
        """Whether the runs of a variant are paired with those of the baseline."""
        return self.judged is None or variant in self.judged.paired


@dataclass(frozen=True, slots=True)
class StudySummary:
    """One line of `ablate list`; a study that was judged was not trained here."""

    name: Name
    question: Text
    variants: int
    planned: int
    finished: int
    diverged: int
    pruned: int
    failed: int
    running: int
    updated_at: Time
    judged: bool = False


class CurvePoint(NamedTuple):
    """One point of a learning curve. A tuple, because a study may have hundreds of thousands.

    Attributes:
        step: Number of optimizer steps done.
        seconds: Seconds of training so far, without evaluation.
        tokens: Number of training tokens so far.
        flops: Arithmetic of training so far (forward and backward), from the cost of the spec.
        train_loss: Mean training loss since the previous point; None at step 0.
        val_loss: Validation loss at this step; None if it was not evaluated here.
    """

    step: Steps
    seconds: Amount
    tokens: Count
    flops: Amount
    train_loss: Metric | None
    val_loss: Metric | None


TRANSFER: Final = "transfer"
WINDOWS: Final = "windows"
"""Names of recordings of a trial that starts from trained weights."""
COMPILATION: Final = "compilation"
"""Name of the recording of a trial with compiled blocks: `seconds` of compilation so far."""
USAGE: Final = "usage"
"""Name of the recording of what the process that trains a trial used since the last such recording."""


class RecordedValues(TypedDict, total=False):
    """What may be recorded at a step. Parts of a model are named `block 1 mixer`; None stands for what is not finite.

    Attributes:
        weights: 2-norm of each part's weights.
        gradients: 2-norm of each part's gradients.
        spread: Standard deviation of each mixer's map.
        map: Rows of each mixer's map.
        insides: The metrics of `training.insides` at this step, by name.
        values: Of a member of a population: spec paths to the values with which it was trained up to this step.
        transfer: Of a trial that starts from trained weights: `source`, and the names of tensors that are `copied`,
            `new` and `unused`.
        windows: At the end of such a trial: each validation metric of each window by itself.
        compilation: Of a trial with compiled blocks: its `seconds`, which are not training.
        usage: At evaluations that are ten seconds apart or more: `cores`, `memory`, on a GPU `gpu_memory` and `gpu` of
            the process, and so the same for all trials of a pack.
    """

    weights: dict[str, Metric | None]
    gradients: dict[str, Metric | None]
    spread: dict[str, Metric | None]
    map: dict[str, list[list[Metric | None]]]
    insides: dict[str, Metric | None]
    values: dict[str, Any]
    transfer: dict[str, Any]
    windows: dict[str, list[Metric | None]]
    compilation: dict[str, Amount]
    usage: dict[str, Amount | None]


@dataclass(frozen=True, slots=True)
class Recording:
    """Quantities recorded inside the model of a trial at a step; see `ablate.training.block_recordings`.

    Attributes:
        step: Number of optimizer steps done.
        values: What was recorded.
    """

    step: Steps
    values: RecordedValues


@dataclass(frozen=True, slots=True)
class InferenceCost:
    """A cost of reading or writing text with a decoder, measured in turns with the baseline.

    Attributes:
        quantity: One of `ablate.metrics.INFERENCE`.
        values: Of the variant in each round; one alone if it is counted.
        baseline_values: Those of the baseline in the same round.
    """

    quantity: Name
    values: tuple[Amount, ...]
    baseline_values: tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class SpeedTiming:
    """How fast a variant trains beside a baseline: rounds in which a few steps of each were run in turns.

    Attributes:
        baseline: Identity of the baseline (`ablate.spec.code.timed_identity`).
        rates: Training tokens a second of the variant in each round.
        baseline_rates: Those of the baseline in the same round.
        device: Where they ran, as `Environment.device` has it.
        inference: What reading and writing text costs; empty if that was not measured.
    """

    baseline: Name
    rates: tuple[Amount, ...]
    baseline_rates: tuple[Amount, ...]
    device: Name
    inference: tuple[InferenceCost, ...] = ()


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment in which trials ran. Equal environments share one row.

    Attributes:
        versions: Package name to version, `python` among them.
        device: For example `cpu: AMD EPYC, 2 cores` or `cuda: NVIDIA H200`.
        host: Name of the machine.
        git_commit: Commit of the working directory's repository, None outside one.
        git_clean: Whether that repository had no uncommitted change, None outside one.
        command: The command line that ran the study.
    """

    versions: dict[Name, Name]
    device: Name
    host: Name
    git_commit: Name | None
    git_clean: Flag | None
    command: Text


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker process.

    Attributes:
        host: Name of its host.
        device: As in `Environment`.
        pid: Its process id.
    """

    host: Name
    device: Name
    pid: Pid


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The data that a driver writes when a trial has ended.

    Attributes:
        metrics: Final metrics by name (`val_loss` ...); empty unless finished.
        steps: Number of optimizer steps done.
        stopped_at: For a diverged trial, the step whose loss was not finite; for a pruned one, the step at which it
            ended.
        reason: For a diverged, pruned or failed trial, one sentence (followed by the traceback of a failed trial). For
            a finished trial, why it left the pack in which it was started; otherwise empty.
        data_fingerprint: Fingerprint of the prepared data.
        curve: Its learning curve.
        recordings: Its recordings, if any.
        parts: Final validation metrics over parts of the validation data, by name; empty if it was not split.
        code: Identity of the code that trained it; empty for kinds of ablate alone.
    """

    key: str
    variant_hash: str
    seed: int
    state: TrialState
    metrics: dict[str, float]
    steps: int
    seconds: float
    tokens: int
    flops: float
    stopped_at: int | None
    reason: str
    data_fingerprint: str
    started_at: datetime
    finished_at: datetime
    curve: tuple[CurvePoint, ...] = field(default=())
    recordings: tuple[Recording, ...] = ()
    parts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    code: str = ""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial in the store. Its curve is read separately.

    Attributes:
        attempts: How often the driver that wrote it has started it.
        worker: Where it is or was trained; None before it has a worker, or if that was not recorded.
        code: Identity of the code that trained it; empty for kinds of ablate alone, or if it was not recorded.
        parts: As in `TrialOutcome`.
        unreadable: What of its row cannot be read; then it counts as failed, and nothing but its key is known. Empty
            for a trial that can be read.
    """

    key: Name
    variant_hash: Name
    seed: Seed
    state: TrialState
    metrics: dict[Name, Metric]
    steps: Steps
    seconds: Amount
    tokens: Count
    flops: Amount
    stopped_at: Steps | None
    reason: Text
    data_fingerprint: Name
    started_at: Time | None
    finished_at: Time | None
    environment: Environment | None
    attempts: Count = 1
    worker: WorkerRecord | None = None
    code: Name = ""
    parts: dict[Name, tuple[Metric, ...]] = field(default_factory=dict)
    unreadable: str = ""


class SettledTrial(NamedTuple):
    """What identifies a settled trial, and the code that trained it. A tuple, because there may be 100,000."""

    key: Name
    variant_hash: Name
    seed: Seed
    data_fingerprint: Name
    code: Name


@dataclass(frozen=True, slots=True)
class Mark:
    """User annotations of a study or trial.

    Attributes:
        starred: Whether it has a star.
        tags: Tags in alphabetical order.
        note: Free text.
    """

    starred: Flag = False
    tags: tuple[Name, ...] = ()
    note: Text = ""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The driver that runs a study: a row of `leases`."""

    study: Name
    token: Name
    host: Name
    pid: Pid
    process_started: Amount
    acquired_at: Time
    heartbeat: Time
    processes: Name

    def told(self) -> str:
        """Who it is, in a sentence."""
        return f"process {self.pid} on {self.host} since {self.acquired_at:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class FailedTrial:
    """A failed trial: its variant, its seed, and the full reason."""

    variant: str
    seed: int
    reason: str


@dataclass(frozen=True, slots=True)
class DriverRecord:
    """The driver of a study, and the progress of that study.

    Attributes:
        study: Name of the study.
        host: Host of the driver.
        pid: Process id of the driver.
        since: When it acquired the lease.
        heartbeat: When it last renewed the lease.
        alive: Whether the driver is assumed to be alive.
        planned: Number of trials in the study.
        settled: Number of these that will not be trained again.
        failed: Number of these that failed.
        running: Number of these that are running, under any driver.
        retries: Number of restarts of trials whose worker died.
        ended: Number of trials that ended since `begin`.
        flops: FLOPs of these trials.
        begin: Start of the window in which throughput is measured.
        failures: The latest failed trials, at most five.
    """

    study: str
    host: str
    pid: int
    since: datetime
    heartbeat: datetime
    alive: bool
    planned: int
    settled: int
    failed: int
    running: int
    retries: int
    ended: int
    flops: float
    begin: datetime
    failures: tuple[FailedTrial, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A running trial.

    Attributes:
        key: Key of the trial.
        study: Study whose driver runs it; empty if that driver is gone.
        variant: Name of the variant in that study.
        seed: Seed of the trial.
        step: Step of the last point of its curve; None without points.
        steps: Total number of steps.
        val_loss: Validation loss at the last point.
        attempts: How often it was started.
        started_at: When it was started.
        worker: Where it is trained; None while it waits for a worker.
        seconds: Of training up to the last point.
        flops: FLOPs up to the last point.
        precision: As `training.precision`.
    """

    key: str
    study: str
    variant: str
    seed: int
    step: int | None
    steps: int
    val_loss: float | None
    attempts: int
    started_at: datetime | None
    worker: WorkerRecord | None
    seconds: float = 0.0
    flops: float = 0.0
    precision: str = "fp32"


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of a store at the time `at` of the database's clock."""

    at: datetime
    drivers: tuple[DriverRecord, ...]
    running: tuple[RunningTrial, ...]

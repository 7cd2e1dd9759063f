"""Frozen records that the store writes and returns. Plain data without SQL or torch.

A trial is first planned in a study (`PlannedTrial`), then `running`, then `finished`, `diverged`, `pruned` or `failed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, TypedDict

from ablate.roles import TrialRole


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


SETTLED = (TrialState.FINISHED, TrialState.DIVERGED)
"""The states in which a trial is not trained again."""
ENDED = (*SETTLED, TrialState.PRUNED)
"""The states of trials that have ended as planned."""


@dataclass(frozen=True, slots=True)
class VariantRecord:
    """A variant of a study: the full spec that results from settings of the switches.

    Attributes:
        name: Unique in its study: `baseline`, `switch=setting`, or the name given in the space.
        hash: Content hash of the full spec (hex).
        settings: Switch name to setting name.
        spec: The full spec as plain JSON: keys `model`, `task`, `training`.
        parameters: Trainable parameters of the model.
        activation_bytes: Bytes that one sequence keeps for the backward pass; None if an older version wrote the
            variant.
        chosen: Whether results led the design to it, or to further trials of it, so that these cannot judge it.
    """

    name: str
    hash: str
    settings: dict[str, str]
    spec: dict[str, Any]
    parameters: int
    activation_bytes: int | None = None
    chosen: bool = False


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

    key: str
    variant: str
    seed: int
    role: TrialRole = TrialRole.COMPARISON
    code: str = ""


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

    chooses: bool = False
    adds_seeds: bool = True
    plans_points: bool = True
    sets_values: bool = False
    finds_best: bool = False


@dataclass(frozen=True, slots=True)
class StudyDraft:
    """The data that a driver writes when it starts or resumes a study.

    Attributes:
        space: The whole space as plain JSON (canonical), from which the study can be run again.
        text: The space file as the user wrote it (empty if it came from Python).
        objective: Keys `metric`, `direction` (`minimize` or `maximize`), `margin` (in units of the metric).
        baseline: Name of the variant with which all others are compared.
        trivial: Metrics of trivial baselines on the data of the baseline, by name; all are finite.
        traits: What its design declares.
    """

    name: str
    question: str
    source: str
    space: dict[str, Any]
    text: str
    objective: dict[str, Any]
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
    """

    objective: dict[str, Any]
    claims: list[Any]
    until: datetime
    finished: int
    seeds: Any = None
    space: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, int] = field(default_factory=dict)
    pairs: int | None = None
    confirm: int = 0
    confirmed: int = 0

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
    """

    unit: str
    paired: frozenset[str]
    evidence: str
    limits: tuple[tuple[Literal["weak", "void"], str], ...] = ()
    notes: tuple[str, ...] = ()
    censored: Mapping[str, int] = field(default_factory=dict)
    named: bool = True


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
        judged: How its runs were read, if they were trained elsewhere; None if ablate trained them.
    """

    id: int
    name: str
    question: str
    source: str
    space: dict[str, Any]
    text: str
    objective: dict[str, Any]
    baseline: str
    created_at: datetime
    updated_at: datetime
    variants: tuple[VariantRecord, ...]
    planned: tuple[PlannedTrial, ...]
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)
    scout_variants: tuple[VariantRecord, ...] = ()
    scout_trials: tuple[PlannedTrial, ...] = ()
    declared_before: tuple[Declaration, ...] = ()
    confirm_trials: tuple[PlannedTrial, ...] = ()
    traits: DesignTraits = DesignTraits()
    shared: tuple[SharedTrials, ...] = ()
    studies: int = 1
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
    """One line of `ablate list`."""

    name: str
    question: str
    variants: int
    planned: int
    finished: int
    diverged: int
    pruned: int
    failed: int
    running: int
    updated_at: datetime


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

    step: int
    seconds: float
    tokens: int
    flops: float
    train_loss: float | None
    val_loss: float | None


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
        values: Of a member of a population: spec paths to the values with which it was trained up to this step.
        transfer: Of a trial that starts from trained weights: `source`, and the names of tensors that are `copied`,
            `new` and `unused`.
        windows: At the end of such a trial: each validation metric of each window by itself.
        compilation: Of a trial with compiled blocks: its `seconds`, which are not training.
        usage: At evaluations that are ten seconds apart or more: `cores`, `memory`, on a GPU `gpu_memory` and `gpu` of
            the process, and so the same for all trials of a pack.
    """

    weights: dict[str, float | None]
    gradients: dict[str, float | None]
    spread: dict[str, float | None]
    map: dict[str, list[list[float | None]]]
    values: dict[str, Any]
    transfer: dict[str, Any]
    windows: dict[str, list[float]]
    compilation: dict[str, float]
    usage: dict[str, float]


@dataclass(frozen=True, slots=True)
class Recording:
    """Quantities recorded inside the model of a trial at a step; see `ablate.training.inside`.

    Attributes:
        step: Number of optimizer steps done.
        values: What was recorded.
    """

    step: int
    values: RecordedValues


@dataclass(frozen=True, slots=True)
class SpeedTiming:
    """How fast a variant trains beside a baseline: rounds in which a few steps of each were run in turns.

    Attributes:
        baseline: Content hash of the baseline's spec.
        rates: Training tokens a second of the variant in each round.
        baseline_rates: Those of the baseline in the same round.
        device: Where they ran, as `Environment.device` has it.
    """

    baseline: str
    rates: tuple[float, ...]
    baseline_rates: tuple[float, ...]
    device: str


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

    versions: dict[str, str]
    device: str
    host: str
    git_commit: str | None
    git_clean: bool | None
    command: str


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker process.

    Attributes:
        host: Name of its host.
        device: As in `Environment`.
        pid: Its process id.
    """

    host: str
    device: str
    pid: int


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
    started_at: datetime | None
    finished_at: datetime | None
    environment: Environment | None
    attempts: int = 1
    worker: WorkerRecord | None = None
    code: str = ""
    parts: dict[str, tuple[float, ...]] = field(default_factory=dict)


class SettledTrial(NamedTuple):
    """What identifies a settled trial, and the code that trained it. A tuple, because there may be 100,000."""

    key: str
    variant_hash: str
    seed: int
    data_fingerprint: str
    code: str


@dataclass(frozen=True, slots=True)
class Mark:
    """User annotations of a study or trial.

    Attributes:
        starred: Whether it has a star.
        tags: Tags in alphabetical order.
        note: Free text.
    """

    starred: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""

"""Frozen records: what goes into the store and what comes out. Plain data, no SQL, no torch.

A trial's life: planned in a study (`PlannedTrial`), `running`, then `finished`, `diverged`, `pruned` or `failed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

FIRST_SCOUT_SEED, FIRST_CONFIRMING_SEED = 1000, 3000
"""Trials of seeds from the one on, and below the other, only say how others shall be trained; those from the other on
confirm what was chosen. As in `ablate.spec.seeds`."""


class TrialState(StrEnum):
    """Where a trial stands.

    `waiting` trials are planned by a study but have no row of their own yet; a `pruned` one was ended early, because
    its design saw that it would not be among the best.
    """

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    DIVERGED = "diverged"
    PRUNED = "pruned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class VariantRecord:
    """One variant of a study: the full spec that some settings of the switches give.

    Attributes:
        name: Unique in its study: `baseline`, `switch=setting`, or the name given in the space.
        hash: Content hash of the full spec (hex).
        settings: Switch name to setting name.
        spec: The full spec as plain JSON: keys `model`, `task`, `training`.
        parameters: Trainable parameters of the model.
        activation_bytes: What one sequence keeps for the backward pass; None if an older version wrote the variant.
    """

    name: str
    hash: str
    settings: dict[str, str]
    spec: dict[str, Any]
    parameters: int
    activation_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """A trial that a study wants: one variant, one seed. `key` identifies it in every study of the store.

    Attributes:
        key: Content hash (hex).
        variant: Name of the variant in the study.
        seed: Seed of its initial values and its batches.
    """

    key: str
    variant: str
    seed: int

    @property
    def scouts(self) -> bool:
        """Whether it only says how others shall be trained (`ablate.spec.seeds`), and is never compared."""
        return FIRST_SCOUT_SEED <= self.seed < FIRST_CONFIRMING_SEED

    @property
    def confirms(self) -> bool:
        """Whether it confirms what a design chose, with a seed that took no part in the choice."""
        return self.seed >= FIRST_CONFIRMING_SEED


@dataclass(frozen=True, slots=True)
class StudyDraft:
    """What a driver writes when it starts or resumes a study.

    Attributes:
        space: The whole space as plain JSON (canonical), from which the study can be run again.
        text: The space file as the user wrote it (empty if it came from Python).
        objective: Keys `metric`, `direction` (`minimize` or `maximize`), `margin` (in units of the metric).
        baseline: Name of the variant that all others are compared with.
        trivial: What is reached without learning, on the data of the baseline: name to metrics, all finite numbers.
    """

    name: str
    question: str
    source: str
    space: dict[str, Any]
    text: str
    objective: dict[str, Any]
    baseline: str
    trivial: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a study declared until it was changed.

    Attributes:
        objective: As in `StudyDraft`.
        claims: Of its space.
        until: When it was changed.
        finished: How many of its trials had finished by then.
        seeds: Of its design, as its space has them; None if an older version wrote it.
    """

    objective: dict[str, Any]
    claims: list[Any]
    until: datetime
    finished: int
    seeds: Any = None


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study with its variants (in the order of the design) and the trials it planned.

    Attributes:
        variants: What is compared.
        planned: Its trials.
        declared_before: What was declared otherwise when trials had finished already, the oldest first.
        scout_variants: What is trained only to tune or time others.
        scout_trials: The trials of those.
        confirm_trials: Those that train again, with fresh seeds, what a design chose by the others.
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


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of a learning curve.

    Attributes:
        step: Optimiser steps done.
        seconds: Seconds of training so far, evaluation left out.
        tokens: Training tokens seen so far.
        flops: Arithmetic of training so far (forward and backward), by the spec's cost.
        train_loss: Mean training loss since the previous point; None at step 0.
        val_loss: Validation loss at this step; None if it was not evaluated here.
    """

    step: int
    seconds: float
    tokens: int
    flops: float
    train_loss: float | None
    val_loss: float | None


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded of the blocks of a trial's model at a step; see `ablate.training.inside`.

    Attributes:
        step: Optimiser steps done.
        values: Quantity (`weights`, `gradients`, `spread`, `map`) to part of the model (`block 1 mixer`) to a number,
            or to the rows of a map; None where it was not finite. Of a member of a population also `values`: spec path
            to what its weights were trained with up to this step.
    """

    step: int
    values: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where trials ran. Equal environments are one row.

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
    """A process that trains.

    Attributes:
        host: Name of its machine.
        device: As in `Environment`.
        pid: Its number there.
    """

    host: str
    device: str
    pid: int


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What a driver writes when a trial ended.

    Attributes:
        metrics: Final metrics by name (`val_loss` ...); empty unless finished.
        steps: Optimiser steps done.
        stopped_at: For a diverged trial, the step whose loss was not finite; for a pruned one, that at which it ended.
        reason: For a diverged, pruned or failed trial, one sentence (a failed one: the traceback follows). Of a
            finished one, why it was not trained in the pack that it was begun in; else empty.
        data_fingerprint: Content hash of the tokenised data that it saw.
        curve: Its learning curve.
        recordings: Of its blocks, if its variant asked for them.
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


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial as the store holds it (its curve is read apart).

    Attributes:
        attempts: How often it was begun by the driver that wrote it.
        worker: Where it trains or trained; None before it has reached a worker, or if that was not recorded.
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


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands beside one study or trial.

    Attributes:
        starred: Whether it has a star.
        tags: Short words to find it by, in the order of the alphabet.
        note: Free text.
    """

    starred: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""

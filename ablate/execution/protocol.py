"""What an engine does, and the messages between the driver and the workers: jobs go one way, events come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ablate.execution.own_trainer import TrainerPlaces
from ablate.spec.training import PopulationSpec
from ablate.store.records import WorkerRecord
from ablate.training.events import Event

if TYPE_CHECKING:
    from ablate.planning.packing import JobPlace, ResumablePack
    from ablate.planning.plan import Plan, Trial


@dataclass(frozen=True, slots=True)
class JobMember:
    """One trial of a job.

    Attributes:
        variant: The variant as JSON, so that any process can read it.
        seed: The seed of its initial values and batches.
        weights: The file for the final weights; empty if they are not kept.
        key: The key of the trial in the store; empty if it is in none.
        population: The population that it belongs to, as its variant says; None if it belongs to none.
        initial_weights: The file or folder of the weights that it starts from; empty if it starts from random ones.
        code: Identity of the code of its kinds, which the worker must have too; empty if that is not checked.
        places: Where the user's trainer runs; None if ablate trains.
    """

    variant: str
    seed: int
    weights: str = ""
    key: str = ""
    population: PopulationSpec | None = None
    initial_weights: str = ""
    code: str = ""
    places: TrainerPlaces | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A pack to train: trials of one structure on the same data. Messages number its members from 0."""

    number: int
    members: tuple[JobMember, ...]
    fingerprint: str

    @property
    def ranks(self) -> int | None:
        """The processes of ablate that train it; None: one for each device."""
        return None if self.members[0].places is None else 1


@dataclass(frozen=True, slots=True)
class Stop:
    """The driver asks a member to leave its job."""

    number: int
    member: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has imported its modules and waits for its first job."""


@dataclass(frozen=True, slots=True)
class Began:
    """A worker has started a job."""

    number: int
    worker: WorkerRecord


@dataclass(frozen=True, slots=True)
class JobRestarted:
    """A job lost its worker; the engine restarts it from the beginning or from its last checkpoint.

    The job sends its whole curve again.
    """

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class StateReplaced:
    """A member of a population continues from another state, its own or that of another member.

    It sends its whole curve again.

    Attributes:
        values: The history of the hyperparameters of this state: pairs of a first step and a mapping of path to value.
    """

    number: int
    values: tuple[tuple[int, dict[str, float]], ...]


@dataclass(frozen=True, slots=True)
class Happened:
    """A training event of a job."""

    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Done:
    """A job has ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A job raised an exception or lost its worker.

    Attributes:
        reason: One sentence.
        trace: The traceback of the exception; empty if the worker died.
        log: The last output of a worker that died.
        saved: The step of the checkpoint from which the job would resume; 0 if there is none.
    """

    number: int
    reason: str
    trace: str
    log: str = ""
    saved: int = 0


Message = Began | JobRestarted | StateReplaced | Happened | Done | Broken
"""The messages from an engine to the driver."""


class Engine(ABC):
    """Runs jobs. Leaving its context ends all jobs that still run.

    Attributes:
        device: The device of a trial whose worker reports none: `cpu` or `cuda`.
    """

    device: str = "cpu"

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of jobs that can run at once."""

    @abstractmethod
    def room(self) -> int:
        """The number of jobs that can be submitted now."""

    @abstractmethod
    def admit(self, plan: Plan) -> None:
        """Check before training that the plan can run here.

        Raises:
            EngineError: A trial needs more resources than are available.
        """

    def admit_blocks(self, variant: str, needed: int) -> None:  # noqa: B027 - an engine may have no limit
        """Refuse, before the data is prepared, a variant whose blocks alone do not fit here.

        Args:
            variant: The name of the largest variant.
            needed: Predicted bytes of one of its trials, without embedding and head.

        Raises:
            EngineError: It needs more memory than is available.
        """

    def speed(self) -> float | None:
        """The arithmetic that one job does a second, measured here in less than a second; None if it is not known."""
        return None

    def expect(self, trials: Iterable[Trial]) -> None:  # noqa: B027 - most engines need no announcement
        """Announce trials that the design has added to the plan; they may be larger than all earlier ones."""

    def next_place(self) -> JobPlace | None:
        """The place of the next job; None if all places are alike."""
        return None

    def resumable_packs(self) -> list[ResumablePack]:
        """Packs that an earlier driver of the study left. A job with the same members in the same order resumes one."""
        return []

    def complete(self) -> None:  # noqa: B027 - an engine may keep nothing
        """All trials of the study have finished: remove what only a continuation would read."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job. Call it only while `room()` is positive."""

    @abstractmethod
    def stop(self, number: int, member: int) -> None:
        """Ask a member to leave its job soon; this has no effect if the job has ended.

        The driver stops tracking this member. A job whose members have all left ends with `Done`.
        """

    @abstractmethod
    def poll(self, timeout: float) -> list[Message]:
        """The messages since the last call; waits up to `timeout` seconds for the first one.

        Raises:
            EngineError: No job can run any more.
        """

    @abstractmethod
    def close(self) -> None:
        """End all jobs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

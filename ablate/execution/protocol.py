"""The messages between the driver and the workers: jobs go one way, what happens to them comes back."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.execution.own_trainer import TrainerFolders
from ablate.spec.training import PopulationSpec
from ablate.store.records import WorkerRecord
from ablate.training.events import Event


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
        folders: Where the user's trainer runs; None if ablate trains.
    """

    variant: str
    seed: int
    weights: str = ""
    key: str = ""
    population: PopulationSpec | None = None
    initial_weights: str = ""
    code: str = ""
    folders: TrainerFolders | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A pack to train: trials of one structure on the same data. Messages number its members from 0."""

    number: int
    members: tuple[JobMember, ...]
    fingerprint: str

    @property
    def ranks(self) -> int | None:
        """The processes of ablate that train it; None: one for each device."""
        return None if self.members[0].folders is None else 1


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

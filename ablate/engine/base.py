"""What an engine is: it takes jobs while it has room, and says what happens to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ablate.engine.plan import Plan, Trial
from ablate.engine.worker import Job, Message


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job is to run.

    Attributes:
        device: `cpu` or `cuda`.
        memory: Bytes that it may take there.
    """

    device: str
    memory: float


@dataclass(frozen=True, slots=True)
class Left:
    """A pack whose driver died, and that can go on from a checkpoint.

    Attributes:
        members: Keys of its trials, in order.
        alive: Those that had not left it by then.
    """

    members: tuple[str, ...]
    alive: frozenset[str]


class Engine(ABC):
    """Runs jobs somewhere. Used as a context; leaving it ends everything that still runs.

    Attributes:
        device: What trials train on unless their worker says otherwise: `cpu` or `cuda`.
    """

    device: str = "cpu"

    @property
    @abstractmethod
    def size(self) -> int:
        """How many jobs can run at once."""

    @abstractmethod
    def room(self) -> int:
        """How many jobs can be submitted now."""

    @abstractmethod
    def admit(self, plan: Plan) -> None:
        """Refuse, before anything is trained, a plan that cannot run here.

        Raises:
            EngineError: A trial needs more than there is.
        """

    def expect(self, trials: Iterable[Trial]) -> None:  # noqa: B027 - most engines need not know
        """Hear of trials that the design has thought of since the study began; they may be larger than all before."""

    def next_place(self) -> Place | None:
        """Where the next job will run, if the engine offers different places; None: where all others do."""
        return None

    def left(self) -> list[Left]:
        """Packs of an earlier driver of the study; a job of the same members in the same order goes on with one."""
        return []

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job; call only while there is room."""

    @abstractmethod
    def stop(self, number: int, member: int) -> None:
        """Ask that a member of a job leave it soon; nothing is done if the job has ended.

        The driver heeds nothing more of that member. A job whose members have all left ends with `Done`.
        """

    @abstractmethod
    def poll(self, timeout: float) -> list[Message]:
        """What happened since the last call; waits up to `timeout` seconds for something to happen.

        Raises:
            EngineError: Nothing can run any more.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything that runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

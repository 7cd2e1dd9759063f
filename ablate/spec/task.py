"""`TaskSpec`: what every kind of task says of itself. The kinds stand in `ablate/tasks/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from ablate.spec.base import Family, Kinded, OneOf

if TYPE_CHECKING:
    from ablate.tasks.base import Task

TASKS = Family("task", package="ablate.tasks", entry_points="ablate.tasks")

Say = Callable[[str], None]
"""Receives one line of progress while data is prepared."""


class TaskSpec(Kinded):
    """A task as a space names it. Preparing it gives a `Task`."""

    family = TASKS
    model_families: ClassVar[frozenset[str]]
    """Families of model that can learn this task."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens in the longest input that a model is given."""

    @abstractmethod
    def prepare(self, cache: Path, say: Say) -> str:
        """Make the data ready in `cache` (once; a second call finds it) and return its fingerprint.

        Safe when several processes call it at once, and when one of them is killed.

        Raises:
            DataError: The data is missing or unfit.
        """

    @abstractmethod
    def open(self, cache: Path, fingerprint: str) -> Task:
        """Open prepared data by memory map; cheap, called in every worker.

        Raises:
            DataError: The prepared files are missing or their checksum is off.
        """


TaskField = Annotated[TaskSpec, OneOf]

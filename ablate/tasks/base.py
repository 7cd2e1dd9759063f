"""What a task is: data, loss and metrics. One file per task in this folder (or a plugin) defines a `TaskSpec`.

Shapes: K pack, B batch, T tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.spec.task import TASKS, Say, TaskSpec

if TYPE_CHECKING:
    import torch

    Batch = dict[str, torch.Tensor]

__all__ = ["TASKS", "DataShape", "Say", "Task", "TaskSpec"]


@dataclass(frozen=True, slots=True)
class DataShape:
    """What a model must know of its data.

    Attributes:
        vocabulary: Number of token ids; ids are 0 ... vocabulary - 1.
        context: Tokens in one input.
    """

    vocabulary: int
    context: int


class Task(ABC):
    """A task whose data is ready: batches, loss, metrics. Opened in every worker from memory-mapped files.

    Attributes:
        fingerprint: Content hash of the prepared data (text, split, tokens). With the spec it decides the batches.
        shape: What the model must know.
    """

    fingerprint: str
    shape: DataShape

    @abstractmethod
    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """One training batch on the CPU, a pure function of (spec, fingerprint, seed, step, batch_size).

        Returns:
            Tensors with leading axis B, among them `inputs` [B, T] (int64).
        """

    @abstractmethod
    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The validation batches, the same for every trial: the tensors of `train_batch`, and what `measure` needs."""

    @abstractmethod
    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean loss of each member: outputs [K, B, ...] and a batch with leading axes [K, B] give [K]."""

    @abstractmethod
    def metrics(self, sums: dict[str, list[float]]) -> dict[str, list[float]]:
        """Final metrics by name (with the prefix `val_`), a value for each member, from the totals of `measure`."""

    @abstractmethod
    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals over one validation batch, each [K], to be added up over batches and given to `metrics`."""

    @abstractmethod
    def tokens_per_batch(self, batch_size: int) -> int:
        """Training tokens in a batch, for the token axis of curves."""

"""What a task is: `TaskSpec` says which data and how, `Task` is the data made ready, with its loss and its metrics.

The kinds stand in `ablate/tasks/`, one file each. Shapes: K pack, B batch, T tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Batch = dict[str, torch.Tensor]

TASKS = Family("task", package="ablate.tasks", entry_points="ablate.tasks")

Say = Callable[[str], None]
"""Receives one line of progress while data is prepared."""


@dataclass(frozen=True, slots=True)
class DataShape:
    """What a model must know of its data.

    Attributes:
        vocabulary: Number of token ids; ids are 0 ... vocabulary - 1.
        context: Tokens in one input.
        classes: Number of classes of a classifier; 0 for a language model.
    """

    vocabulary: int
    context: int
    classes: int = 0


@dataclass(frozen=True, slots=True)
class DataSummary:
    """What a person wants to see of prepared data; `ablate data` prints it.

    Attributes:
        rows: What was counted, by split: documents, texts or pairs.
        tokens: Tokens, by split.
        lengths: Length in tokens of every training row, or of some spread evenly, for a histogram.
        labels: Training rows of each label, in the order of the classes; empty if there are no labels.
        samples: Some inputs as text, with what is to be predicted where that is a label.
        notes: Facts worth a line each, such as what was left out.
    """

    rows: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)
    samples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Codec(Protocol):
    """Text to token ids and back; a tokenizer is one."""

    @property
    def end_of_document(self) -> int:
        """The id that ends a text."""

    def encode(self, text: str) -> NDArray[Any]:
        """The ids of a text, without the one that ends it."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""


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

        All seeds have the same shapes at one step, so that they can share a pack.

        Returns:
            Tensors with leading axis B, among them `inputs` [B, T] (int64).
        """

    @abstractmethod
    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The validation batches, the same for every trial: the tensors of `train_batch`, and what `measure` needs."""

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """The batches of a test that is read once, after the last step: as `validation_batches`; none without one.

        Its metrics are called `test_...`. No decision reads them: objectives, designs and seeds see validation alone.
        """
        return iter(())

    def outputs(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """What the model gives for a batch with leading axes [K, B]; a task of several inputs says how they go in."""
        outputs: torch.Tensor = model(batch["inputs"], batch.get("padding"))
        return outputs

    @abstractmethod
    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean loss of each member: outputs [K, B, ...] and a batch with leading axes [K, B] give [K]."""

    @abstractmethod
    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """Final metrics by name (with the prefix `val_`), a value for each member, from the totals of `measure`."""

    @abstractmethod
    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals over one validation batch, each [K, ...], to be added up over batches and given to `metrics`."""

    @abstractmethod
    def tokens_per_batch(self, batch_size: int) -> int:
        """Training tokens in a batch, for the token axis of curves."""

    def input_lengths(self) -> tuple[int, ...]:
        """Tokens in an input of a training batch with its padding, each length as frequent as any other.

        The arithmetic of training is counted over these. The context, unless a task sorts its inputs by length.
        """
        return (self.shape.context,)

    def final_metrics(self, model: torch.nn.Module, device: torch.device) -> dict[str, list[float]]:
        """Metrics that are too dear for every evaluation: measured once, after the last step, of every member.

        Their names begin with `val_`, or with `test_` where they are of the test.
        """
        return {}

    def codec(self) -> Codec | None:
        """How its tokens stand for text, for a model that is to write; None if they stand for none."""
        return None

    def baselines(self) -> dict[str, dict[str, float]]:
        """Trivial baselines that a model must beat: name to metrics, over the rows of `validation_batches`."""
        return {}

    def describe(self) -> DataSummary:
        """What a person wants to see of the data."""
        return DataSummary()


class TaskSpec(Kinded):
    """A task as a space names it. Preparing it gives a `Task`."""

    family = TASKS
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss"})
    """What its `Task.metrics` gives; an objective names one of these. `val_loss` is always among them."""
    model_families: ClassVar[frozenset[str]]
    """Families of model that can learn this task."""
    pooled: ClassVar[bool | None] = None
    """Whether the model needs a `head` that pools its tokens (True), may have none (False), or the family decides."""

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

    def missing(self) -> str | None:
        """A sentence that says which data is missing, without reading any; None if nothing is known to be missing."""
        return None

    @abstractmethod
    def open(self, cache: Path, fingerprint: str) -> Task:
        """Open prepared data by memory map; cheap, called in every worker.

        Raises:
            DataError: The prepared files are missing or their checksum is off.
        """


TaskField = Annotated[TaskSpec, OneOf]

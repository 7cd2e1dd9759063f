"""The base classes of tasks: `TaskSpec` names data and settings, `Task` is the prepared data with loss and metrics.

The kinds are in `ablate/tasks/`; similar ones share a file. Shapes: K pack, B batch, T tokens.
"""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self

from pydantic import Field, ValidationError

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded, Spec, content_hash

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Batch = dict[str, torch.Tensor]

TASKS = Family("task", package="ablate.tasks", entry_points="ablate.tasks")

SPLITS = ("train", "validation")
"""The splits that all data has. A task may also have a test split."""

Say = Callable[[str], None]
"""Called with progress messages of one line while data is prepared."""


@dataclass(frozen=True, slots=True)
class DataShape:
    """The sizes of the data that determine the model.

    Attributes:
        vocabulary: Number of token ids; ids are 0 ... vocabulary - 1.
        context: Number of tokens in one input.
        classes: Number of classes of a classifier; 0 for a language model.
    """

    vocabulary: int
    context: int
    classes: int = 0


@dataclass(frozen=True, slots=True)
class DataSummary:
    """A summary of prepared data, which `ablate data` prints.

    Attributes:
        rows: Number of documents, texts or pairs, by split.
        tokens: Number of tokens, by split.
        lengths: Lengths in tokens of the training rows, or of evenly spaced ones, for a histogram.
        labels: Number of training rows of each label, in the order of the classes; empty without labels.
        samples: Some inputs as text, with their labels if there are any.
        notes: Remarks of one line each, such as what was left out.
    """

    rows: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)
    samples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Codec(Protocol):
    """Converts text to token ids and back, such as a tokenizer."""

    @property
    def end_of_document(self) -> int:
        """The id that ends a text."""

    def encode(self, text: str) -> NDArray[Any]:
        """The ids of a text, without the end of the text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""


class Task(ABC):
    """A task with prepared data: batches, loss, metrics. Opened in every worker from memory-mapped files.

    Attributes:
        fingerprint: Content hash of the prepared data (text, split, tokens). It determines the batches, with the spec.
        shape: The sizes of the data that determine the model.
    """

    fingerprint: str
    shape: DataShape

    tokenwise: ClassVar[bool] = False
    """Whether `loss` reads of a batch only `targets` [K, B, T], one for each of the outputs [K, B, T, V], so that it
    can be computed for some of the tokens of a row."""

    @abstractmethod
    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """A training batch on the CPU, a pure function of (spec, fingerprint, seed, step, batch_size).

        At each step the shapes are equal for all seeds, so that they can share a pack.

        Returns:
            Tensors with leading axis B, including `inputs` [B, T] (int64).
        """

    def shorter_batch(self, seed: int, step: int, batch_size: int, length: int) -> Batch:
        """As `train_batch`, with inputs of fewer tokens than the context. Tasks with `TaskSpec.shortens` override it.

        It has the same tensors as `train_batch`; best both call one function that makes them.

        Args:
            batch_size: B.
            length: Number of tokens in each input.
        """
        raise NotImplementedError(f"{type(self).__name__} has no shorter inputs")

    @abstractmethod
    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The validation batches, equal for all trials: tensors as in `train_batch`, and those that `measure` needs."""

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """The test batches, as `validation_batches`; read once, after the last step. Empty without a test.

        Test metrics are named `test_...`. No decision uses them: objectives, designs and schedules use validation
        metrics.
        """
        return iter(())

    def at_length(self, value: int) -> Task:
        """The task of `TaskSpec.at_length`, for evaluations. Tasks with `TaskSpec.length_field` override it.

        Raises:
            DataError: The data is too short for this length.
        """
        raise NotImplementedError(f"{type(self).__name__} has one length")

    def outputs(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """The outputs of the model for a batch with leading axes [K, B]; tasks with several inputs override this."""
        outputs: torch.Tensor = model(batch["inputs"], batch.get("padding"))
        return outputs

    @abstractmethod
    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean loss of each member, [K], for outputs [K, B, ...] and a batch with leading axes [K, B]."""

    def loss_terms(self, batch: Batch) -> torch.Tensor:
        """The number of terms over which `loss` takes the mean of each member, [K], for a batch with axes [K, B].

        The losses of parts of a batch, weighted by it, give the loss of the batch. Default: the number of rows, for a
        loss in which all rows have equal weight.
        """
        inputs = batch["inputs"]
        return inputs.new_full((inputs.shape[0],), inputs.shape[1])

    def scored(self, batch: Batch) -> torch.Tensor | None:
        """Which outputs `loss` reads, booleans [K, B, T], for a batch with axes [K, B]; None if it reads all.

        Losses that a model adds over its outputs, such as the z-loss, are means over these. Default: `padding` of the
        batch, if it has any. Tasks whose loss ignores other outputs override this.
        """
        return batch.get("padding")

    @abstractmethod
    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """Metrics by name (with the prefix `val_`), with a value for each member, from the totals of `measure`."""

    @abstractmethod
    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals over a validation batch, each [K, ...], which are summed over batches and passed to `metrics`."""

    @abstractmethod
    def tokens_per_batch(self, batch_size: int) -> int:
        """Number of training tokens in a batch of whole inputs, for the token axis of curves."""

    @property
    def uneven_batches(self) -> bool:
        """Whether training batches have other numbers of rows than `training.batch_size`."""
        return False

    def mean_rows(self, batch_size: int) -> float:
        """The mean number of rows of a training batch; `batch_size` unless the rows of batches differ."""
        return float(batch_size)

    def input_lengths(self) -> tuple[int, ...]:
        """Padded lengths of training inputs, all with equal frequency. Default: the context.

        The arithmetic of training is averaged over them. Tasks that sort inputs by length override this.
        """
        return (self.shape.context,)

    def final_metrics(self, model: torch.nn.Module, device: torch.device) -> dict[str, list[float]]:
        """Metrics that are too expensive for every evaluation: measured once, after the last step, for every member.

        Their names start with `val_`, or with `test_` for the test.
        """
        return {}

    def codec(self) -> Codec | None:
        """The codec for generating text; None if the tokens are not text."""
        return None

    def least_tokens(self) -> tuple[int, str] | None:
        """Training tokens below which no model is likely to beat a trivial baseline, and the rule that gives them.

        `ablate plan` warns if all trials have fewer. None if no rule is known.
        """
        return None

    def baselines(self) -> dict[str, dict[str, float]]:
        """Metrics of trivial baselines that a model must beat, by name, on the rows of `validation_batches`."""
        return {}

    def describe(self) -> DataSummary:
        """A summary of the data."""
        return DataSummary()


class TaskSpec(Kinded):
    """A task in a space. Preparing its data gives a `Task`."""

    family = TASKS
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss"})
    """Names of the metrics of `Task.metrics`, the choices of an objective; always includes `val_loss`. A name that ends
    with `accuracy` declares that the metric lies between 0 and 1."""
    model_families: ClassVar[frozenset[str]]
    """Model families that support this task."""
    shortens: ClassVar[bool] = False
    """Whether inputs may have fewer tokens, as `training.context_growth` asks for; see `Task.shorter_batch`."""
    length_field: ClassVar[str] = ""
    """Name of the field that sets the length of inputs, if trained models can be measured at other values of it
    (`training.evaluate_at`); see `Task.at_length`."""
    pooled: ClassVar[bool | None] = None
    """Whether the model needs a pooling `head` (True), must not have one (False), or this depends on the family."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Maximum number of tokens in an input."""

    def at_length(self, value: int) -> Self:
        """The same task with another value of its `length_field`.

        Raises:
            ValidationError: The other fields do not permit it.
        """
        return type(self).model_validate({**self.editable(), self.length_field: value})

    @property
    def uneven_batches(self) -> bool:
        """Whether training batches have other numbers of rows than `training.batch_size`."""
        return False

    @property
    def final_metric_names(self) -> frozenset[str]:
        """Names of the metrics of `Task.final_metrics` that an objective or a claim may name, as those of every
        evaluation."""
        return frozenset()

    @property
    def separates_documents(self) -> bool:
        """Whether the model must keep the documents of one window apart."""
        return False

    @abstractmethod
    def prepare(self, cache: Path, say: Say) -> str:
        """Prepare the data in `cache`, unless it is already there, and return its fingerprint.

        Safe for concurrent calls of several processes, also if one of them is killed.

        Raises:
            DataError: The data is missing or invalid.
        """

    def missing(self) -> str | None:
        """What data is known to be missing, as a sentence, without reading any; None if nothing is."""
        return None

    @abstractmethod
    def open(self, cache: Path, fingerprint: str) -> Task:
        """Memory-map prepared data; called in every worker.

        Raises:
            DataError: The prepared files are missing or damaged.
        """


TaskField = Annotated[TaskSpec, OneOf]


@functools.cache
def task_hash(written: str) -> str:
    """The content hash of a task from its JSON; that of the JSON itself where its kind is not known."""
    try:
        return TaskSpec.parse(json.loads(written)).content_hash()
    except ValidationError:
        return content_hash(json.loads(written))


Metrics = Annotated[tuple[str, ...], Field(min_length=1)]


class DownstreamSpec(Spec):
    """Tasks of EleutherAI's `lm-eval`, measured once, after the last step.

    Each metric is one of the trial, which an objective or a claim may name: `val_TASK_METRIC`, such as
    `val_arc_easy_acc`. `val`, because a study decides by it, whichever examples the task reads. Needs the extra
    `evaluate`. The key of a trial holds these names and numbers and not the data of the tasks: give a task that changes
    another name.
    """

    tasks: dict[str, Metrics] = Field(min_length=1)
    """Name of a task or group to the names of its metrics: `{arc_easy: [acc, acc_norm]}`."""
    folder: str = ""
    """A folder with YAML files of further tasks; none unless set."""
    shots: int | None = Field(default=None, ge=0)
    """Solved examples before each question; unless set, as many as the task says."""
    limit: int | None = Field(default=None, ge=1)
    """Examples of each task, the first ones; all unless set."""

    def names(self) -> dict[str, tuple[str, str]]:
        """Name of each metric of a trial to the task and the metric of `lm-eval`."""
        return {
            f"val_{metric_name(task, metric)}": (task, metric)
            for task, metrics in self.tasks.items()
            for metric in metrics
        }


def metric_name(task: str, metric: str) -> str:
    """The name of a metric of a task in a store, without its split: `arc_easy_acc`."""
    return f"{task}_{metric.replace(',', '_')}"

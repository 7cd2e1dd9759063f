"""What the probes share: small tasks for decoders whose sequences are drawn anew at every step; nothing is prepared.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.spec.base import content_hash
from ablate.tasks.base import DataShape, DataSummary, Say, Task, TaskSpec
from ablate.tasks.random_stream import Draws

if TYPE_CHECKING:
    import torch

    from ablate.tasks.base import Batch

CODE_VERSION = 1
"""Part of every fingerprint: raised whenever a probe comes to draw other sequences."""

UNSCORED = -100
"""The target of a place that does not count."""


class ProbeSpec(TaskSpec):
    """A task whose sequences are a pure function of seed and step. A kind says how they are drawn."""

    model_families: ClassVar[frozenset[str]] = frozenset({"decoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_accuracy"})

    validation_rows: int = Field(default=512, ge=1)
    """Sequences to validate on, the same for every trial."""
    test_rows: int = Field(default=0, ge=0)
    """Sequences for a test that is measured once, at the end of a trial; 0: no test."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of token ids."""

    @property
    @abstractmethod
    def guesses(self) -> int:
        """Answers between which somebody guesses who knows the rule of the task but remembers nothing of the text."""

    @abstractmethod
    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets, [rows, T] each; a target is what follows the input at its place, or `UNSCORED`."""

    def prepare(self, cache: Path, say: Say) -> str:
        """Nothing is to be prepared: the fingerprint is a hash of the settings."""
        return content_hash({"probe": self.canonical(), "code": CODE_VERSION})

    def open(self, cache: Path, fingerprint: str) -> Probe:
        """The task; nothing is read."""
        return Probe(self, fingerprint)


class Probe(Task):
    """See `ProbeSpec`."""

    def __init__(self, spec: ProbeSpec, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self.shape = DataShape(vocabulary=spec.vocabulary, context=spec.length)
        self._validation = spec.sequences(Draws(f"{fingerprint}/validation"), spec.validation_rows)
        self._test = spec.sequences(Draws(f"{fingerprint}/test"), spec.test_rows) if spec.test_rows else None

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """New sequences: `inputs` and `targets`, int64 [B, T]; what does not count has the target `UNSCORED`."""
        return _batch(*self.spec.sequences(Draws(f"{self.fingerprint}/{seed}/{step}/{batch_size}"), batch_size))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same sequences every time; as `train_batch`."""
        return _batches(*self._validation, batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """The sequences of the test; as `train_batch`."""
        return _batches(*self._test, batch_size) if self._test else iter(())

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member over what counts, in nats: [K, B, T, V] and [K, B, T] to [K]."""
        nats, scored = _nats(outputs, batch["targets"])
        return nats.flatten(1).sum(1) / scored.flatten(1).sum(1)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `right` and `scored`, float64 [K]."""
        targets = batch["targets"]
        nats, scored = _nats(outputs, targets)
        right = outputs.argmax(-1) == targets
        totals = {"nats": nats, "right": right, "scored": scored}
        return {name: values.flatten(1).double().sum(1) for name, values in totals.items()}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats per scored token) and `val_accuracy` (share of the scored tokens that are right)."""
        return {
            name: [total / scored for total, scored in zip(sums[key], sums["scored"], strict=True)]
            for name, key in (("val_loss", "nats"), ("val_accuracy", "right"))
        }

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    def baselines(self) -> dict[str, dict[str, float]]:
        """`guess`: any answer that is possible, each as likely. Known without a look at the data."""
        return {"guess": {"val_loss": math.log(self.spec.guesses), "val_accuracy": 1 / self.spec.guesses}}

    def describe(self) -> DataSummary:
        """The validation sequences, and three of them with what counts in parentheses."""
        inputs, targets = self._validation
        return DataSummary(
            rows={"validation": len(inputs)},
            tokens={"validation": inputs.size},
            lengths=(inputs.shape[1],) * len(inputs),
            samples=tuple(_written(*pair) for pair in zip(inputs[:3], targets[:3], strict=True)),
            notes=("training sequences are drawn anew at every step",),
        )


def _batches(inputs: NDArray[np.int64], targets: NDArray[np.int64], batch_size: int) -> Iterator[Batch]:
    for first in range(0, len(inputs), batch_size):
        yield _batch(inputs[first : first + batch_size], targets[first : first + batch_size])


def _batch(inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> Batch:
    import torch

    return {"inputs": torch.from_numpy(inputs), "targets": torch.from_numpy(targets)}


def _nats(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross entropy of every target, 0 where it does not count, and whether it counts; [K, B, T] each."""
    from torch.nn import functional

    flat = outputs.flatten(0, 2).float()
    nats = functional.cross_entropy(flat, targets.flatten(), reduction="none", ignore_index=UNSCORED)
    return nats.view(targets.shape), targets != UNSCORED


def _written(inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> str:
    pairs = zip(inputs.tolist(), targets.tolist(), strict=True)
    return " ".join(str(token) if target == UNSCORED else f"{token} (then {target})" for token, target in pairs)

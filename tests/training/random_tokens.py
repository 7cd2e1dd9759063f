"""A task of random tokens, small and without files, and short ways to train on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec
from ablate.spec.task import DataShape, Task
from ablate.spec.variant import VariantSpec
from ablate.training.events import Diverged, Event, Measurement
from ablate.training.loop import train
from ablate.training.members import Member

if TYPE_CHECKING:
    from ablate.spec.task import Batch

CPU = torch.device("cpu")
V, T = 17, 9


class RandomTokens(Task):
    """Sequences in which the next token is a noisy function of the last one, so that there is something to learn.

    Args:
        poisoned: Seed to the step from which its loss is not a number.
    """

    def __init__(self, poisoned: dict[int, int] | None = None) -> None:
        self.fingerprint = "random"
        self.shape = DataShape(vocabulary=V, context=T)
        self.poisoned = poisoned or {}
        self.served: list[tuple[int, int, Tensor]] = []
        self.steps = 0

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        batch = self._draw(f"{seed}/{step}", batch_size)
        bad = step >= self.poisoned.get(seed, step + 1)
        self.served.append((seed, step, batch["inputs"]))
        return {**batch, "weight": torch.full((batch_size,), float("nan") if bad else 1.0)}

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        for index in range(2):
            yield {**self._draw(f"validation/{index}", batch_size), "weight": torch.ones(batch_size)}

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        self.steps += 1
        return (self._nats(outputs, batch["targets"]) * batch["weight"]).mean(1)

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        nats = self._nats(outputs, batch["targets"])
        return {"nats": nats.sum(1), "sequences": torch.full((len(nats),), nats.shape[1])}

    def metrics(self, sums: dict[str, list[float]]) -> dict[str, list[float]]:
        return {"val_loss": [nats / count for nats, count in zip(sums["nats"], sums["sequences"], strict=True)]}

    def tokens_per_batch(self, batch_size: int) -> int:
        return batch_size * T

    @staticmethod
    def _draw(name: str, batch_size: int) -> Batch:
        generator = stream(0, name)
        tokens = torch.randint(V, (batch_size, T + 1), generator=generator)
        noise = torch.rand(batch_size, T, generator=generator)
        for t in range(T):
            tokens[:, t + 1] = torch.where(noise[:, t] < 0.8, (3 * tokens[:, t] + 1) % V, tokens[:, t + 1])
        return {"inputs": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}

    @staticmethod
    def _nats(outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean over the tokens of each sequence: [K, B, T, V], [K, B, T] to [K, B]."""
        return F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none").mean(-1)


def variant(model: dict[str, Any] | None = None, **training: Any) -> VariantSpec:
    """A variant at tiny size; every step has its point unless `evaluations` says otherwise."""
    optimizer = {"lr": 3e-3, "weight_decay": 0.1, **training.pop("optimizer", {})}
    steps = training.pop("steps", 20)
    plain = {"family": "decoder", "depth": 3, "width": 12, "heads": 3, "block": "pre_ln"}
    decoder = VariantSpec.model_validate(
        {
            "model": plain,
            "task": {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": T},
            "training": {"steps": steps, "batch_size": 4, "optimizer": optimizer, "evaluations": steps, **training},
        }
    )
    # Put in afterwards: an encoder that tells tokens apart from both sides can be trained on these tokens too.
    return decoder.model_copy(update={"model": ModelSpec.model_validate({**plain, **(model or {})})})


def run(spec: VariantSpec, seeds: Sequence[int], task: Task | None = None) -> list[Event]:
    return list(train([Member(spec, seed) for seed in seeds], task or RandomTokens(), CPU))


def points(events: Sequence[Event]) -> list[Measurement]:
    return [event for event in events if isinstance(event, Measurement)]


def divergences(events: Sequence[Event]) -> list[Diverged]:
    return [event for event in events if isinstance(event, Diverged)]


def losses(events: Sequence[Event]) -> Tensor:
    """Training loss of every step and validation loss after it, [K, steps, 2]."""
    curve = [[point.train_loss, point.metrics["val_loss"]] for point in points(events) if point.step > 0]
    return torch.tensor(curve, dtype=torch.float64).movedim(-1, 0)

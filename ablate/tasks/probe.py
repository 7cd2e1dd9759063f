"""Base classes of probes: synthetic tasks for decoders with new sequences at every step and no prepared data.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.spec.task import DataShape, DataSummary, Say, Task, TaskSpec
from ablate.tasks.sampling import Draws
from ablate.tasks.scores import nats

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch

CODE_VERSION = 1
"""Part of every fingerprint. Increment it when a probe generates other sequences."""

UNSCORED = -100
"""Target of positions that do not contribute to the loss."""
SEEN = 8
"""Tokens that a shortcut of some tasks sees, as a stack of short convolutions does."""


class ProbeSpec(TaskSpec):
    """A task whose sequences are a pure function of seed and step. Each kind defines how they are generated."""

    model_families: ClassVar[frozenset[str]] = frozenset({"decoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_accuracy", "val_sequence_accuracy"})

    validation_rows: int = Field(default=512, ge=1)
    """Number of validation sequences, which are the same for every trial."""
    test_rows: int = Field(default=0, ge=0)
    """Number of test sequences, measured once at the end of a trial; 0: no test."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Number of token ids."""

    @property
    @abstractmethod
    def guesses(self) -> int:
        """Number of equally likely answers for a predictor that knows the task but not the sequence."""

    @abstractmethod
    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets, [rows, T] each; a target is the token after the input at its position, or `UNSCORED`."""

    def training_sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Those to train with, where a task trains on other sequences or positions than it is measured on."""
        return self.sequences(draws, rows)

    def shortcuts(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """What rules answer that a model may learn instead of the task: by name, [rows, T]; -1 where they guess."""
        return {}

    def shown(self, inputs: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Which inputs show a token that may be an answer, by the rule that the most frequent of them is the answer.

        Returns:
            [rows, T]: 1 where the input is such a token, -1 where it is an answer that is used up, else 0. None if
            frequencies say nothing about answers.
        """
        return None

    def prepare(self, cache: Path, say: Say) -> str:
        """Return a hash of the settings as fingerprint; there is no data to prepare."""
        return content_hash({"probe": self.canonical(), "code": CODE_VERSION})

    def open(self, cache: Path, fingerprint: str) -> Probe:
        """Create the task; no files are read."""
        return Probe(self, fingerprint)


Context = Annotated[int, Field(le=1_000_000, description="Tokens in a sequence.")]


class ContextProbeSpec(ProbeSpec):
    """A probe whose sequences have `context` tokens."""

    length_field: ClassVar[str] = "context"

    context: Context

    @property
    def length(self) -> int:
        return self.context


class WithMark:
    """Mixed into a probe whose ids are its `symbols` and one more: a separator, a question, a special token."""

    if TYPE_CHECKING:
        symbols: int

    @property
    def vocabulary(self) -> int:
        """The symbols and the mark."""
        return self.symbols + 1


class Probe(Task):
    """The task of a `ProbeSpec`."""

    tokenwise = True

    def __init__(self, spec: ProbeSpec, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self.shape = DataShape(vocabulary=spec.vocabulary, context=spec.length)
        self._validation = spec.sequences(Draws(f"{fingerprint}/validation"), spec.validation_rows)
        self._test = spec.sequences(Draws(f"{fingerprint}/test"), spec.test_rows) if spec.test_rows else None
        for split, drawn in (("validation", self._validation), ("test", self._test)):
            if drawn is not None and not (drawn[1] != UNSCORED).any():
                raise DataError(
                    f"no {split} sequence asks for anything",
                    where=f"task {spec.kind_name()}",
                    expected="a token to predict in one of them at least",
                    got=f"{len(drawn[1])} sequences of {spec.length} tokens",
                    remedy=f"Raise `{split}_rows`, or the length of the sequences.",
                )

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """New sequences: `inputs` and `targets`, int64 [B, T]; positions without a loss have the target `UNSCORED`."""
        draws = Draws(f"{self.fingerprint}/{seed}/{step}/{batch_size}")
        return _batch(*self.spec.training_sequences(draws, batch_size))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same sequences at each call, in the format of `train_batch`."""
        return _batches(*self._validation, batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """The test sequences, in the format of `train_batch`."""
        return _batches(*self._test, batch_size) if self._test else iter(())

    def at_length(self, value: int) -> Probe:
        """The sequences on which a model is validated that is trained at this length."""
        spec = self.spec.at_length(value)
        return spec.open(Path(), spec.prepare(Path(), lambda line: None))

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member over scored positions, in nats: [K, B, T, V] and [K, B, T] to [K]."""
        losses, scored = _nats(outputs, batch["targets"])
        return losses.flatten(1).sum(1) / scored.flatten(1).sum(1).clamp(min=1)

    def loss_terms(self, batch: Batch) -> torch.Tensor:
        """The number of scored tokens."""
        return self.scored(batch).flatten(1).sum(1)

    def scored(self, batch: Batch) -> torch.Tensor:
        """The outputs with a target."""
        return batch["targets"] != UNSCORED

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `right`, `scored`, `solved` and `asked`, float64 [K]; the last two count sequences."""
        targets = batch["targets"]
        losses, scored = _nats(outputs, targets)
        right = outputs.argmax(-1) == targets
        asked = scored.any(-1)
        solved = asked & (right | ~scored).all(-1)
        totals = {"nats": losses, "right": right, "scored": scored, "solved": solved, "asked": asked}
        return {name: values.flatten(1).double().sum(1) for name, values in totals.items()}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """The results of each member.

        `val_loss` is in nats per scored token, `val_accuracy` the share of the scored tokens that are correct, and
        `val_sequence_accuracy` that of the sequences in which all are.
        """
        parts = {"loss": ("nats", "scored"), "accuracy": ("right", "scored"), "sequence_accuracy": ("solved", "asked")}
        return {
            f"val_{name}": [total / count for total, count in zip(sums[part], sums[whole], strict=True)]
            for name, (part, whole) in parts.items()
        }

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    def baselines(self) -> dict[str, dict[str, float]]:
        """`guess`, all possible answers with equal probability, and what is learnt instead of the task.

        These are its shortcuts on the validation sequences, and `most frequent answer`, that which a sequence has shown
        most often so far. The loss of a shortcut is that of a predictor that knows how often it is right: where it
        answers, its answer has the share of right answers as probability, and all others share the rest equally.
        """
        guesses, nats_of_a_guess = self.spec.guesses, math.log(self.spec.guesses)
        inputs, targets = self._validation
        solved = self._solved(np.full(targets.shape, 1 / guesses))
        results = {"guess": {"val_loss": nats_of_a_guess, "val_accuracy": 1 / guesses, "val_sequence_accuracy": solved}}
        scored = targets != UNSCORED
        for name, answers in self.spec.shortcuts(inputs, targets).items():
            right, guessed = (answers == targets)[scored], (answers == -1)[scored]
            loss = guessed.mean() * nats_of_a_guess + (~guessed).mean() * _nats_of_a_rule(right[~guessed], guesses)
            results[name] = {
                "val_loss": float(loss),
                "val_accuracy": float((right + guessed / guesses).mean()),
                "val_sequence_accuracy": self._solved(np.where(answers == -1, 1 / guesses, answers == targets)),
            }
        if (shown := self.spec.shown(inputs)) is not None:
            results["most frequent answer"] = self._most_frequent(shown)
        return results

    def _most_frequent(self, shown: NDArray[np.int64]) -> dict[str, float]:
        """The metrics of the frequencies of answers in each sequence so far."""
        inputs, targets = self._validation
        row, counts = np.arange(len(inputs)), np.zeros((len(inputs), self.spec.vocabulary))
        right, shares = np.zeros(targets.shape), list[NDArray[np.float64]]()
        for place in range(inputs.shape[1]):
            counts[row, inputs[:, place]] += shown[:, place]
            if (asked := targets[:, place] != UNSCORED).any():
                target, known = targets[asked, place], counts[asked]
                right[asked, place] = known.argmax(1) == target
                shares.append(known[np.arange(len(target)), target] / known.sum(1).clip(min=1))
        with np.errstate(divide="ignore"):
            loss = -np.log(np.concatenate(shares)).mean()
        found = {
            "val_accuracy": float(right[targets != UNSCORED].mean()),
            "val_sequence_accuracy": self._solved(right),
        }
        return {"val_loss": float(loss), **found} if np.isfinite(loss) else found

    def _solved(self, right: NDArray[np.float64]) -> float:
        """The share of validation sequences that a rule solves, from the chance [rows, T] that each answer is right."""
        scored = self._validation[1] != UNSCORED
        return float(np.where(scored, right, 1.0).prod(axis=1)[scored.any(axis=1)].mean())

    def describe(self) -> DataSummary:
        """The validation sequences, with three samples that show scored targets in parentheses."""
        inputs, targets = self._validation
        return DataSummary(
            rows={"validation": len(inputs)},
            tokens={"validation": inputs.size},
            lengths=(inputs.shape[1],) * len(inputs),
            samples=tuple(_as_text(*pair) for pair in zip(inputs[:3], targets[:3], strict=True)),
            notes=("training uses new sequences at every step",),
        )


def generate(
    model: torch.nn.Module,
    task: Task,
    inputs: NDArray[np.int64],
    starts: NDArray[np.int64],
    count: int,
    device: torch.device,
    coins: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """Sequences that members of a pack continue with their own answers, [K, rows, T + 1]: by their whole context.

    Args:
        model: Of K members.
        task: Makes outputs of inputs.
        inputs: [rows, T].
        starts: For each row the place of the first answer, up to T; what is there is not read.
        count: Number of answers, fewer where a row ends.
        device: Of the model.
        coins: Uniform numbers, [rows, count], by which answers are drawn at temperature 1; None: the likeliest ones.
    """
    import torch

    training, pack = model.training, next(model.parameters()).shape[0]
    model.eval()
    lines = torch.from_numpy(np.pad(inputs, ((0, 0), (0, 1)))).to(device).repeat(pack, 1, 1)
    with torch.no_grad():
        for step in range(count):
            places = torch.from_numpy(np.minimum(starts + step, inputs.shape[1])).to(device).expand(pack, -1)[..., None]
            outputs = task.outputs(model, {"inputs": lines[..., :-1]})
            logits = outputs.take_along_dim(places[..., None] - 1, 2)[:, :, 0].double()
            if coins is None:
                answers = logits.argmax(-1, keepdim=True)
            else:
                coin = torch.from_numpy(coins[:, step, None]).to(device)
                answers = (logits.softmax(-1).cumsum(-1) <= coin).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
            ended = torch.from_numpy(starts + step > inputs.shape[1]).to(device)[..., None]
            lines.scatter_(2, places, torch.where(ended, lines.gather(2, places), answers))
    model.train(training)
    found: NDArray[np.int64] = lines.cpu().numpy()
    return found


def _nats_of_a_rule(right: NDArray[np.bool_], guesses: int) -> float:
    """The loss of a rule that is right in this share of cases, in nats; the other answers are equally likely."""
    share = float(right.mean()) if right.size else 1.0
    wrong = (1 - share) * math.log((1 - share) / max(1, guesses - 1)) if share < 1 else 0.0
    return -wrong - (share * math.log(share) if share > 0 else 0.0)


def _batches(inputs: NDArray[np.int64], targets: NDArray[np.int64], batch_size: int) -> Iterator[Batch]:
    for first in range(0, len(inputs), batch_size):
        yield _batch(inputs[first : first + batch_size], targets[first : first + batch_size])


def _batch(inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> Batch:
    import torch

    return {"inputs": torch.from_numpy(inputs), "targets": torch.from_numpy(targets)}


def _nats(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross entropy of every target (0 where unscored) and the mask of scored targets; [K, B, T] each."""
    return nats(outputs, targets, ignored=UNSCORED).view(targets.shape), targets != UNSCORED


def _as_text(inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> str:
    pairs = zip(inputs.tolist(), targets.tolist(), strict=True)
    return " ".join(str(token) if target == UNSCORED else f"{token} (then {target})" for token, target in pairs)

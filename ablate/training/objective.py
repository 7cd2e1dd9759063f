"""The loss of a batch and its gradients (at once, in micro-batches, or with the logits in chunks), and evaluations.

An evaluation measures metrics over all batches, over parts of them, and of each example. Shapes: K pack, B batch,
T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from ablate.nn.model.stack import TokenHead
from ablate.nn.pack import Batchwise, ScoredOutputs, add_loss, auxiliary_losses, recomputing, scoring
from ablate.nn.pack.forward_pass import Parts, chunked_logits, in_parts, sum_of_chunks
from ablate.spec.cost import BYTES
from ablate.spec.task import Task
from ablate.spec.training import TrainingSpec
from ablate.training.optimizer import parameter_infos
from ablate.training.sharding import Ranks

if TYPE_CHECKING:
    from ablate.spec.task import Batch


Contexts = Callable[[], AbstractContextManager[object]]
"""Makes a context for one forward pass: precision, and the random streams of the members."""


EVALUATED_TOKENS = 8192
"""Tokens of all members that an evaluation processes at once, where training batches have fewer."""
EVALUATED_BYTES = 16 << 20
"""The most memory that it uses for more rows than training batches have, which no prediction counts."""

_SCORED = "scored"
"""The name of the mask of scored outputs among the tensors of a chunk."""


class Objective:
    """Computes losses and gradients of a task as the training says.

    Args:
        contexts: The context of a forward pass.
        ranks: The processes that share a batch.
        scalars: Of one example in an evaluation, see `evaluation_activations`.
    """

    def __init__(
        self,
        task: Task,
        training: TrainingSpec,
        contexts: Contexts,
        ranks: Ranks = Ranks(),  # noqa: B008 - frozen
        scalars: int = 0,
    ) -> None:
        self._scalars = scalars
        self._ranks = ranks
        self._task = task
        self._training = training
        self._contexts = contexts
        self._batchwise: tuple[nn.Module, list[Batchwise]] | None = None

    def backward(self, model: nn.Module, batch: Batch, random: list[torch.Generator]) -> Tensor:
        """Add the gradients of a batch to those of the parameters.

        Args:
            model: Model of K members, in training mode.
            batch: Tensors [K, B, ...].
            random: The generators from which the noise of dropout is drawn.

        Returns:
            The loss of the task of each member, [K], without auxiliary losses and without gradient.
        """
        rows = batch["inputs"].shape[1] if self._task.uneven_batches else self._training.rows_at_once
        batchwise = self._batchwise_modules(model)
        if self._ranks.count == 1 and rows == batch["inputs"].shape[1]:
            loss = self._backward_of_part(model, batch, batch)
        else:
            pieces = list(cut(self._ranks.rows(batch), rows))
            loss = self._ranks.total(self._backward_of_parts(model, pieces, batch, batchwise, random))
            self._ranks.sum_gradients(model.parameters())
        for module in batchwise:
            module.end_step(self._ranks.total)
        return loss

    def _batchwise_modules(self, model: nn.Module) -> list[Batchwise]:
        """The modules of a model that need whole batches; cached."""
        if self._batchwise is None or self._batchwise[0] is not model:
            self._batchwise = (model, [module for module in model.modules() if isinstance(module, Batchwise)])
        return self._batchwise[1]

    def _backward_of_parts(
        self,
        model: nn.Module,
        pieces: list[Batch],
        batch: Batch,
        batchwise: list[Batchwise],
        random: list[torch.Generator],
    ) -> Tensor:
        parts = Parts()
        shares = [piece["inputs"].shape[1] / batch["inputs"].shape[1] for piece in pieces]
        padded = any(values.dtype == torch.bool for values in batch.values())
        if any(module.needs_first_pass(padded) for module in batchwise):
            before = [generator.get_state() for generator in random]
            for piece, share in zip(pieces, shares, strict=True):
                with torch.no_grad(), in_parts(parts, share):
                    self._outputs(model, piece)
            for generator, state in zip(random, before, strict=True):
                generator.set_state(state)
            for statistic in parts.sums.values():
                self._ranks.total(statistic)
        parts.gathers = False
        losses = []
        for piece, share in zip(pieces, shares, strict=True):
            with in_parts(parts, share):
                losses.append(self._backward_of_part(model, piece, batch, share))
        return torch.stack(losses).sum(0)

    def _backward_of_part(self, model: nn.Module, part: Batch, batch: Batch, share: float = 1.0) -> Tensor:
        """Gradients of a part of a batch.

        Args:
            model: Model of K members.
            share: The share of its rows that the part has: the weight of auxiliary losses.

        Returns:
            The loss of the task, [K], weighted by the number of its terms.
        """
        scored, followed = self._scored_outputs(model, part, batch, share)
        with auxiliary_losses() as others, scoring(scored, followed):
            outputs = self._outputs(model, part)
            loss = self._loss(model, outputs, part, scored)
        if part is not batch:
            loss = loss * (self._task.loss_terms(part) / self._terms(batch))
            others = [other * share for other in others]
        # Members share no parameter, so the gradient of the sum is each member's own.
        sum(others, loss).sum().backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _terms(self, batch: Batch) -> Tensor:
        """By what the terms of parts of a batch are divided, [K]; 1 if there is nothing to predict: then all are 0."""
        terms = self._task.loss_terms(batch)
        return terms.masked_fill(terms == 0, 1)

    def _scored_outputs(
        self, model: nn.Module, part: Batch, batch: Batch, share: float
    ) -> tuple[ScoredOutputs | None, ScoredOutputs | None]:
        """The arguments of `scoring`, if the model adds losses over its outputs."""
        if not isinstance(model, TokenHead) or not (model.spec.z_loss or model.spec.multi_token):
            return None, None
        mask, whole, followed = self._task.scored(part), self._task.scored(batch), None
        if mask is None or whole is None or mask.dtype != torch.bool:
            return None, None
        if model.spec.multi_token is not None:
            followed = ScoredOutputs(_followed_outputs(mask, part), _followed_outputs(whole, batch), share)
        return ScoredOutputs(mask, whole, share), followed

    def _outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Logits, or features [K, B, T, D] if logits are computed in chunks."""
        with ExitStack() as contexts:
            contexts.enter_context(self._contexts())
            contexts.enter_context(recomputing(self._training.recompute == "blocks"))
            contexts.enter_context(chunked_logits(self._training.loss_chunk))
            outputs: Tensor = self._task.outputs(model, batch)
        return outputs

    def _loss(self, model: nn.Module, outputs: Tensor, batch: Batch, scored: ScoredOutputs | None) -> Tensor:
        """The loss of the task, [K]; the loss of the size of the logits is added in chunks too."""
        chunk = self._training.loss_chunk
        if chunk is None:
            return self._task.loss(outputs.float(), batch)
        head = cast(TokenHead, model)
        terms = self._terms(batch)
        if self._task.tokenwise:
            whole = {"targets": batch["targets"].flatten(1)}
            features, size = outputs.flatten(1, 2), chunk
        else:
            whole, features, size = dict(batch), outputs, _rows(chunk, outputs)
        if scored is not None:
            whole[_SCORED] = scored.mask.flatten(1) if self._task.tokenwise else scored.mask
        names, values = list(whole), list(whole.values())
        count = features.shape[1]

        def part(x: Tensor, *tensors: Tensor) -> Tensor:
            """The share of a chunk in the loss of the task and in that of the logits' size, [2, K]."""
            weight, within = x.shape[1] / count, None
            piece = dict(zip(names, tensors, strict=True))
            if self._task.tokenwise:  # one row with all tokens
                x, piece = x.unsqueeze(1), {name: values.unsqueeze(1) for name, values in piece.items()}
            if scored is not None:
                weight, within = 1.0, replace(scored, mask=piece.pop(_SCORED))
            with auxiliary_losses() as others, scoring(within), self._contexts():
                logits = head.logits_of_features(x)
            loss = self._task.loss(logits.float(), piece) * (self._task.loss_terms(piece) / terms)
            return torch.stack([loss, sum(others, torch.zeros_like(loss)) * weight])

        summed = sum_of_chunks(part, size, features, *values)
        if head.spec.z_loss:
            add_loss(summed[1])
        return summed[0]

    def evaluated_rows(self, model: nn.Module, pack: int) -> int:
        """Sequences of a validation batch that small models process at once: a multiple of those of a training batch.

        Many small operations cost more than few large ones. Memory and results stay those of training batches where a
        model needs the former (micro-batches, chunks) or computes over whole batches.
        """
        training = self._training
        if training.micro_batch or training.loss_chunk or self._task.uneven_batches or self._batchwise_modules(model):
            return training.batch_size
        batch = pack * training.batch_size
        by_tokens = EVALUATED_TOKENS // (self._task.shape.context * batch)
        by_memory = EVALUATED_BYTES // max(1, BYTES * self._scalars * batch)
        return max(1, min(by_tokens, by_memory)) * training.batch_size

    @torch.no_grad()
    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Totals of the task over a validation batch [K, B, ...], in micro-batches where training has them."""
        sums: dict[str, Tensor] = {}
        for piece in cut(batch, self._training.micro_batch or self.evaluated_rows(model, len(batch["inputs"]))):
            for name, total in self._totals(model, piece).items():
                sums[name] = sums[name] + total if name in sums else total
        return sums

    def _totals(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        chunk = self._training.loss_chunk
        with self._contexts(), chunked_logits(chunk):
            outputs = self._task.outputs(model, batch)
        if chunk is None:
            return self._task.measure(outputs.float(), batch)
        sums: dict[str, Tensor] = {}
        rows = _rows(chunk, outputs)
        for features, piece in zip(torch.split(outputs, rows, 1), cut(batch, rows), strict=True):
            with self._contexts():
                logits = cast(TokenHead, model).logits_of_features(features)
            for name, total in self._task.measure(logits.float(), piece).items():
                sums[name] = sums[name] + total if name in sums else total
        return sums


def _followed_outputs(scored: Tensor, batch: Batch) -> Tensor:
    """Which outputs of `scored` [K, B, T] stand before a real token of the input, [K, B, T - 1]."""
    padding = batch.get("padding")
    return scored[:, :, :-1] if padding is None else scored[:, :, :-1] & padding[:, :, 1:]


def _rows(chunk: int, features: Tensor) -> int:
    """Chunks of the rows of features [K, B, T, D] with about this many tokens each."""
    return max(1, chunk // features.shape[2])


def cut(batch: Batch, rows: int) -> Iterator[Batch]:
    """Parts of a batch [K, B, ...] of at most this many rows, in order."""
    for first in range(0, batch["inputs"].shape[1], rows):
        yield {name: values[:, first : first + rows] for name, values in batch.items()}


def join_batches(batches: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """Batches [B, ...], with consecutive ones of equal shape joined to at most this many rows, in order."""
    kept: list[Batch] = []
    for batch in batches:
        shapes = {name: values.shape[1:] for name, values in batch.items()}
        if kept and (
            sum(len(before["inputs"]) for before in kept) + len(batch["inputs"]) > rows
            or shapes != {name: values.shape[1:] for name, values in kept[0].items()}
        ):
            yield _join(kept)
            kept = []
        kept.append(batch)
    if kept:
        yield _join(kept)


def _join(batches: list[Batch]) -> Batch:
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


@contextmanager
def rounded_weights(model: nn.Module, bits: int) -> Iterator[None]:
    """Context manager: the matrices of the layers are rounded to integers of so many bits times a scale.

    To the nearest, symmetric around 0, one scale for each member and output channel: Δ = max|w| / (2^(bits-1) - 1), and
    w ← Δ·round(w/Δ) (symmetric quantisation of arXiv:2106.08295, section 2). Embeddings, the head, biases, gains and
    activations are not rounded.
    """
    named = dict(model.named_parameters())
    matrices = [named[info.name] for info in parameter_infos(model) if info.role == "matrix"]
    before = [matrix.detach().clone() for matrix in matrices]
    try:
        with torch.no_grad():
            for matrix in matrices:
                scale = matrix.abs().amax(-2, keepdim=True) / (2 ** (bits - 1) - 1)
                scale = torch.where(scale == 0, 1.0, scale)
                matrix.copy_((matrix / scale).round() * scale)
        yield
    finally:
        with torch.no_grad():
            for matrix, old in zip(matrices, before, strict=True):
                matrix.copy_(old)


PARTS = 8
"""Parts of the validation data over which final metrics are measured separately. Their spread shows how much metrics
depend on the draw of the data."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics by name; each has a value for every position of the model.

    Attributes:
        metrics: Over all batches; empty if there are none.
        parts: Over each of `PARTS` parts of the batches; empty if there are fewer batches, or unless asked for. Of
            eight batches a shorter last one belongs to the seventh part. A part without scored tokens is left out.
        windows: For every position, of each example by itself; empty unless asked for. An example without scored
            tokens has none. Where a metric is not the mean of those of examples (of texts of unequal length, of
            sources with weights), these are the jackknife's pseudo-values, shifted so that it is their mean.
    """

    metrics: dict[str, list[float]]
    parts: dict[str, list[list[float]]] = field(default_factory=dict)
    windows: dict[str, list[list[float]]] = field(default_factory=dict)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    objective: Objective,
    batches: Iterable[Batch],
    positions: int,
    device: torch.device,
    *,
    parts: bool = False,
    windows: bool = False,
) -> Evaluation:
    """Evaluate a model of several members over batches, which all members share.

    Args:
        objective: Measures a batch.
        batches: Without the pack axis.
        positions: Number of members of the model.
        parts: Whether to measure parts of the batches too.
        windows: Whether to measure each example by itself too.
    """
    model.eval()
    sums: dict[str, Tensor] = {}
    of_parts: list[dict[str, Tensor]] = []
    examples: list[dict[str, Tensor]] = []
    rows: list[int] = []
    for number, batch in enumerate(batches):
        rows.append(len(batch["inputs"]))
        if number < PARTS:
            of_parts.append({})
        packed = {name: values.to(device).expand(positions, *values.shape) for name, values in batch.items()}
        totals = objective.measure(model, packed)
        _add(sums, totals)
        _add(of_parts[number % PARTS], totals)
        if windows:
            examples += _totals_of_each(task, objective, model, packed)
    model.train()
    by_part: dict[str, list[list[float]]] = {}
    if parts and len(of_parts) == PARTS:
        if len(rows) == PARTS and rows[-1] < rows[0]:
            _add(of_parts[-2], of_parts.pop())
        by_part = _gather(metrics for part in of_parts if (metrics := _metrics_if_scored(task, part)) is not None)
    metrics = _metrics(task, sums) if sums else {}
    return Evaluation(metrics, by_part, _of_examples(task, sums, metrics, examples))


def _add(into: dict[str, Tensor], totals: dict[str, Tensor]) -> None:
    for name, total in totals.items():
        into[name] = into[name] + total.double() if name in into else total.double()


def _gather(of_each: Iterable[dict[str, list[float]]]) -> dict[str, list[list[float]]]:
    """Metric to its values in each of several evaluations, for every position there."""
    found: dict[str, list[list[float]]] = {}
    for metrics in of_each:
        for name, values in metrics.items():
            found.setdefault(name, []).append(values)
    return found


def _metrics(task: Task, totals: dict[str, Tensor]) -> dict[str, list[float]]:
    return task.metrics({name: total.tolist() for name, total in totals.items()})


def _metrics_if_scored(task: Task, totals: dict[str, Tensor]) -> dict[str, list[float]] | None:
    """The metrics; None if there are no scored tokens."""
    try:
        return _metrics(task, totals)
    except ZeroDivisionError:
        return None


def _totals_of_each(task: Task, objective: Objective, model: nn.Module, packed: Batch) -> Iterator[dict[str, Tensor]]:
    """The totals of each example of a batch, [K, B, ...], that has scored tokens."""
    for index in range(len(packed["inputs"][0])):
        totals = objective.measure(model, {name: values[:, index : index + 1] for name, values in packed.items()})
        if _metrics_if_scored(task, totals) is not None:
            yield {name: total.double() for name, total in totals.items()}


def _of_examples(
    task: Task, sums: dict[str, Tensor], whole: dict[str, list[float]], examples: Sequence[dict[str, Tensor]]
) -> dict[str, list[list[float]]]:
    """Metric to its value of each example, for every position; see `Evaluation.windows`."""
    found = {
        name: [list(values) for values in zip(*of_each, strict=True)]
        for name, of_each in _gather(_metrics(task, totals) for totals in examples).items()
    }
    weighted = {name for name, values in found.items() if not all(map(_is_mean, whole[name], values))}
    if not weighted or len(examples) < 2:
        return found
    without = _gather(
        _metrics(task, {name: total - totals[name] for name, total in sums.items()}) for totals in examples
    )
    for name in weighted:
        found[name] = [
            [value + (len(rest) - 1) * (math.fsum(rest) / len(rest) - left) for left in rest]
            for value, rest in zip(whole[name], zip(*without[name], strict=True), strict=True)
        ]
    return found


def _is_mean(value: float, of: Sequence[float]) -> bool:
    return math.isclose(value, math.fsum(of) / len(of), rel_tol=1e-9, abs_tol=1e-12)

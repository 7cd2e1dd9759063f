"""The contract of a task, tried with a small model of each family that can learn it. Shapes: K pack, B batch."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.locations import temporary_folder
from ablate.nn.model import build_model
from ablate.spec.model import ModelSpec
from ablate.spec.suite import is_accuracy
from ablate.spec.task import TASKS, Task, TaskSpec

if TYPE_CHECKING:
    from ablate.spec.task import Batch

_TOLERANCE = 1e-4
SAMPLE = f"file:{Path(__file__).with_name('sample.jsonl')}"
"""Address of sixty short rows with the columns `text`, `label`, `a` and `b`."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What learns the task.

    Attributes:
        batch_size: B.
    """

    model_family: str
    batch_size: int


@contextmanager
def _open_task(spec: TaskSpec) -> Iterator[Task]:
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        cache = Path(folder)
        yield spec.open(cache, spec.prepare(cache, lambda line: None))


def _model(spec: TaskSpec, task: Task, context: TaskContext, seeds: list[int]) -> nn.Module:
    dual = context.model_family == "dual_encoder"
    plain: dict[str, Any] = {"family": context.model_family, "width": 12, "depth": 1, "heads": 3, "block": "pre_ln"}
    if spec.pooled or (spec.pooled is None and dual):
        plain["head"] = {"pooling": "mean"}
    if context.model_family == "encoder_decoder":
        plain["decoder"] = {"depth": 1, "mixer": "attention"}
    shape = task.shape
    return build_model(
        ModelSpec.model_validate(plain),
        vocabulary=shape.vocabulary,
        context=shape.context,
        classes=shape.classes,
        seeds=seeds,
    ).eval()


def _pack(batch: Batch, pack: int) -> Batch:
    return {name: values.expand(pack, *values.shape) for name, values in batch.items()}


def _equal(left: Batch, right: Batch) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def preparation_is_deterministic(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """Prepared again, in the same folder or in another, the data has the same fingerprint."""
    scratch = temporary_folder()
    with tempfile.TemporaryDirectory(dir=scratch) as here, tempfile.TemporaryDirectory(dir=scratch) as there:
        prints = [spec.prepare(Path(folder), lambda line: None) for folder in (here, here, there)]
    if len(set(prints)) > 1:
        yield f"its fingerprints are {', '.join(prints)}"


def draws_batches_by_seed_and_step(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """A batch is a function of seed, step and size alone; seeds share its shapes; steps and seeds differ."""
    with _open_task(spec) as task, _open_task(spec) as other:
        first = task.train_batch(3, 2, context.batch_size)
        task.train_batch(3, 1, context.batch_size)
        if not _equal(first, task.train_batch(3, 2, context.batch_size)):
            yield "the same seed and step gave another batch"
        if not _equal(first, other.train_batch(3, 2, context.batch_size)):
            yield "the task, opened again, gave another batch"
        of_other_seed = task.train_batch(4, 2, context.batch_size)
        if {name: t.shape for name, t in first.items()} != {name: t.shape for name, t in of_other_seed.items()}:
            yield "two seeds have batches of other shapes at one step"
        if _equal(first, of_other_seed) and _equal(first, task.train_batch(3, 3, context.batch_size)):
            yield "every seed and step has the same batch"


def has_shorter_inputs(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """If it says that inputs may have fewer tokens, they have as many as are asked for, the same tensors as whole
    inputs, and a loss; those of the whole length are the whole inputs."""
    if not spec.shortens:
        return
    with _open_task(spec) as task:
        whole, context_length = task.train_batch(3, 2, context.batch_size), task.shape.context
        if not _equal(whole, task.shorter_batch(3, 2, context.batch_size, context_length)):
            yield "a shorter batch with inputs of the whole length is not `train_batch`"
        length = (context_length + 1) // 2
        once, again = (task.shorter_batch(3, 2, context.batch_size, length) for _ in range(2))
        if once["inputs"].shape != (context.batch_size, length):
            yield f"{length} tokens were asked for, and `inputs` are of shape {tuple(once['inputs'].shape)}"
            return
        if not _equal(once, again):
            yield "the same seed and step gave another shorter batch"
        if once.keys() != whole.keys():
            yield f"shorter batches have {', '.join(sorted(once))}, and whole ones {', '.join(sorted(whole))}"
            return
        loss = task.loss(task.outputs(_model(spec, task, context, [0]), _pack(once, 1)).float(), _pack(once, 1))
        if not loss.isfinite().all():
            yield f"the loss of shorter inputs is {loss.tolist()}"


def keeps_ids_within_the_vocabulary(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """`inputs` are integers [B, T] from 0 to below the vocabulary, and no longer than the context."""
    with _open_task(spec) as task:
        inputs = task.train_batch(0, 1, context.batch_size)["inputs"]
        if inputs.dtype != torch.int64 or inputs.shape[0] != context.batch_size:
            yield f"`inputs` are {inputs.dtype} of shape {tuple(inputs.shape)} in a batch of {context.batch_size}"
        if not (inputs.min() >= 0 and inputs.max() < task.shape.vocabulary):
            yield f"`inputs` go from {inputs.min()} to {inputs.max()}, and the vocabulary is {task.shape.vocabulary}"
        if not inputs.shape[-1] <= task.shape.context:
            yield f"`inputs` have {inputs.shape[-1]} tokens, and the context is {task.shape.context}"


def validates_on_the_same_batches(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """The validation batches are the same at every pass, and there are some."""
    with _open_task(spec) as task:
        once, again = (list(task.validation_batches(context.batch_size)) for _ in range(2))
        if not once:
            yield "there are no validation batches"
        if len(once) != len(again) or not all(map(_equal, once, again)):
            yield "a second pass over the validation gave other batches"


def has_a_loss_for_each_member(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """The loss is finite and has a gradient; in a pack of two each member has the loss that it has alone."""
    seeds = [5, 2]
    with _open_task(spec) as task:
        batch = task.train_batch(0, 1, context.batch_size)
        pack = _model(spec, task, context, seeds)
        loss = task.loss(task.outputs(pack, _pack(batch, 2)).float(), _pack(batch, 2))
        if loss.shape != (2,):
            yield f"the loss of a pack of two has the shape {tuple(loss.shape)}"
            return
        if not loss.isfinite().all():
            yield f"the loss is {loss.tolist()}"
        loss.sum().backward()  # type: ignore[no-untyped-call]
        if not any(parameter.grad is not None and parameter.grad.any() for parameter in pack.parameters()):
            yield "the loss has no gradient"
        for member, seed in enumerate(seeds):
            model = _model(spec, task, context, [seed])
            alone = task.loss(task.outputs(model, _pack(batch, 1)).float(), _pack(batch, 1))
            if not abs(alone.item() - loss[member].item()) <= _TOLERANCE:
                yield f"member {member} has the loss {loss[member].item():.6g} in a pack, and {alone.item():.6g} alone"


def weights_losses_of_parts(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """The losses of the two halves of a batch, weighted by `loss_terms`, give the loss of the batch."""
    with _open_task(spec) as task, torch.no_grad():
        model = _model(spec, task, context, [5, 2])
        batch = _pack(task.train_batch(0, 1, context.batch_size), 2)
        half = context.batch_size // 2
        pieces = [{name: t[:, s] for name, t in batch.items()} for s in (slice(half), slice(half, None))]
        losses = [task.loss(task.outputs(model, piece).float(), piece) for piece in (batch, *pieces)]
        whole, *parts = [task.loss_terms(piece) for piece in (batch, *pieces)]
    if whole.shape != (2,):
        yield f"`loss_terms` of a pack of two has the shape {tuple(whole.shape)}"
        return
    if not torch.equal(torch.stack(parts).sum(0), whole):
        yield f"`loss_terms` is {whole.tolist()} for a batch, and {[part.tolist() for part in parts]} for its halves"
    if task.tokenwise:
        with torch.no_grad():
            outputs, targets = task.outputs(model, batch).float().flatten(1, 2), batch["targets"].flatten(1)
            apart = task.loss(outputs.unsqueeze(1), {"targets": targets.unsqueeze(1)})
        if not (apart - losses[0]).abs().max() <= _TOLERANCE:
            yield f"it is `tokenwise`, and the loss of all tokens in one row is {apart.tolist()}"
    joined = (losses[1] * parts[0] + losses[2] * parts[1]) / whole
    if not (joined - losses[0]).abs().max() <= _TOLERANCE:
        yield f"the loss is {losses[0].tolist()}, and {joined.tolist()} by its halves and `loss_terms`"


def measures_its_metrics(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """`metrics` gives `metric_names`, `val_loss` among them, a number for each member, of an accuracy from 0 to 1."""
    with _open_task(spec) as task, torch.no_grad():
        model = _model(spec, task, context, [5, 2])
        sums: dict[str, torch.Tensor] = {}
        for batch in task.validation_batches(context.batch_size):
            packed = _pack(batch, 2)
            for name, total in task.measure(task.outputs(model, packed).float(), packed).items():
                sums[name] = sums.get(name, 0) + total.double()
        metrics = task.metrics({name: total.tolist() for name, total in sums.items()})
    if set(metrics) != spec.metric_names or "val_loss" not in metrics:
        yield f"it measures {', '.join(sorted(metrics))}, and `metric_names` are {', '.join(sorted(spec.metric_names))}"
    for name, values in metrics.items():
        if len(values) != 2 or not all(isinstance(value, float) for value in values):
            yield f"`{name}` of a pack of two is {values!r}"
        elif name == "val_loss" and not all(map(math.isfinite, values)):
            yield f"`val_loss` is {values}"
        elif is_accuracy(name) and not all(0 <= value <= 1 for value in values):
            yield f"`{name}` is {values}, and an accuracy lies between 0 and 1"


def measures_at_other_lengths(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """If it names its `length_field`, there are validation batches at twice its length, with the same vocabulary."""
    if not spec.length_field:
        return
    longer = spec.at_length(2 * getattr(spec, spec.length_field))
    with _open_task(spec) as task:
        other = task.at_length(2 * getattr(spec, spec.length_field))
        if (shape := other.shape).vocabulary != task.shape.vocabulary or shape.context != longer.length:
            yield f"at twice its length it has the shape {shape}, and {task.shape} at its own"
        if not all(batch["inputs"].shape[1] == shape.context for batch in other.validation_batches(context.batch_size)):
            yield f"inputs of {shape.context} tokens are expected at twice its length"


def has_valid_trivial_baselines(spec: TaskSpec, context: TaskContext) -> Iterator[str]:
    """Its trivial baselines, if it has any, are measured by its own metrics."""
    known = spec.metric_names | spec.final_metric_names
    with _open_task(spec) as task:
        for name, metrics in task.baselines().items():
            if unknown := sorted(set(metrics) - known):
                yield f"the baseline {name} has {', '.join(unknown)}, which no list of its metrics has"


CONTRACT: Contract[TaskSpec, TaskContext] = Contract(
    family=TASKS,
    rules=by_name(
        preparation_is_deterministic,
        draws_batches_by_seed_and_step,
        has_shorter_inputs,
        keeps_ids_within_the_vocabulary,
        validates_on_the_same_batches,
        has_a_loss_for_each_member,
        weights_losses_of_parts,
        measures_its_metrics,
        measures_at_other_lengths,
        has_valid_trivial_baselines,
        round_trips_through_json,
    ),
    contexts=lambda spec: [TaskContext(family, 4) for family in sorted(spec.model_families)],
    given={
        "data": SAMPLE,
        "sources": {"texts": {"data": SAMPLE, "weight": 2.0}, "pairs": {"data": SAMPLE, "weight": 1.0, "text": "a"}},
        "tokenizer": "bytes",
        "context": 48,
        "source": "a",
        "target": "b",
    },
    smaller={"train_rows": 60, "validation_rows": 20, "shortest": 5, "longest": 20},
    describe=lambda context: f"{context.model_family}, batches of {context.batch_size}",
)

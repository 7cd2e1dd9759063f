"""Micro-batches, recomputed blocks and chunked logits: the losses and gradients of the whole batch, in less memory."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from random_tokens import CPU, RandomTokens, points, run, variant
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ablate.contracts.task import SAMPLE
from ablate.nn.model import build_model, model_cost
from ablate.planning.memory import largest_micro_batch, trial_bytes
from ablate.planning.plan import Variant
from ablate.spec.model import ModelSpec
from ablate.spec.task import TASKS, DataShape, Task
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.scores import nats
from ablate.training.members import Member
from ablate.training.objective import Evaluation, Objective, evaluate, join_batches
from ablate.training.pack import Pack

if TYPE_CHECKING:
    from ablate.spec.task import Batch

SHAPES = [(2, 3), (2, 3), (2, 3), (1, 4), (7, 4)]
"""Rows and tokens of batches."""
MIXTURE = {"kind": "mixture", "experts": 4, "balance_loss": 2.0, "balance_rate": 0.01, "z_loss": 0.1}
MODELS: dict[str, dict[str, Any]] = {
    "pre_ln": {},
    "sas": {"block": "sas"},
    "mixture": {"block": {"mixer": "attention", "mlp": MIXTURE}, "z_loss": 0.1},
    "shared logits": {"multi_token": {"form": "same_logits", "weights": [0.5, 0.3]}, "logit_cap": 5.0},
    "modules": {"multi_token": {"form": "modules", "weights": [0.5]}, "z_loss": 0.1},
    "loops": {
        "block": {"mixer": "attention", "mlp": {**MIXTURE, "balance_rate": 0.0}},
        "loops": [{"first": 0, "last": 1, "times": 2}],
    },
}
WAYS: list[dict[str, Any]] = [
    {"micro_batch": 1},
    {"recompute": "blocks"},
    {"loss_chunk": 5},
    {"micro_batch": 2, "recompute": "blocks", "loss_chunk": 4},
]


def trained(model: dict[str, Any], **training: Any) -> tuple[dict[str, Tensor], list[float], dict[str, list[float]]]:
    """Gradients and buffers of a pack of two after the first of three steps, its losses, and its validation."""
    with Pack([Member(variant(model, steps=3, **training), seed) for seed in (5, 2)], RandomTokens(), CPU) as pack:
        pack.step(1)
        state = {name: parameter.grad for name, parameter in pack.model.named_parameters()}
        state |= dict(pack.model.named_buffers())
        kept = {name: tensor.clone() for name, tensor in state.items() if tensor is not None}
        losses = pack.last_loss()
        for step in (2, 3):
            pack.step(step)
            losses += pack.last_loss()
        return kept, losses, pack.point().metrics


@pytest.mark.parametrize("name", MODELS)
def test_three_steps_are_those_of_the_whole_batch(name: str) -> None:
    model = MODELS[name]
    whole, losses, metrics = trained(model)
    for way in WAYS:
        state, again, measured = trained(model, **way)
        # AdamW divides a gradient by its own size, which makes rounding errors of small gradients larger.
        assert again == pytest.approx(losses, abs=1e-4), way
        assert measured["val_loss"] == pytest.approx(metrics["val_loss"], abs=1e-4), way
        assert state.keys() == whole.keys()
        for key, values in whole.items():
            torch.testing.assert_close(state[key], values, atol=3e-7, rtol=2e-5, msg=f"{way} {key}")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputed_blocks_have_the_same_noise(dropout: float) -> None:
    whole, losses, _ = trained({"dropout": dropout})
    state, again, _ = trained({"dropout": dropout}, recompute="blocks")
    assert again == losses
    assert all(torch.equal(state[key], values) for key, values in whole.items())


TASK_SPECS: dict[str, dict[str, Any]] = {
    "translation": {
        "kind": "translation",
        "data": "builtin:number_words",
        "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "context": 48,
        "source": "english",
        "target": "german",
        "validation_pairs": 30,  # as in the tests of the task, which is prepared once for all
        "label_smoothing": 0.1,
    },
    "recall": {"kind": "recall"},
    "masked": {
        "kind": "masked_language_model",
        "data": "builtin:python_stdlib",
        "tokenizer": "bytes",
        "context": 24,
        "label_smoothing": 0.1,
    },
}


@pytest.mark.parametrize("name", TASK_SPECS)
def test_targets_have_equal_weight_whatever_their_part(name: str, cache: Path) -> None:
    """Parts have different numbers of targets; gradients are compared."""
    spec = TASKS.members()[TASK_SPECS[name]["kind"]].model_validate(TASK_SPECS[name])
    task: Task = spec.open(cache, spec.prepare(cache, lambda line: None))
    family = sorted(spec.model_families)[0]
    plain: dict[str, Any] = {"family": family, "width": 12, "depth": 2, "heads": 3, "block": "pre_ln", "z_loss": 0.1}
    if family == "encoder_decoder":
        plain["decoder"] = {"depth": 2, "mixer": "attention"}
    batch = {key: values[None].expand(2, *values.shape) for key, values in task.train_batch(0, 1, 6).items()}

    def gradients(**training: Any) -> tuple[Tensor, list[Tensor]]:
        model = build_model(
            ModelSpec.model_validate(plain), vocabulary=task.shape.vocabulary, context=task.shape.context, seeds=[1, 2]
        )
        way = TrainingSpec.model_validate({"steps": 1, "batch_size": 6, "optimizer": {"lr": 1e-3}, **training})
        loss = Objective(task, way, torch.enable_grad).backward(model, batch, [])
        return loss, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    loss, whole = gradients()
    for way in ({"micro_batch": 2}, {"recompute": "blocks"}, {"loss_chunk": 7}, {"micro_batch": 3, "loss_chunk": 30}):
        other, found = gradients(**way)
        torch.testing.assert_close(other, loss, atol=2e-6, rtol=0)
        for ours, theirs in zip(found, whole, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


V, T = 4000, 64


class ManyTokens(RandomTokens):
    """Random tokens of a large vocabulary."""

    tokenwise = True

    def __init__(self) -> None:
        super().__init__()
        self.shape = DataShape(vocabulary=V, context=T)

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        tokens = torch.randint(V, (batch_size, T + 1), generator=torch.Generator().manual_seed(step))
        return {"inputs": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        yield self.train_batch(0, 0, batch_size)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return nats(outputs, batch["targets"]).mean(1)

    def loss_terms(self, batch: Batch) -> Tensor:
        return torch.tensor([batch["targets"][0].numel()])


def large(**training: Any) -> Variant:
    spec = VariantSpec.model_validate(
        {
            "model": {"family": "decoder", "depth": 4, "width": 64, "heads": 4, "block": "pre_ln"},
            "task": {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": T},
            "training": {"steps": 3, "batch_size": 16, "optimizer": {"lr": 1e-3}, "evaluations": 1, **training},
        }
    )
    cost = model_cost(spec.model, vocabulary=V, context=T)
    return Variant("v", {}, spec, "", cost, 0.0, "", vocabulary=V, context=T)


def peak_bytes(made: Variant) -> int:
    """The most that tensors need at once during a step, with weights and the state of the optimizer."""
    with Pack([Member(made.spec, 0)], ManyTokens(), CPU) as pack:
        pack.step(1)
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
            pack.step(2)
        changes = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = most = 0
        for change in sorted(changes, key=lambda event: event.start_ns()):
            now += change.nbytes()
            most = max(most, now)
        return most + 12 * sum(parameter.numel() for parameter in pack.model.parameters())


def test_memory_drops_as_predicted() -> None:
    ways: list[dict[str, Any]] = [{}, {"recompute": "blocks"}, {"micro_batch": 4}, {"loss_chunk": 128}]
    ways.append({"recompute": "blocks", "loss_chunk": 128})
    peaks = [peak_bytes(large(**way)) for way in ways]
    for way, measured in zip(ways, peaks, strict=True):
        assert 0.95 * measured < trial_bytes(large(**way)) < 1.15 * measured, way
    assert max(peaks[1:]) < peaks[0]
    assert peaks[-1] < peaks[0] / 3


def test_the_largest_micro_batch_that_fits_is_found() -> None:
    made = large()
    for there in (trial_bytes(large(micro_batch=4)), trial_bytes(large(micro_batch=8)) - 1):
        found = largest_micro_batch(made, there)
        assert found is not None
        assert (found.micro_batch, found.recompute) == (4, "none")
    found = largest_micro_batch(made, trial_bytes(large(micro_batch=1)) - 1)
    assert found is not None
    assert found.recompute == "blocks"
    assert largest_micro_batch(made, 1000) is None


def test_what_is_at_its_default_changes_no_hash() -> None:
    named = large(micro_batch=None, recompute="none", loss_chunk=None).spec.content_hash()
    assert named == large().spec.content_hash()
    assert named != large(micro_batch=4).spec.content_hash()


@pytest.mark.parametrize("size", [3, 32])
def test_a_micro_batch_that_does_not_divide_is_refused(size: int) -> None:
    with pytest.raises(ValidationError, match="a micro-batch divides the batch, which has 16 sequences"):
        large(micro_batch=size)


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_evaluations_before_the_last_join_batches_of_the_same_windows(
    seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = variant({"depth": 2}, steps=4, evaluations=4)
    together = points(run(spec, seeds))
    monkeypatch.setattr("ablate.training.objective.EVALUATED_TOKENS", 0)
    apart = points(run(spec, seeds))
    for one, other in zip(together, apart, strict=True):
        assert one.metrics["val_loss"] == pytest.approx(other.metrics["val_loss"], rel=1e-6)
    assert together[-1].metrics == apart[-1].metrics


@pytest.mark.parametrize(("name", "joined"), [("pre_ln", True), ("mixture", False)])
def test_batches_are_not_joined_for_a_module_that_computes_over_whole_ones(name: str, joined: bool) -> None:
    with Pack([Member(variant(MODELS[name], steps=1), 0)], RandomTokens(), CPU) as pack:
        assert (pack._objective.evaluated_rows(pack.model, 1) > pack.training.batch_size) == joined


def test_batches_are_joined_up_to_a_number_of_rows_and_only_where_their_shapes_agree() -> None:
    batches = [{"inputs": torch.full((rows, length), number)} for number, (rows, length) in enumerate(SHAPES)]
    made = list(join_batches(batches, 5))
    assert [tuple(batch["inputs"].shape) for batch in made] == [(4, 3), (2, 3), (1, 4), (7, 4)]
    assert torch.cat([batch["inputs"].flatten() for batch in made]).tolist() == [
        number for number, (rows, length) in enumerate(SHAPES) for _ in range(rows * length)
    ]


def measured(plain: dict[str, Any], cache: Path, batch_size: int) -> Evaluation:
    """The evaluation of a pack of two untrained models, in parts and example by example."""
    spec = TASKS.members()[plain["kind"]].model_validate(plain)
    task: Task = spec.open(cache, spec.prepare(cache, lambda line: None))
    model: dict[str, Any] = {"family": sorted(spec.model_families)[0], "width": 12, "depth": 1, "heads": 3}
    model |= {"block": "pre_ln", "init_std": 0.5}
    if model["family"] == "encoder_decoder":
        model["decoder"] = {"depth": 1, "mixer": "attention"}
    if spec.pooled:
        model["head"] = {"pooling": "mean"}
    sizes = {"vocabulary": task.shape.vocabulary, "context": task.shape.context, "classes": task.shape.classes}
    built = build_model(ModelSpec.model_validate(model), **sizes, seeds=[1, 2])
    way = TrainingSpec.model_validate({"steps": 1, "batch_size": batch_size, "optimizer": {"lr": 1e-3}})
    batches = task.validation_batches(batch_size)
    objective = Objective(task, way, torch.enable_grad)
    return evaluate(built, task, objective, batches, 2, CPU, parts=True, windows=True)


def test_parts_without_scored_tokens_are_left_out(cache: Path) -> None:
    found = measured({"kind": "stack", "operations": 3, "validation_rows": 16}, cache, 2)
    assert 1 <= len(found.parts["val_loss"]) < 8
    assert all(math.isfinite(loss) for part in found.parts["val_loss"] for loss in part)


def test_the_last_point_alone_has_the_parts_of_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.training.objective.PARTS", 2)  # there are two batches
    before, last = points(run(variant({}, steps=2, evaluations=1), [5, 2]))
    assert before.parts == {}
    assert np.mean(last.parts["val_loss"], axis=0) == pytest.approx(last.metrics["val_loss"])


@pytest.mark.parametrize(("rows", "parts"), [(56, 0), (57, 7), (64, 8), (65, 8)])
def test_a_shorter_last_batch_is_no_part_of_its_own(rows: int, parts: int, cache: Path) -> None:
    """Of parts of 8 sequences each, one of a single sequence would vary eight times as much."""
    found = measured({"kind": "copy", "span": 3, "symbols": 4, "validation_rows": rows}, cache, 8)
    assert len(found.parts.get("val_loss", [])) == parts
    if rows == 57:
        by_rows = np.average(np.array(found.parts["val_loss"]), axis=0, weights=[8] * 6 + [9])
        assert by_rows == pytest.approx(found.metrics["val_loss"])


WINDOWED: dict[str, dict[str, Any]] = {
    "text": {"kind": "language_model", "data": SAMPLE, "tokenizer": "bytes", "context": 12, "validation_windows": 12},
    "sources": {
        "kind": "language_mixture",
        "sources": {"left": {"data": SAMPLE, "weight": 9}, "right": {"data": SAMPLE, "weight": 1, "text": "a"}},
        "tokenizer": "bytes",
        "context": 12,
        "validation_windows": 9,
    },
    "translation": TASK_SPECS["translation"],
    "classes": {"kind": "classification", "data": SAMPLE, "tokenizer": "bytes", "context": 16},
    "recall": {"kind": "in_context_recall", "context": 16, "symbols": 12, "validation_rows": 40},
}


@pytest.mark.parametrize("name", WINDOWED)
def test_the_values_of_examples_have_the_metric_as_their_mean(name: str, cache: Path) -> None:
    """Also where examples have unequal weights, and where a metric is no mean at all."""
    found = measured(WINDOWED[name], cache, 8)
    for metric, values in found.windows.items():
        for member, of_member in enumerate(values):
            exact = found.metrics[metric][member]
            assert np.mean(of_member) == pytest.approx(exact, rel=1e-6), metric
    losses = np.array(found.windows["val_loss"])
    assert losses.shape[1] > 5
    assert losses.std(axis=1).min() > 0


def test_losses_of_rounded_weights_are_those_of_weights_that_numpy_rounds() -> None:
    """Rounded by numpy, one output channel after another; the trial goes on with its own weights."""
    spec, task = variant({"depth": 2}, steps=2, rounded_bits=[8, 3]), RandomTokens()
    with Pack([Member(spec, 0), Member(spec, 1)], task, CPU) as pack:
        for step in (1, 2):
            pack.step(step)
        trained = {name: tensor.clone() for name, tensor in pack.model.state_dict().items()}
        metrics = pack.point().metrics
        assert all(torch.equal(tensor, trained[name]) for name, tensor in pack.model.state_dict().items())
        for bits in (8, 3):
            rounded = {name: tensor.clone() for name, tensor in trained.items()}
            matrices = [name for name in rounded if name.startswith("blocks") and rounded[name].dim() == 3]
            assert len(matrices) == 2 * 6
            for name in matrices:
                for member in range(2):
                    for column in rounded[name][member].T:
                        weights = column.numpy()
                        scale = np.abs(weights).max() / (2 ** (bits - 1) - 1) or 1.0
                        column.copy_(torch.from_numpy(np.rint(weights / scale) * scale))
            pack.model.load_state_dict(rounded)
            batches = [{name: x.expand(2, *x.shape) for name, x in b.items()} for b in task.validation_batches(4)]
            with torch.no_grad():
                losses = torch.stack([task.loss(task.outputs(pack.model.eval(), batch), batch) for batch in batches])
            assert metrics[f"val_loss_int{bits}"] == pytest.approx(losses.mean(0).tolist(), rel=1e-6)
            assert metrics[f"val_loss_int{bits}"] != metrics["val_loss"]

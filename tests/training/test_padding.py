"""Losses, gradients, statistics, metrics and recordings of some texts do not depend on how far the texts are padded."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from ablate.contracts.modules import noise, perturb
from ablate.contracts.task import SAMPLE
from ablate.nn.model import build_model
from ablate.nn.pack import auxiliary_losses, counting
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import MIXERS, MLPS
from ablate.spec.task import TASKS, Task
from ablate.spec.training import TrainingSpec
from ablate.tasks.probe import UNSCORED
from ablate.training.block_recordings import look_inside
from ablate.training.objective import Objective

if TYPE_CHECKING:
    from ablate.spec.task import Batch

PACK, LONGER = 2, (3, 20)
EXPERTS = {"kind": "mixture", "experts": 4, "balance_loss": 0.7, "balance_rate": 0.01, "z_loss": 0.3}
TASK_SPECS: dict[str, dict[str, Any]] = {
    "copy": {"span": 5, "symbols": 6},
    "masked_language_model": {"data": SAMPLE, "tokenizer": "bytes", "context": 11, "label_smoothing": 0.1},
    "classification": {"data": SAMPLE, "tokenizer": "bytes", "context": 24},
    "matching": {"data": SAMPLE, "tokenizer": "bytes", "context": 24},
    "translation": {
        "data": SAMPLE,
        "tokenizer": "bytes",
        "context": 60,
        "source": "a",
        "target": "b",
        "label_smoothing": 0.1,
        "validation_pairs": 8,
    },
}
MODELS: dict[str, dict[str, Any]] = {
    "copy": {"family": "decoder", "z_loss": 0.2, "multi_token": {"form": "modules", "weights": [0.5, 0.3]}},
    "copy, shared logits": {
        "family": "decoder",
        "z_loss": 0.2,
        "multi_token": {"form": "same_logits", "weights": [0.5, 0.3]},
    },
    "masked_language_model": {"family": "encoder", "z_loss": 0.2},
    "classification": {"family": "encoder", "head": {"pooling": "mean"}},
    "classification, first token": {"family": "encoder", "head": {"pooling": "cls"}},
    "matching": {"family": "dual_encoder", "head": {"pooling": "mean"}},
    "translation": {"family": "encoder_decoder", "z_loss": 0.2, "decoder": {"depth": 1, "mixer": "attention"}},
}
WAYS: list[dict[str, Any]] = [{}, {"micro_batch": 2}, {"recompute": "blocks", "micro_batch": 3}, {"loss_chunk": 5}]


def opened(name: str, cache: Path) -> Task:
    spec = TASKS.members()[name].model_validate({"kind": name, **TASK_SPECS[name]})
    return spec.open(cache, spec.prepare(cache, lambda line: None))


def model_of(task: Task, plain: dict[str, Any], block: dict[str, Any]) -> nn.Module:
    spec = ModelSpec.model_validate({"width": 12, "depth": 2, "heads": 3, **plain, "block": block})
    shape = task.shape
    # The context has room for the longest padding.
    context = shape.context + max(LONGER)
    return build_model(
        spec, vocabulary=shape.vocabulary, context=context, classes=shape.classes, seeds=[*range(PACK)]
    ).train()


def padded(batch: Batch, more: int, vocabulary: int) -> Batch:
    """A batch [K, B, ...], all texts of which are followed by more tokens of padding; they hold any ids."""
    found = dict(batch)
    found.setdefault("padding", torch.ones_like(batch["inputs"], dtype=torch.bool))
    ids = torch.Generator().manual_seed(more)
    for name in ("inputs", "other", "before"):
        if name in batch:
            any_ids = torch.randint(vocabulary, (*batch[name].shape[:2], more), generator=ids)
            found[name] = torch.cat([batch[name], any_ids], 2)
    for name in ("padding", "other_padding", "before_padding"):
        if name in found:
            found[name] = torch.nn.functional.pad(found[name], (0, more))
    if "targets" in batch and "positions" not in batch:
        found["targets"] = torch.nn.functional.pad(batch["targets"], (0, more), value=UNSCORED)
    return found


def results(task: Task, model: nn.Module, batch: Batch, **training: Any) -> dict[str, Tensor]:
    """The loss, every gradient, every buffer after a step, and the totals of the metrics; the model stays as it was."""
    way = TrainingSpec.model_validate({"steps": 1, "batch_size": 6, "optimizer": {"lr": 1e-3}, **training})
    objective = Objective(task, way, nullcontext)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train().zero_grad()
    found = {"loss": objective.backward(model, batch, [])}
    found |= {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    found |= {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.load_state_dict(before, strict=False)
    if "target_bytes" not in batch:
        model.eval()
        found |= {f"measured {name}": total for name, total in objective.measure(model, batch).items()}
    return found


def compare(found: dict[str, Tensor], expected: dict[str, Tensor], case: object) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert values.isfinite().all(), (case, name)
        torch.testing.assert_close(
            found[name], values, atol=2e-5, rtol=1e-3, msg=lambda said, name=name: f"{case} {name}: {said}"
        )


@pytest.mark.parametrize("name", MODELS)
def test_a_step_does_not_depend_on_padding(name: str, cache: Path) -> None:
    """The whole batch without further padding, against more of it, in whole batches, parts and chunks."""
    task = opened(name.partition(",")[0], cache)
    model = model_of(task, MODELS[name], {"mixer": "attention", "mlp": EXPERTS})
    batch = {key: values.expand(PACK, *values.shape) for key, values in task.train_batch(0, 1, 6).items()}
    expected = results(task, model, batch)
    assert any("mlp.choice" in key and values.any() for key, values in expected.items())
    ways = [way for way in WAYS if "loss_chunk" not in way or not task.shape.classes]
    for more, way in [(0, {}), (LONGER[0], {}), *((LONGER[1], way) for way in ways)]:
        compare(results(task, model, padded(batch, more, task.shape.vocabulary), **way), expected, (more, way))


MIXING = {kind: spec for kind, spec in MIXERS.members().items() if kind != "fnet"}
"""Without the mixer whose equation depends on the padded length, a Fourier transform over the whole text."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, "classification") for kind, spec in sorted(MIXING.items()) if spec.bidirectional_form]
    + [(kind, "copy, shared logits") for kind, spec in sorted(MIXING.items()) if spec.causal_form],
)
def test_a_mixer_and_its_recordings_do_not_depend_on_padding(kind: str, name: str, cache: Path) -> None:
    task = opened(name.partition(",")[0], cache)
    model = model_of(task, {**MODELS[name], "width": 16, "heads": 2, "depth": 1}, {"mixer": kind, "mlp": "plain"})
    batch = {key: values.expand(PACK, *values.shape) for key, values in task.train_batch(0, 1, 3).items()}
    expected = results(task, model, padded(batch, 0, task.shape.vocabulary))
    more = LONGER[1]
    compare(results(task, model, padded(batch, more, task.shape.vocabulary)), expected, more)
    assert_equal_recordings(task, model, batch)


@pytest.mark.parametrize("name", ["matching", "translation"])
def test_recordings_of_two_texts_do_not_depend_on_padding(name: str, cache: Path) -> None:
    task = opened(name, cache)
    batch = {key: values.expand(PACK, *values.shape) for key, values in task.train_batch(0, 1, 3).items()}
    assert_equal_recordings(task, model_of(task, MODELS[name], {"mixer": "attention", "mlp": "plain"}), batch)


def assert_equal_recordings(task: Task, model: nn.Module, batch: Batch) -> None:
    def recorded(more: int) -> Any:
        sample = {key: values[:, :1] for key, values in padded(batch, more, task.shape.vocabulary).items()}
        return look_inside(model, None, lambda: task.outputs(model, sample), maps=True)

    expected = recorded(0)
    real = {name: int(batch[name][0, 0].sum()) for name in batch if name.endswith("padding")}
    for part, maps in expected["map"].items():
        sizes = {len(maps[0]), len(maps[0][0])}
        assert sizes <= {min(32, size) for size in real.values()} | ({min(32, 10)} if not real else set()), part
    for more in LONGER:
        found = recorded(more)
        for quantity in ("spread", "map", "weights"):
            for part, values in expected[quantity].items():
                torch.testing.assert_close(
                    torch.tensor(found[quantity][part]), torch.tensor(values), atol=1e-4, rtol=1e-3
                )


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_the_losses_of_a_router_are_means_over_the_real_tokens_of_texts_of_unequal_length(scores: str) -> None:
    """Against the equations, text by text, without any padding."""
    settings = {"experts": 4, "active": 2, "scores": scores, "router_bias": True}
    spec = MLPS.members()["mixture"].model_validate({**EXPERTS, **settings})
    mlp = perturb(
        spec.build(LayerContext(PACK, 12, 3, depth=1, context=9, causal=True)), [0, 1], pack_aware=True
    ).train()
    texts = [noise(f"text {length}", PACK, length, 12) for length in (9, 4, 1)]
    real = torch.tensor([[t < len(text[0]) for t in range(9)] for text in texts]).expand(PACK, 3, 9)
    rows = torch.stack([torch.nn.functional.pad(text, (0, 0, 0, 9 - text.shape[1]), value=3.0) for text in texts], 1)
    with auxiliary_losses() as losses, counting(real):
        mlp(rows)
    moved = []
    for member in range(PACK):
        tokens = torch.cat([text[member] for text in texts])
        logits = tokens @ mlp.router.weight[member] + mlp.router.bias[member]
        odds = logits.softmax(-1) if scores == "softmax" else logits.sigmoid()
        chosen = odds.topk(2).indices
        load = torch.tensor([(chosen == expert).sum() / len(tokens) for expert in range(4)])
        expected = [
            0.3 * torch.stack([token.exp().sum().log() ** 2 for token in logits]).mean(),
            0.7 * 4 * sum(load[e] * (odds[:, e] / odds.sum(1)).mean() for e in range(4)),
        ]
        torch.testing.assert_close(torch.stack([loss[member] for loss in losses]), torch.stack(expected))
        moved.append(0.01 * (load.mean() - load).sign())
    before = mlp.choice.value.clone()
    mlp.end_step()
    torch.testing.assert_close(mlp.choice.value - before, torch.stack(moved))
    with auxiliary_losses() as nothing, counting(torch.zeros_like(real)):
        mlp(rows)
    assert all(torch.equal(loss, torch.zeros(PACK)) for loss in nothing), "a part of a batch may be padding alone"

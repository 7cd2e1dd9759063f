"""Every option of the data crossed with every way to shorten, grow, divide and pack batches.

Losses and gradients are compared with those of single texts and single documents, without padding, masks or parts.
"""

from __future__ import annotations

import itertools
import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.contracts.task import SAMPLE
from ablate.nn.model import build_model
from ablate.spec.model import ModelSpec
from ablate.spec.task import TASKS, Task, TaskSpec
from ablate.spec.training import TrainingSpec
from ablate.tasks.probe import UNSCORED
from ablate.training.batches import Batches
from ablate.training.objective import Objective
from ablate.training.sharding import Ranks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ablate.spec.task import Batch

STEPS, ROWS, CONTEXT, SMOOTHING, Z_LOSS = 4, 4, 24, 0.1, 0.2
BYTES: dict[str, Any] = {"tokenizer": "bytes", "context": CONTEXT}
TASK_SPECS: dict[str, dict[str, Any]] = {
    "text": {"kind": "language_model", "label_smoothing": SMOOTHING},
    "documents": {"kind": "language_model", "separate_documents": True},
    "sources": {"kind": "language_mixture"},
    "documents of sources": {"kind": "language_mixture", "separate_documents": True, "label_smoothing": SMOOTHING},
    "masked": {"kind": "masked_language_model", "label_smoothing": SMOOTHING},
    "copy": {"kind": "copy", "span": 5, "symbols": 6},
    "classes": {"kind": "classification", "data": SAMPLE, **BYTES},
    "pairs": {"kind": "matching", "data": SAMPLE, **BYTES},
    "translation": {"kind": "translation", "source": "a", "target": "b", "label_smoothing": SMOOTHING},
    "translation by tokens": {"kind": "translation", "source": "a", "target": "b", "batches_by": "tokens"},
}
TEXTS = {"language_model", "masked_language_model"}
CONTEXT_GROWTH = {"kind": "stages", "shares": [0.25, 0.5], "until": [0.3, 0.8]}
BATCH_GROWTH = {"kind": "stages", "shares": [0.5], "until": [0.6]}
SIZES = {1: (2, 6), 2: (2, 12), 3: (4, 12), 4: (4, 24)}
"""Rows and tokens of a row at steps of `CONTEXT_GROWTH` and `BATCH_GROWTH`."""
WAYS: list[dict[str, Any]] = [{}, {"micro_batch": 1}, {"micro_batch": 2, "loss_chunk": 7, "recompute": "blocks"}]


class OneOfRanks(Ranks):
    """A rank whose exchange with others is the sum that the test takes."""

    def total(self, value: Tensor) -> Tensor:
        return value

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Nothing: the ranks of the test share one model, whose gradients add up."""


def spec_of(name: str, folder: Path) -> TaskSpec:
    plain = dict(TASK_SPECS[name])
    if plain["kind"].startswith("language_mixture"):
        plain |= BYTES | {"sources": {}}
        for source, letters in (("left", "abcdefg"), ("right", "tuvwxyz")):
            data = documents(folder / f"{source}.jsonl", letters)
            plain["sources"][source] = {"data": data, "weight": 1.0 + (source == "left")}
    elif plain["kind"] in TEXTS:
        plain |= BYTES | {"data": documents(folder / "texts.jsonl", "klmnopq")}
    elif plain["kind"] == "translation":
        plain |= {"data": SAMPLE, "tokenizer": "bytes", "context": 60, "validation_pairs": 8}
    return TASKS.members()[plain["kind"]].model_validate(plain)


def documents(file: Path, letters: str) -> str:
    """A file of documents so short that every window, however short, holds several."""
    texts = [letters[number % 7] * (1 + number % 4) + str(number) for number in range(80)]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return f"file:{file}"


def model_spec(task: TaskSpec) -> ModelSpec:
    family = sorted(task.model_families)[0]
    plain: dict[str, Any] = {"family": family, "width": 8, "depth": 1, "heads": 2, "block": "pre_ln"}
    plain |= {"positions": "sinusoidal"}
    if task.pooled:
        plain["head"] = {"pooling": "mean"}
    else:
        plain["z_loss"] = Z_LOSS
    if family == "encoder_decoder":
        plain["decoder"] = {"depth": 1, "mixer": "attention"}
    return ModelSpec.model_validate(plain)


def alone(kind: str, spec: TaskSpec, end: int, model: nn.Module, row: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The outputs that the loss reads and their targets, of one row without its padding, document by document."""
    given = row["inputs"][row["padding"]] if "padding" in row else row["inputs"]
    if kind == "matching":
        outputs = model(given[None, None], row["other"][row["other_padding"]][None, None])[0]
        return outputs, row["labels"][None]
    if kind == "classification":
        return model(given[None, None])[0], row["labels"][None]
    if kind == "translation":
        real = row["before_padding"]
        return model(given[None, None], row["before"][real][None, None])[0, 0], row["targets"][real]
    pieces = [given]
    if spec.separates_documents:
        begins = [0, *(at for at in range(1, len(given)) if given[at] == end), len(given)]
        pieces = [given[first:last] for first, last in itertools.pairwise(begins)]
    outputs = torch.cat([model(piece[None, None])[0, 0] for piece in pieces])
    if kind == "masked_language_model":
        return outputs[row["positions"]], row["targets"]
    scored = row["targets"] != UNSCORED
    return outputs[scored], row["targets"][scored]


def slowly(task: Task, spec: TaskSpec, model: nn.Module, rows: list[dict[str, Tensor]]) -> tuple[float, list[Tensor]]:
    """The loss of one member, and its gradients, with those of the z-loss."""
    kind, smoothing = spec.kind_name(), getattr(spec, "label_smoothing", 0.0)
    end = task.codec().end_of_document if spec.separates_documents else -1
    found = [alone(kind, spec, end, model, row) for row in rows]
    outputs, targets = (torch.cat(each) for each in zip(*found, strict=True))
    loss = F.cross_entropy(outputs, targets, label_smoothing=smoothing)
    squares = outputs.exp().sum(-1).log().square().mean() if spec.pooled is not True else 0.0
    model.zero_grad()
    (loss + Z_LOSS * squares).backward()
    return loss.item(), [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]


def fast(
    task: Task, model: nn.Module, batch: Batch, way: TrainingSpec, ranks: int
) -> tuple[Tensor, list[tuple[str, Tensor]]]:
    model.train().zero_grad()
    losses = [
        Objective(task, way, nullcontext, OneOfRanks(rank, ranks)).backward(model, batch, []) for rank in range(ranks)
    ]
    gradients = [(n, torch.zeros_like(p) if p.grad is None else p.grad.clone()) for n, p in model.named_parameters()]
    return torch.stack(losses).sum(0), gradients


@pytest.mark.parametrize("name", TASK_SPECS)
def test_a_batch_has_the_losses_of_its_texts_and_documents(
    name: str, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = spec_of(name, tmp_path_factory.getbasetemp())
    task = spec.open(cache, spec.prepare(cache, lambda line: None))
    plain: dict[str, Any] = {"steps": STEPS, "batch_size": ROWS, "optimizer": {"lr": 1e-3}}
    if spec.shortens:
        plain["context_growth"] = CONTEXT_GROWTH
    if not spec.uneven_batches:
        plain["batch_growth"] = BATCH_GROWTH
    for seeds, steps in (((5,), (2,)), ((5, 2), range(1, STEPS + 1))):
        single, pack = [built(task, spec, seed) for seed in seeds], built(task, spec, *seeds)
        for step in steps:
            batch = Batches(task, TrainingSpec.model_validate(plain), torch.device("cpu")).get(seeds, step)
            count, length = batch["inputs"].shape[1:]
            if spec.shortens:
                assert (count, length) == SIZES[step]
            expected = []
            for member, model in enumerate(single):
                rows = [{key: values[member, row] for key, values in batch.items()} for row in range(count)]
                expected.append(slowly(task, spec, model, rows))
            for way, ranks in itertools.product(WAYS, (1, 2)):
                if ("loss_chunk" in way and spec.pooled) or ((way or ranks > 1) and spec.uneven_batches):
                    continue
                found = fast(task, pack, batch, TrainingSpec.model_validate({**plain, **way}), ranks)
                assert_equal(found, expected, f"step {step}, {seeds}, {way}, {ranks} ranks")


def test_a_batch_that_asks_for_nothing_changes_nothing() -> None:
    """Whole, in parts, in chunks and divided among ranks."""
    spec = TASKS.members()["stack"].model_validate({"kind": "stack", "operations": 2, "validation_rows": 64})
    task = spec.open(Path(), spec.prepare(Path(), print))
    plain: dict[str, Any] = {"steps": STEPS, "batch_size": 2, "optimizer": {"lr": 1e-3}}
    batches = (task.train_batch(0, step, 2) for step in range(1, 50))
    batch = next(batch for batch in batches if not (batch["targets"] != UNSCORED).any())
    packed = {name: values.expand(2, *values.shape) for name, values in batch.items()}
    for way, ranks in itertools.product(WAYS, (1, 2)):
        micro = min(way.get("micro_batch", 2), 2 // ranks)
        model = built(task, spec, 5, 2)
        loss, gradients = fast(
            task, model, packed, TrainingSpec.model_validate({**plain, **way, "micro_batch": micro}), ranks
        )
        assert loss.tolist() == [0.0, 0.0], (way, ranks)
        assert not any(gradient.any() for _, gradient in gradients), (way, ranks)


def built(task: Task, spec: TaskSpec, *seeds: int) -> nn.Module:
    shape = task.shape
    sizes = {"vocabulary": shape.vocabulary, "context": shape.context, "classes": shape.classes}
    return build_model(model_spec(spec), seeds=seeds, **sizes).train()


def assert_equal(
    found: tuple[Tensor, list[tuple[str, Tensor]]], expected: list[tuple[float, list[Tensor]]], case: str
) -> None:
    loss, gradients = found
    for member, (slow, of_slow) in enumerate(expected):
        assert loss[member].item() == pytest.approx(slow, abs=1e-5), case
        for (name, ours), theirs in zip(gradients, of_slow, strict=True):
            assert torch.allclose(ours[member], theirs[0], atol=3e-6, rtol=1e-3), f"{case}: {name}"


@pytest.mark.parametrize("name", [name for name, plain in TASK_SPECS.items() if plain["kind"].startswith("language")])
def test_shorter_windows_are_the_beginnings_of_whole_ones(
    name: str, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = spec_of(name, tmp_path_factory.getbasetemp())
    task = spec.open(cache, spec.prepare(cache, lambda line: None))
    whole = task.train_batch(3, 2, ROWS)
    for length in (1, 7, CONTEXT):
        shorter = task.shorter_batch(3, 2, ROWS, length)
        assert shorter.keys() == whole.keys()
        assert all(torch.equal(shorter[key], whole[key][:, :length]) for key in whole)

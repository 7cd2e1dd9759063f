"""A test split: requested, separate from all other data, measured once, and read by no decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ablate.errors import DataError
from ablate.spec.space import SpaceSpec
from ablate.spec.task import Task, TaskSpec
from ablate.spec.variant import VariantSpec
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member

BYTES = {"tokenizer": "bytes", "context": 24}
ENCODER = {"family": "encoder", "head": {"pooling": "mean"}}


def opened(plain: dict[str, Any], cache: Path) -> Task:
    spec = TaskSpec.parse(plain)
    return spec.open(cache, spec.prepare(cache, lambda line: None))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts, rows with two labels, and pairs; 60 of each, no two alike."""
    rows = [
        f"{('red', 'green', 'blue')[i % 3]} number {i} of all\t{'ab'[i % 2]}\ttext {i * 7} there" for i in range(60)
    ]
    (tmp_path / "rows.tsv").write_text("text\tlabel\tother\n" + "\n".join(rows) + "\n")
    texts = "\n<|endoftext|>\n".join(row * 4 for row in rows)
    (tmp_path / "texts.txt").write_text(texts)
    return tmp_path


def plains(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Kind to a task without a test and what gives it one."""
    texts, rows = f"file:{folder}/texts.txt", f"file:{folder}/rows.tsv"
    share = {"test_share": 0.2}
    return {
        "language_model": ({"data": texts, **BYTES}, share),
        "masked_language_model": ({"data": texts, **BYTES}, share),
        "classification": ({"data": rows, **BYTES}, share),
        "matching": ({"data": rows, "first": "text", "second": "other", **BYTES}, share),
        "translation": ({"data": rows, "source": "text", "target": "other", **BYTES, "context": 40}, {"test_pairs": 9}),
        "listops": ({"shortest": 0, "longest": 40, "train_rows": 200, "validation_rows": 50}, {"test_rows": 30}),
        "copy": ({"validation_rows": 20}, {"test_rows": 30}),
    }


MODELS: dict[str, dict[str, Any]] = {
    "language_model": {"family": "decoder"},
    "masked_language_model": {"family": "encoder"},
    "classification": ENCODER,
    "matching": {"family": "dual_encoder", "head": {"pooling": "mean"}},
    "translation": {"family": "encoder_decoder", "decoder": {"depth": 1, "mixer": "attention"}},
    "listops": ENCODER,
    "copy": {"family": "decoder"},
}


def rows(batches: Any) -> set[tuple[int, ...]]:
    return {tuple(row.tolist()) for batch in batches for row in batch["inputs"]}


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_it_is_measured_once_at_the_end(kind: str, folder: Path, cache: Path) -> None:
    plain, more = plains(folder)[kind]
    without, task = (opened({"kind": kind, **plain, **extra}, cache) for extra in ({}, more))
    assert list(without.test_batches(8)) == []
    assert task.fingerprint != without.fingerprint
    assert not rows(task.test_batches(8)) & rows(task.validation_batches(8))
    variant = VariantSpec.model_validate(
        {
            "task": {"kind": kind, **plain, **more},
            "model": {"depth": 1, "width": 8, "heads": 2, "block": {"mixer": "attention"}, **MODELS[kind]},
            "training": {"steps": 2, "batch_size": 4, "optimizer": {"lr": 1e-2}, "evaluations": 2},
        }
    )
    models: list[torch.nn.Module] = []
    events = train([Member(variant, 0)], task, torch.device("cpu"), lambda model, *place: models.append(model.eval()))
    *before, last = (event.metrics for event in events if isinstance(event, Measurement))
    assert before
    assert not any(name.startswith("test_") for metrics in before for name in metrics)
    expected = {name.replace("val_", "test_", 1) for name in last if name.startswith("val_")}
    assert {name for name in last if name.startswith("test_")} == expected

    sums: dict[str, torch.Tensor] = {}
    for batch in task.test_batches(64):
        packed = {name: values[None] for name, values in batch.items()}
        with torch.no_grad():
            totals = task.measure(task.outputs(models[0], packed), packed)
        sums = {name: total + sums.get(name, 0) for name, total in totals.items()}
    again = task.metrics({name: total.tolist() for name, total in sums.items()})
    assert last["test_loss"] == pytest.approx(again["val_loss"], rel=1e-4)
    assert last["test_loss"] != last["val_loss"]


def test_a_file_named_test_is_the_test_and_shares_no_text(tmp_path: Path, cache: Path) -> None:
    def write(name: str, texts: list[str]) -> None:
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{text[0]}\n" for text in texts))

    write("train", [*(f"a{i}" for i in range(20)), *(f"b{i}" for i in range(20))])
    write("val", ["a100", "b100", "a3"])
    write("test", ["a200", "b200", "b201", "a100", "b7"])
    plain = {"kind": "classification", "data": f"file:{tmp_path}", **BYTES}
    without, task = opened(plain, cache), opened({**plain, "test_share": 0.5}, cache)
    assert without.describe().rows == {"train": 40, "validation": 2}
    assert task.describe().rows == {"train": 40, "validation": 2, "test": 3}
    assert rows(without.validation_batches(9)) == rows(task.validation_batches(9))
    assert "3 in more than one split" in task.describe().notes[0]


def test_documents_to_validate_on_stay_when_a_test_is_added(folder: Path, cache: Path) -> None:
    plain, more = plains(folder)["language_model"]
    without, task = (opened({"kind": "language_model", **plain, **extra}, cache) for extra in ({}, more))
    assert task.describe().rows == {"train": 42, "validation": 6, "test": 12}
    assert rows(without.validation_batches(9)) == rows(task.validation_batches(9))


def test_too_little_for_a_test_is_reported(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "two.txt").write_text("one text\n<|endoftext|>\nand another\n")
    plain = {"kind": "language_model", "data": f"file:{tmp_path}/two.txt", **BYTES, "test_share": 0.5}
    with pytest.raises(DataError, match="2 documents cannot be split into training and validation and test"):
        opened(plain, cache)


def test_no_objective_is_a_test() -> None:
    plain = {
        "name": "peeks",
        "question": "Is it better on the test?",
        "task": {"kind": "copy", "test_rows": 10},
        "model": {"family": "decoder", "depth": 1, "width": 8, "heads": 2, "block": {"mixer": "attention"}},
        "training": {"steps": 2, "batch_size": 2, "optimizer": {"lr": 1e-3}},
        "switches": {"heads": {"two": {}, "one": {"model.heads": 1}}},
        "design": {"kind": "leave_one_out", "seeds": 1},
        "objective": {"metric": "test_loss", "margin": 0.1},
    }
    with pytest.raises(ValidationError, match="would no longer be tested"):
        SpaceSpec.model_validate(plain)

"""Classification: rows become batches, parts never share a text, scores are those of the textbook."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ablate.errors import DataError
from ablate.spec.variant import VariantSpec
from ablate.tasks import scores
from ablate.tasks.classification import Classification, ClassificationSpec
from ablate.tasks.rows import _divide, _Kept, read_table

WORDS = ["eins", "zwei", "drei", "vier", "fuenf", "sechs"]


def table(folder: Path, rows: list[tuple[str, str]], name: str = "rows.tsv") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    return folder


def spec(folder: Path, **more: Any) -> ClassificationSpec:
    return ClassificationSpec.model_validate({"data": f"file:{folder}", "tokenizer": "bytes", "context": 12, **more})


def ready(spec: ClassificationSpec, cache: Path) -> Classification:
    return spec.open(cache, spec.prepare(cache, lambda line: None))


def rows(count: int) -> list[tuple[str, str]]:
    return [(f"{WORDS[i % 6]} {i}", "even" if i % 2 == 0 else "odd") for i in range(count)]


def texts(task: Classification, batch: dict[str, torch.Tensor]) -> list[tuple[str, str]]:
    pairs = zip(batch["inputs"], batch["padding"], batch["labels"], strict=True)
    return [(bytes(ids[real].tolist()).decode(), task.labels[label]) for ids, real, label in pairs]


def test_batches_are_rows_with_their_labels(tmp_path: Path) -> None:
    task = ready(spec(table(tmp_path / "data", rows(60))), tmp_path / "cache")
    assert task.shape.classes == 2
    training = {pair for step in range(60) for pair in texts(task, task.train_batch(0, step, 8))}
    validation = {pair for batch in task.validation_batches(4) for pair in texts(task, batch)}
    assert training | validation == set(rows(60))
    assert not training & validation
    assert len(validation) == 6
    batch = task.train_batch(3, 4, 8)
    assert all(torch.equal(batch[name], again) for name, again in task.train_batch(3, 4, 8).items())
    assert (batch["inputs"][~batch["padding"]] == 256).all()
    assert batch["inputs"].shape == (8, 12)


def test_numbers_are_classes_by_value(tmp_path: Path) -> None:
    task = ready(spec(table(tmp_path / "d", [(f"x{i}", str(i % 11)) for i in range(99)])), tmp_path / "cache")
    assert task.labels == [str(number) for number in range(11)]


def test_long_texts_are_cut_windowed_or_refused(tmp_path: Path) -> None:
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    long = [(alphabet[i % 7 :] + str(i), "xy"[i % 2]) for i in range(20)]
    folder = table(tmp_path / "data", long)
    cut = ready(spec(folder), tmp_path / "cache")
    assert {len(text) for text, _ in texts(cut, cut.train_batch(0, 0, 30))} == {12}
    assert {text[:3] for text, _ in texts(cut, cut.train_batch(0, 0, 60))} <= {alphabet[i : i + 3] for i in range(7)}
    windowed = ready(spec(folder, long_texts="window"), tmp_path / "cache")
    drawn = {text for step in range(40) for text, _ in texts(windowed, windowed.train_batch(0, step, 16))}
    assert len({text[0] for text in drawn}) > 20, "windows begin anywhere"
    assert {len(text) for text in drawn} == {12}, "and end in their text"
    read = [text for batch in windowed.validation_batches(7) for text, _ in texts(windowed, batch)]
    held_out = [row.values[0] for row in read_table(windowed.spec, lambda line: None).rows("validation")]
    assert read == [text[start : start + 12] for text in held_out for start in range(0, len(text) - 11, 12)]
    with pytest.raises(DataError, match=r"20 texts are longer than the context; expected at most 12 tokens; got 3\d"):
        spec(folder, long_texts="refuse").prepare(tmp_path / "cache", lambda line: None)
    longest = max(len(text) for text, _ in long)
    ready(spec(folder, long_texts="refuse", context=longest), tmp_path / "cache")
    with pytest.raises(DataError, match=rf"texts are longer than the context; .*; got {longest} in the longest"):
        ready(spec(folder, long_texts="refuse", context=longest - 1), tmp_path / "cache")


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["p", "q"])), max_size=30),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["p", "q"])), max_size=10),
)
def test_no_text_is_in_both_parts(
    tmp_path_factory: pytest.TempPathFactory, train: list[tuple[str, str]], validation: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("data")
    table(folder, [("one", "p"), ("two", "q"), *train], "train.tsv")
    table(folder, [("three", "p"), *validation], "val.tsv")
    divided = read_table(spec(folder), lambda line: None)
    read = {split: [row.values[0] for row in divided.rows(split)] for split in ("train", "validation")}
    assert set(read["train"]) == {"one", "two", *(text for text, _ in train)}
    assert set(read["validation"]) == {"three", *(text for text, _ in validation)} - set(read["train"])
    assert all(len(set(texts)) == len(texts) == divided.sizes[split] for split, texts in read.items())
    dropped = divided.left_out["empty_or_copies"] + divided.left_out["in_both"]
    assert dropped == 3 + len(train) + len(validation) - sum(divided.sizes.values())


def test_a_validation_pair_with_a_training_text_is_dropped_and_counted(tmp_path: Path) -> None:
    from ablate.tasks.matching import MatchingSpec

    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.tsv").write_text("a\tb\tlabel\nx1\tx2\tno\nx3\tx4\tyes\n")
    (folder / "val.tsv").write_text("a\tb\tlabel\ny1\tx2\tno\ny3\ty4\tyes\n")
    plain = {"data": f"file:{folder}", "tokenizer": "bytes", "context": 4}
    table = read_table(MatchingSpec.model_validate(plain), lambda line: None)
    assert [row.values for row in table.rows("validation")] == [("y3", "y4", "yes")]
    assert table.left_out["in_both"] == 1


def test_what_is_unfit_is_refused(tmp_path: Path) -> None:
    def prepare(train: list[tuple[str, str]], validation: list[tuple[str, str]] | None = None, **more: Any) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        table(folder, train, "train.tsv")
        if validation is not None:
            table(folder, validation, "val.tsv")
        spec(folder, **more).prepare(tmp_path / "cache", lambda line: None)

    with pytest.raises(DataError, match=r"val\.tsv:3: the label 'r' occurs only in validation.*1 labels that"):
        prepare([("a", "p"), ("b", "q")], [("c", "p"), ("d", "r")])
    with pytest.raises(DataError, match="contains no rows"):
        prepare([])
    with pytest.raises(DataError, match="one row cannot be split"):
        prepare([("a", "p"), ("a", "q")])
    with pytest.raises(DataError, match=r"no validation rows are left.*1 in several splits"):
        prepare([("a", "p"), ("b", "q")], [("a", "p")])
    with pytest.raises(DataError, match="all training rows have one label"):
        prepare([("a", "p"), ("b", "p")], [("c", "p")])
    with pytest.raises(DataError, match=r"there is no column `etikett`; expected one of `text`, `label`"):
        prepare([("a", "p")], label="etikett")


def test_built_in_data_is_labelled_by_package(cache: Path) -> None:
    plain = {"data": "builtin:python_stdlib", "label": "package", "tokenizer": "bytes", "context": 64}
    task = ready(ClassificationSpec.model_validate(plain), cache)
    assert {"asyncio", "email", "encodings"} <= set(task.labels)
    summary = task.describe()
    assert min(summary.labels.values()) > 0
    assert sum(summary.labels.values()) == summary.rows["train"]
    assert len(summary.samples) == 3


def test_a_model_without_a_head_is_refused(tmp_path: Path) -> None:
    plain = {
        "task": spec(tmp_path).model_dump(mode="json"),
        "model": {"family": "encoder", "depth": 1, "width": 8, "block": {"mixer": "attention"}},
        "training": {"steps": 1, "optimizer": {"lr": 0.1}, "batch_size": 1},
    }
    with pytest.raises(ValidationError, match="needs a `head`"):
        VariantSpec.model_validate(plain)


# Scores


@pytest.mark.parametrize("classes", [2, 5, 7])
def test_scores_agree_with_the_definitions(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    outputs = torch.randn(3, 41, classes, generator=generator)
    labels = torch.randint(classes - 1, (41,), generator=generator).expand(3, -1)
    first = scores.totals(outputs[:, :20], labels[:, :20])
    second = scores.totals(outputs[:, 20:], labels[:, 20:])
    metrics = scores.scores({name: (first[name] + second[name]).tolist() for name in first})
    for member in range(3):
        logits, truth = outputs[member].double().numpy(), labels[member].numpy()
        guesses = logits.argmax(1)
        nats = [math.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, truth, strict=True)]
        f1 = []
        for label in sorted({*truth.tolist(), *guesses.tolist()}):
            hits = sum(g == t == label for g, t in zip(guesses, truth, strict=True))
            precision = hits / max(1, (guesses == label).sum())
            recall = hits / max(1, (truth == label).sum())
            f1.append(2 * precision * recall / (precision + recall) if hits else 0.0)
        assert metrics["val_loss"][member] == pytest.approx(np.mean(nats), rel=1e-5)
        assert metrics["val_accuracy"][member] == pytest.approx(np.mean(guesses == truth))
        assert metrics["val_macro_f1"][member] == pytest.approx(np.mean(f1))


def test_naive_bayes_counts_the_tokens_that_a_model_may_see(tmp_path: Path) -> None:
    """Texts of two labels begin alike and end otherwise: only windows show their ends."""
    pairs = [(f"{i // 2:04}" + ("a" if i % 2 else "b") * 12, "p" if i % 2 else "q") for i in range(80)]
    found = {}
    for way in ("truncate", "window"):
        plain = spec(table(tmp_path / way, pairs)).model_copy(update={"context": 4, "long_texts": way})
        found[way] = ready(plain, tmp_path / "cache").baselines()["unigram"]["val_accuracy"]
    assert found["truncate"] < 0.8
    assert found["window"] == pytest.approx(1 - 0.25 / 2, abs=0.13), "one of the four windows is the beginning"


def test_baselines_are_naive_bayes_and_the_majority(tmp_path: Path) -> None:
    pairs = [(("aab" if i % 3 else "bbc") + f"{i:03}", "p" if i % 3 else "q") for i in range(90)]
    task = ready(spec(table(tmp_path / "data", pairs)), tmp_path / "cache")
    truth = [pair for batch in task.validation_batches(90) for pair in texts(task, batch)]
    train = [pair for pair in pairs if pair not in truth]
    sizes = Counter(label for _, label in train)
    counts = {label: Counter("".join(text for text, known in train if known == label)) for label in "pq"}
    nats, right = 0.0, 0
    for text, label in truth:
        scored = {}
        for guess in "pq":
            total = sum(counts[guess].values()) + 257
            scored[guess] = math.log((sizes[guess] + 1) / (len(train) + 2))
            scored[guess] += sum(math.log((counts[guess][character] + 1) / total) for character in text)
        nats += math.log(sum(math.exp(score) for score in scored.values())) - scored[label]
        right += max(scored, key=lambda guess: scored[guess]) == label
    baselines = task.baselines()
    assert baselines["unigram"]["val_loss"] == pytest.approx(nats / len(truth))
    assert baselines["unigram"]["val_accuracy"] == pytest.approx(right / len(truth))
    shares = {label: (sizes[label] + 1) / (len(train) + 2) for label in "pq"}
    right = sum(label == "p" for _, label in truth) / len(truth)
    assert baselines["majority class"] == {
        "val_loss": pytest.approx(-np.mean([math.log(shares[label]) for _, label in truth])),
        "val_accuracy": pytest.approx(right),
        "val_macro_f1": pytest.approx(2 * right / (1 + right) / 2),
    }


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("shares", [(0.01, 0.01), (0.5, 0.3), (0.3, 0.5), (0.9, 0.05), (0.5, 0.0)])
@pytest.mark.parametrize("by_label", [False, True])
def test_every_split_of_few_rows_or_labels_has_its_share_or_one(
    count: int, shares: tuple[float, float], by_label: bool
) -> None:
    """Validation is filled before the test, and both leave one to each split after them and to training."""
    tested, what = shares[1] > 0, "label" if by_label else "row"
    asked: Any = SimpleNamespace(
        data="some", validation_share=shares[0], test_share=shares[1], held_out_by_label=by_label
    )
    rows = {(f"{label} {row}".encode(),): str(label) for label in range(count) for row in range(1 + by_label)}
    kept = {key: _Kept(key, label, "", "") for key, label in rows.items()}
    if count == 2 and tested:
        with pytest.raises(DataError, match=f"2 {what}s cannot be split .*expected at least three different {what}s"):
            _divide(asked, kept, {""})
        return
    found = dict[str, set[object]]()
    for key, split in _divide(asked, kept, {""}).items():
        found.setdefault(split, set()).add(rows[key] if by_label else key)
    validation = max(1, min(round(shares[0] * count), count - 1 - tested))
    test = max(1, min(round(shares[1] * count), count - 1 - validation)) if tested else 0
    sizes = {"train": count - validation - test, "validation": validation, "test": test}
    assert {split: len(held) for split, held in found.items()} == {name: size for name, size in sizes.items() if size}

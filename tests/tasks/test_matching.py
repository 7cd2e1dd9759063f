"""Matching: given pairs and drawn pairs."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ablate.errors import DataError
from ablate.nn.model import build_model
from ablate.spec.model import ModelSpec
from ablate.tasks.matching import SAME, Matching, MatchingSpec, PairSampler
from ablate.tasks.sampling import Draws


def ready(cache: Path, data: Path, **more: Any) -> Matching:
    spec = MatchingSpec.model_validate({"data": f"file:{data}", "tokenizer": "bytes", "context": 8, **more})
    return spec.open(cache, spec.prepare(cache, lambda line: None))


def given_pairs(folder: Path) -> tuple[Matching, list[tuple[str, str, str]]]:
    """A task of fifty pairs, and its rows."""
    rows = [(f"a{i} text", f"b{i}", "yn"[i % 2]) for i in range(50)]
    (folder / "pairs.csv").write_text("a,b,label\n" + "".join(",".join(row) + "\n" for row in rows))
    return ready(folder / "cache", folder / "pairs.csv"), rows


def pairs(task: Matching, batch: dict[str, torch.Tensor]) -> list[tuple[str, str, int]]:
    read = [
        [bytes(ids[real].tolist()).decode() for ids, real in zip(batch[ids], batch[real], strict=True)]
        for ids, real in (("inputs", "padding"), ("other", "other_padding"))
    ]
    return list(zip(*read, batch["labels"].tolist(), strict=True))


def test_given_pairs_stay_together(tmp_path: Path) -> None:
    task, rows = given_pairs(tmp_path)
    training = {pair for step in range(40) for pair in pairs(task, task.train_batch(0, step, 16))}
    validation = [pair for batch in task.validation_batches(2) for pair in pairs(task, batch)]
    expected = {(a, b, task.labels.index(label)) for a, b, label in rows}
    assert training | set(validation) == expected
    assert len(validation) == 5
    assert task.tokens_per_batch(16) == task.train_batch(0, 0, 16)["inputs"].numel() * 2


def test_windows_of_given_pairs_lie_in_their_texts(tmp_path: Path) -> None:
    """The texts of a pair have different lengths; every place of a text may be the first of a window."""
    rows = [("".join(f"a{i:02}{k}" for k in range(3)), "".join(f"b{i:02}{k}" for k in range(6))) for i in range(20)]
    lines = [f"{a},{b},{'yn'[i % 2]}\n" for i, (a, b) in enumerate(rows)]
    (tmp_path / "pairs.csv").write_text(f"a,b,label\n{''.join(lines)}")
    task = ready(tmp_path / "cache", tmp_path / "pairs.csv", long_texts="window")
    drawn = [(a, b) for step in range(60) for a, b, _ in pairs(task, task.train_batch(0, step, 16))]
    assert {len(text) for pair in drawn for text in pair} == {8}
    for side, starts in ((0, 12 - 8 + 1), (1, 24 - 8 + 1)):
        assert {text.find(pair[side]) for pair in drawn for texts in rows for text in texts} == {-1, *range(starts)}


def test_drawn_pairs_are_what_their_label_says(tmp_path: Path) -> None:
    # Every text is made of one letter of its own, so a window tells the file it is from; positions tell windows apart.
    texts = {letter: "".join(f"{letter}{i:02}" for i in range(16 + 4 * k)) for k, letter in enumerate("ABCDEFGHIJ")}
    folder = tmp_path / "texts"
    folder.mkdir()
    for letter, text in texts.items():
        (folder / f"{letter}.txt").write_text(text)
    task = ready(tmp_path / "cache", folder, same="file", long_texts="window", context=6, validation_share=0.3)
    assert task.shape.classes == 2
    seen: dict[str, set[str]] = {"train": set(), "validation": set()}
    labels = []
    for split, batches in (
        ("train", [task.train_batch(1, step, 64) for step in range(30)]),
        ("validation", list(task.validation_batches(64))),
    ):
        for batch in batches:
            for a, b, label in pairs(task, batch):
                files = {text.strip("0123456789")[0] for text in (a, b)}
                assert (len(files) == 1) == (SAME[label] == "same")
                assert a != b
                seen[split] |= files
                labels.append(label)
    assert not seen["train"] & seen["validation"], "files are held out as a whole"
    assert len(seen["train"]) == 7
    assert len(seen["validation"]) == 3
    assert 0.45 < sum(labels) / len(labels) < 0.55


def test_windows_are_paired_equally_often_and_one_that_is_alone_is_only_another() -> None:
    windows = [(text, place) for text, count in enumerate((3, 1, 2)) for place in range(count)]
    drawn = PairSampler(np.array(windows), np.array([7, 9, 6]), "here").pairs(Draws("pairs"), 20_000)
    found = Counter(zip(*(values.tolist() for values in drawn), strict=True))
    begins = [one for one in windows if one[0] != 1]
    expected = {}
    for one, (label, name) in product(begins, enumerate(SAME)):
        others = [other for other in windows if other != one and (other[0] == one[0]) == (name == "same")]
        expected |= {(*one, *other, label): 20_000 / len(begins) / 2 / len(others) for other in others}
    assert found.keys() == expected.keys()
    assert all(abs(found[pair] - count) < 5 * count**0.5 for pair, count in expected.items())


def test_no_pairs_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for letter in "abcd":
        (folder / f"{letter}.txt").write_text(letter * 99)
    with pytest.raises(DataError, match=r"no pairs can be sampled.*long_texts: window"):
        ready(tmp_path / "cache", folder, same="file")


def test_both_texts_go_through_the_model(tmp_path: Path) -> None:
    task, _ = given_pairs(tmp_path)
    plain = {"family": "dual_encoder", "depth": 1, "width": 8, "heads": 2, "head": {"pooling": "mean"}}
    spec = ModelSpec.model_validate({**plain, "block": "pre_ln"})
    model = build_model(spec, vocabulary=257, context=8, classes=2, seeds=(0, 1))
    batch = {name: torch.stack([values, values]) for name, values in task.train_batch(0, 0, 5).items()}
    outputs = task.outputs(model, batch)
    assert outputs.shape == (2, 5, 2)
    assert task.loss(outputs, batch).shape == (2,)
    for name in ("inputs", "other"):
        changed = {**batch, name: torch.where(batch[name] == 256, 256, 65)}
        assert not torch.allclose(task.outputs(model, changed), outputs)


def test_built_in_files_match(cache: Path) -> None:
    plain = {"data": "builtin:python_stdlib", "same": "file", "tokenizer": "bytes", "context": 128}
    spec = MatchingSpec.model_validate({**plain, "long_texts": "window", "validation_rows": 300})
    task = spec.open(cache, spec.prepare(cache, lambda line: None))
    baselines = task.baselines()
    assert baselines["majority class"]["val_accuracy"] == pytest.approx(0.5, abs=0.1)
    assert baselines["unigram overlap"]["val_accuracy"] > 0.55, "files have words of their own"
    assert len(task.describe().samples) == 3

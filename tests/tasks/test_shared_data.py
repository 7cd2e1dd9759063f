"""Real sets in every format that they come in; skipped where the folder is not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ablate.spec.task import TaskSpec

FOLDER = os.environ.get("ABLATE_SHARED_DATA")

pytestmark = [pytest.mark.shared_data, pytest.mark.skipif(FOLDER is None, reason="ABLATE_SHARED_DATA is not set")]


@pytest.mark.parametrize(
    ("plain", "rows", "labels"),
    [
        ({"data": "banking77", "label": "category"}, {"train": 9003, "validation": 1000}, 77),
        ({"data": "clinc150/*.tsv.gz", "label": "intent"}, {"train": 21325, "validation": 2370}, 151),
        ({"data": "gutenberg_authors"}, {"train": 6608, "validation": 937}, 10),
    ],
)
def test_classification(plain: dict[str, Any], rows: dict[str, int], labels: int, cache: Path) -> None:
    address = f"file:{FOLDER}/{plain['data']}"
    spec = TaskSpec.parse({"kind": "classification", "tokenizer": "bytes", "context": 64, **plain, "data": address})
    task = spec.open(cache, spec.prepare(cache, lambda line: None))
    assert task.shape.classes == labels
    assert task.describe().rows == rows
    baselines = task.baselines()
    assert baselines["unigram"]["val_accuracy"] > baselines["majority class"]["val_accuracy"]


def test_books(cache: Path) -> None:
    plain = {"data": f"file:{FOLDER}/gutenberg_children/books", "tokenizer": "chars", "context": 128}
    spec = TaskSpec.parse({"kind": "language_model", **plain})
    task = spec.open(cache, spec.prepare(cache, lambda line: None))
    assert task.describe().rows == {"train": 61, "validation": 7}
    baselines = task.baselines()
    # Characters of English: about 4.2 bits each by frequency alone, about 3.5 after the one before.
    assert 4 < baselines["unigram"]["val_bits_per_byte"] < 4.7
    assert 3 < baselines["bigram"]["val_bits_per_byte"] < 3.8

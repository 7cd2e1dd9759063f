"""`ablate translate` with a model that a study trained, down to its words on the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ablate.api import run
from ablate.cli.app import app
from ablate.spec.space import SpaceSpec
from ablate.store import open_store

pytestmark = pytest.mark.usefixtures("quick")

WORDS = {"one": "eins", "two": "zwei", "six": "sechs", "ten": "zehn", "red": "rot", "cat": "Katze"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("translate")


@pytest.fixture(scope="module")
def key(folder: Path, cache: Path) -> str:
    """A translator of two words, word by word, that a worker trained."""
    pairs = [(f"{a} {b}", f"{WORDS[a]} {WORDS[b]}") for a in WORDS for b in WORDS]
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "pairs.tsv").write_text(text, encoding="utf-8")
    task: dict[str, Any] = {"kind": "translation", "data": f"file:{folder}/pairs.tsv", "source": 1, "target": 2}
    plain = {
        "name": "words",
        "question": "Can it say it?",
        "task": {
            **task,
            "tokenizer": {"kind": "words", "vocab_size": 32},
            "context": 8,
            "validation_pairs": 2,
            "label_smoothing": 0,
        },
        "model": {
            "family": "encoder_decoder",
            "depth": 1,
            "width": 32,
            "heads": 2,
            "block": "pre_ln",
            "decoder": {"depth": 1, "mixer": "attention"},
            "init_std": 0.1,
        },
        "training": {
            "steps": 150,
            "batch_size": 16,
            "optimizer": {"lr": 1e-2},
            "evaluations": 1,
            "save_weights": True,
        },
        "switches": {"heads": {"two": {}, "same": {"model.heads": 2}}},
        "design": {"kind": "leave_one_out", "seeds": 1},
        "objective": {"margin": 0.05},
    }
    run(SpaceSpec.model_validate(plain), store=folder / "store.db", device="cpu", workers=1, cache=cache)
    with open_store(folder / "store.db") as store:
        return store.study("words").planned[0].key


@pytest.mark.parametrize("beams", ["1", "3"])
def test_it_says_what_it_learnt(
    beams: str, key: str, folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["translate", key[:10], "--store", str(folder / "store.db"), "--cache", str(cache), "--beams", beams]
    app([*common, "red cat"], standalone_mode=False)
    assert capsys.readouterr().out.split() == ["rot", "Katze"]
    app([*common, "--json", "ten six"], standalone_mode=False)
    assert "zehn sechs" in json.dumps(json.loads(capsys.readouterr().out))

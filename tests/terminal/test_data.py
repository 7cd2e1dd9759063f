"""`ablate data`, and data that is named on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.errors import SpaceError
from ablate.spec.named import shipped_spaces
from ablate.spec.reading import load_space
from ablate.terminal.data import histogram


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my data"
    folder.mkdir()
    rows = [f"my card no {i} is lost\tlost" if i % 2 else f"how much is {i} euro\trate" for i in range(200)]
    (folder / "train.tsv").write_text("text\tcategory\n" + "\n".join([*rows, rows[0]]) + "\n")
    return folder


def ablate(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ABLATE_CACHE": str(cwd / "cache"), "COLUMNS": "100"}
    command = [sys.executable, "-m", "ablate.cli", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


def space(tmp_path: Path) -> str:
    text = (shipped_spaces() / "intents.yaml").read_text().replace("{kind: wordpiece, vocab_size: 2000}", "words")
    (tmp_path / "mine.yaml").write_text(text.replace("tokenizer: words", "tokenizer: bytes"))
    return "mine.yaml"


def test_data_is_shown_and_as_json(folder: Path, tmp_path: Path) -> None:
    shown = ablate("data", space(tmp_path), "--data", f"file:{folder}", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for part in ("left out: 1 empty or copies", "2 labels: ", "sample 3", "majority class", "unigram", "fingerprint"):
        assert part in shown.stdout
    plain = json.loads(ablate("data", "mine.yaml", "--data", f"file:{folder}", "--json", cwd=tmp_path).stdout)
    assert plain["rows"] == {"train": 180, "validation": 20}
    assert sum(plain["labels"].values()) == 180
    assert sum(bin_["count"] for bin_ in plain["lengths"]) == 180
    assert plain["baselines"]["unigram"]["val_accuracy"] == 1
    assert plain["fingerprint"] in shown.stdout


def test_validate_says_that_data_is_missing(folder: Path, tmp_path: Path) -> None:
    done = ablate("validate", space(tmp_path), cwd=tmp_path)
    assert done.returncode == 0
    assert "Its data is missing: data/intents: there is no such file or folder." in done.stdout
    done = ablate("validate", "mine.yaml", "--data", f"file:{folder}", cwd=tmp_path)
    assert "missing" not in done.stdout


def test_missing_data_is_one_paragraph(tmp_path: Path) -> None:
    done = ablate("data", space(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: data/intents: there is no such file or folder.")
    assert "Traceback" not in done.stderr


def test_data_named_in_place_of_the_space_is_checked() -> None:
    assert load_space("packages", data="file:x").task.data == "file:x"  # type: ignore[attr-defined]
    with pytest.raises(SpaceError, match="no such source of data"):
        load_space("packages", data="fille:x")


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_every_length_is_in_one_bin(lengths: list[int]) -> None:
    bins = histogram(tuple(lengths))
    assert sum(count for *_, count in bins) == len(lengths)
    assert len(bins) <= 10
    for low, high, count in bins:
        assert count == sum(low <= length <= high for length in lengths)


@pytest.mark.parametrize("name", ["packages", "same_file", "masked_code"])
def test_families_have_a_space_on_built_in_data(name: str) -> None:
    task = load_space(name).task
    assert task.data == "builtin:python_stdlib"  # type: ignore[attr-defined]
    assert task.missing() is None

"""The hub's source, on a local folder in the hub's layout; without a network, one clear sentence."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ablate.errors import DataError
from ablate.spec.task import TASKS
from ablate.tasks.classification import ClassificationSpec
from ablate.tasks.sources import BadRows, parse
from ablate.tasks.sources.hub import Hub, _plain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    folder = tmp_path / "set"
    (folder / "data").mkdir(parents=True)
    for split, count in (("train", 40), ("validation", 6), ("test", 3)):
        lines = [json.dumps({"text": f"{split} {i}", "label": i % 2}) for i in range(count)]
        (folder / "data" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    names = "".join(f"          '{i}': {name}\n" for i, name in enumerate(("even", "odd")))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        + "".join(f"  - split: {split}\n    path: data/{split}.jsonl\n" for split in ("train", "validation", "test"))
        + "dataset_info:\n  features:\n  - name: text\n    dtype: string\n  - name: label\n    dtype:\n"
        + f"      class_label:\n        names:\n{names}---\n"
    )
    return folder


def test_local_folder_goes_the_same_way(folder: Path) -> None:
    lines: list[str] = []
    source = parse(f"hub:{folder}")
    rows = list(source.rows(("label", "text"), BadRows(refuse=True), lines.append))
    assert len(rows) == 46
    assert [(row.values, row.split) for row in rows[:2]] == [
        (("even", "train 0"), "train"),
        (("odd", "train 1"), "train"),
    ]
    assert rows[40].split == "validation"
    assert lines == ["Splits left out: test"]
    assert source.revision() == ""
    assert source.missing() is None


def test_splits_can_be_named(folder: Path) -> None:
    rows = list(parse(f"hub:{folder}#test").rows(("text",), BadRows(refuse=True), lambda line: None))
    assert [(row.values[0], row.split) for row in rows] == [(f"test {i}", "") for i in range(3)]
    rows = list(parse(f"hub:{folder}#train,test").rows(("text",), BadRows(refuse=True), lambda line: None))
    assert [row.split for row in rows] == ["train"] * 40 + ["validation"] * 3
    with pytest.raises(DataError, match=r"there is no split `tets`; expected one of .*Did you mean `test`\?"):
        list(parse(f"hub:{folder}#tets").rows(("text",), BadRows(refuse=True), lambda line: None))


def test_a_label_that_has_no_name_is_a_number() -> None:
    feature = SimpleNamespace(names=["even", "odd"])
    found = [_plain(value, feature) for value in (0, 1, 2, -1, None, "odd", 0.5)]
    assert found == ["even", "odd", "2", "-1", "", "odd", "0.5"]
    assert [_plain(value, None) for value in (0, "x")] == ["0", "x"]


def test_the_split_for_validation_has_the_first_of_the_usual_names() -> None:
    names = ["other", "dev", "val", "valid", "validation", "test"]
    for count in range(2, 6):
        chosen = Hub(argument="owner/name")._chosen(names[:count])
        assert chosen == {"train": "other", "validation": names[count - 1]}
    assert Hub(argument="owner/name", with_test=True)._chosen([*names, "train"]) == {
        "train": "train",
        "validation": "validation",
        "test": "test",
    }


def test_a_missing_column_lists_those_there(folder: Path) -> None:
    with pytest.raises(DataError, match=r"there is no column `lable`; expected one of `text`, `label`"):
        list(parse(f"hub:{folder}").rows(("lable",), BadRows(refuse=True), lambda line: None))


def test_large_sets_are_streamed_with_the_same_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(parse(f"hub:{folder}").rows(("text", "label"), BadRows(refuse=True), lambda line: None))
    monkeypatch.setattr("ablate.tasks.sources.hub.STREAMED_FROM", 0)
    source = parse(f"hub:{folder}")
    assert list(source.rows(("text", "label"), BadRows(refuse=True), lambda line: None)) == whole
    assert list(source.rows(("text", "label"), BadRows(refuse=True), lambda line: None)) == whole, "again and again"


def test_it_is_learnt_from(folder: Path, tmp_path: Path) -> None:
    plain = {"data": f"hub:{folder}", "tokenizer": "bytes", "context": 16}
    spec = ClassificationSpec.model_validate(plain)
    fingerprint = spec.prepare(tmp_path / "cache", lambda line: None)
    task = spec.open(tmp_path / "cache", fingerprint)
    assert task.labels == ["even", "odd"]
    assert task.describe().rows == {"train": 40, "validation": 6}


@pytest.mark.parametrize("named", ["", "#train,validation,test"])
def test_the_split_for_a_test_is_read_when_it_is_asked_for(folder: Path, named: str) -> None:
    lines: list[str] = []
    source = parse(f"hub:{folder}{named}", with_test=True)
    rows = list(source.rows(("text",), BadRows(refuse=True), lines.append))
    assert [row.split for row in rows] == ["train"] * 40 + ["validation"] * 6 + ["test"] * 3
    assert lines == []


OF_HUB: dict[str, dict[str, Any]] = {
    "classification": {},
    "masked_language_model": {},
    "language_model": {},
    "language_mixture": {},
    "matching": {"first": "text", "second": "text"},
    "translation": {"source": "text", "target": "text", "validation_pairs": 3},
}
"""The tasks that take texts, and the settings that they need here."""


def test_every_task_that_takes_data_is_among_them() -> None:
    takes = {kind for kind, spec in TASKS.members().items() if {"data", "sources"} & spec.model_fields.keys()}
    assert takes - {"listops"} == OF_HUB.keys(), "expressions are read each time, and their content is the key"


@pytest.mark.parametrize("kind", sorted(OF_HUB))
def test_the_resolved_revision_counts_in_the_fingerprint(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: dict[str, Any] = {"data": f"hub:{folder}"}
    if kind == "language_mixture":
        data = {"sources": {name: {**data, "weight": 1.0} for name in ("one", "other")}}
    plain = {"kind": kind, **data, "tokenizer": "bytes", "context": 32, **OF_HUB[kind]}
    spec = TASKS.members()[kind].model_validate(plain)
    fingerprints = set()
    for revision in ("", "1f3a", "77c0"):
        monkeypatch.setattr(Hub, "revision", lambda self, revision=revision: revision)
        fingerprints.add(spec.prepare(tmp_path / "cache", lambda line: None))
    assert len(fingerprints) == 3


def test_the_parts_of_an_address() -> None:
    parts = Hub(argument="stanfordnlp/imdb/plain@1f3a#train,dev,test")._parts
    assert parts == {
        "name": "stanfordnlp/imdb/plain",
        "revision": "1f3a",
        "train": "train",
        "validation": "dev",
        "test": "test",
    }
    with pytest.raises(DataError, match="this is not the address of a dataset"):
        _ = Hub(argument="a@b@c")._parts


READ = """
from ablate.errors import DataError
from ablate.tasks.sources import BadRows, hub, parse
hub.REACH_SECONDS = 0.5
try:
    list(parse("hub:stanfordnlp/imdb").rows(("text",), BadRows(True), print))
except DataError as error:
    print(error)
"""


def read_without_a_hub(folder: Path, **environment: str) -> None:
    full = {**os.environ, "HF_HOME": str(folder), **environment}
    done = subprocess.run([sys.executable, "-c", READ], env=full, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "hub:stanfordnlp/imdb: the hub does not respond (is this machine offline?) and the dataset is not in the cache"
        " of `datasets`. Run once with a connection, or name a local copy: `hub:./FOLDER`.\n"
    )
    assert done.stderr == ""


def test_offline_without_a_copy_is_one_sentence(tmp_path: Path) -> None:
    read_without_a_hub(tmp_path, HF_HUB_OFFLINE="1")


def test_a_hub_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        server.setblocking(False)
        host, port = server.getsockname()
        read_without_a_hub(tmp_path, HF_ENDPOINT=f"http://{host}:{port}", HF_HUB_OFFLINE="0", NO_PROXY="*")
        server.accept()[0].close()
        with pytest.raises(BlockingIOError):  # nobody else has knocked
            server.accept()


def test_a_folder_that_is_not_there_is_missing(tmp_path: Path) -> None:
    assert "there is no such folder" in str(parse(f"hub:{tmp_path}/nothing").missing())


def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *args, **more: pytest.fail("the hub was asked"))
    with pytest.raises(DataError, match="there is no such folder"):
        list(parse(f"hub:{tmp_path}/nothing").rows(("text",), BadRows(refuse=True), lambda line: None))

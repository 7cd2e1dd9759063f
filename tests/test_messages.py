"""Messages: commands that can be typed as they stand, no passwords, no wrong advice, no wrong blame."""

from __future__ import annotations

import ast
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ablate.errors import AblateError
from ablate.execution.environment import describe_environment
from ablate.processes import command, hide_passwords
from ablate.tables.description import RunTableSpec
from ablate.tables.reading import read_tables
from ablate.tasks.sources import BadRows, parse
from ablate.tasks.tokenizers.subwords import read_saved
from ablate.trained.source import read_source

ROOT = Path(__file__).parents[1]
DELETES = re.compile(
    r"\b(remove|delete|erase|discard|throw away|rm)\b[^.;]*"
    r"\b(it|them|file|folder|data|store|weights|cache|checkpoint)\b",
    re.IGNORECASE,
)


def messages(source: Path) -> Iterator[str]:
    """Every string of a module that is not a docstring."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def test_no_message_advises_to_delete_what_may_be_good() -> None:
    assert DELETES.search("Remove the file and train the trial again, into a new store.")
    sources = [path for package in ("ablate", "dashboard") for path in (ROOT / package).rglob("*.py")]
    assert len(sources) > 100
    advice = [(path.name, text) for path in sources for text in messages(path) if DELETES.search(text)]
    assert advice == []


def of_a_dataset(folder: Path) -> object:
    return list(parse(f"hub:{folder}").rows(("text",), BadRows(refuse=True), lambda line: None))


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "datasets": ("datasets.load_dataset_builder", of_a_dataset),
    "pyarrow": ("pandas.read_parquet", lambda folder: read_tables(folder, ["runs.parquet"], RunTableSpec())),
    "tokenizers": ("tokenizers.Tokenizer.from_str", lambda folder: read_saved(folder / "tokenizer.json")),
    "torch": ("torch.load", lambda folder: read_source(str(folder / "weights.pt"), folder)),
    "huggingface_hub": ("huggingface_hub.snapshot_download", lambda folder: read_source("hub:a/b", folder)),
}


@pytest.mark.parametrize("library", READERS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, None])
def test_a_fault_of_the_machine_is_not_that_of_a_file(
    library: str, number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("runs.parquet", "tokenizer.json", "weights.pt"):
        (tmp_path / name).write_text("{}")

    def fails(*_: object, **__: object) -> None:
        first = ValueError("no data") if number is None else OSError(number, os.strerror(number))
        raise RuntimeError("something went wrong") from first

    target, read = READERS[library]
    monkeypatch.setattr(target, fails)
    with pytest.raises(AblateError) as raised:
        read(tmp_path)
    assert (raised.type is AblateError) == (number is not None)
    if number is not None:
        assert f"the system refuses this: {os.strerror(number)}" in str(raised.value)
        assert re.search(f"{re.escape(str(tmp_path))}|hub:a/b, whose copy goes to HF_HOME", str(raised.value))


def executable(folder: Path) -> Path:
    folder.mkdir()
    file = folder / "ablate"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def test_a_command_on_the_path_goes_by_its_name_and_any_other_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, other = executable(tmp_path / "found"), executable(tmp_path / "other")
    monkeypatch.setenv("PATH", str(found.parent))
    monkeypatch.setattr(sys, "argv", [str(found)])
    assert command("show", "tiny") == "ablate show tiny"
    monkeypatch.setattr(sys, "argv", [str(other)])
    assert command("show", "tiny") == f"{other} show tiny"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["other/ablate"])
    assert command("show", "tiny") == "other/ablate show tiny"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["/usr/lib/ipykernel_launcher.py"])
    assert command("show", "tiny") == "ablate show tiny"


def test_arguments_are_quoted_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["x"])
    assert command("study", "my space.yaml", "--store", "a$b") == "ablate study 'my space.yaml' --store 'a$b'"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("--log-to https://me:secret@host/db", "--log-to https://me:***@host/db"),
        ("postgresql+psycopg://:s%40x@host", "postgresql+psycopg://:***@host"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("file:text a:b@c", "file:text a:b@c"),
    ],
)
def test_passwords_are_not_written_down(text: str, hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hide_passwords(text) == hidden
    monkeypatch.setattr(sys, "argv", ["/bin/ablate", "study", *text.split()])
    assert "secret" not in describe_environment("cpu").command


@pytest.mark.parametrize("store", [["--store", "/home/me/runs.db"], ["--store=/home/me/runs.db"], []])
def test_the_recorded_command_leaves_out_where_the_store_is(store: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["ablate", "study", *store, "my space.yaml", "--workers", "2"])
    assert describe_environment("cpu").command == "ablate study 'my space.yaml' --workers 2"

"""Commands that are suggested can be typed as they stand, and give no password away."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ablate.command_line import command, hide_passwords
from ablate.execution.environment import describe_environment


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

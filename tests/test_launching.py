"""Processes that ablate starts: they find what it finds, and nothing of the working folder stands in for that."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ablate
from ablate.launching import child_environment, python_command

ROOT = Path(ablate.__file__).parents[1]
SHADOWS = ("copy", "queue", "numpy", "torch", "typing", "json", "pydantic", "ablate")
"""Modules that a worker imports; the folder of a study may hold files of these names."""


def run_child(folder: Path, code: str) -> str:
    done = subprocess.run(
        python_command("-c", f"from ablate.launching import adopt_modules; adopt_modules(); {code}"),
        cwd=folder, env=child_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_no_file_of_the_working_folder_stands_in_for_an_installed_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the file of the user was imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", *sys.path])  # as of a script or a notebook in that folder
    assert run_child(tmp_path, f"import {', '.join(SHADOWS)}; print('fine')") == "fine"


def test_a_module_beside_a_script_is_found_by_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "sibling_of_my_mixer.py").write_text("VALUE = 7")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "scripts"), *sys.path])
    assert run_child(tmp_path, "import sibling_of_my_mixer; print(sibling_of_my_mixer.VALUE)") == "7"


def test_every_python_process_is_started_by_one_function() -> None:
    """`sys.executable` outside that module would be a process that looks into the working folder."""
    found = []
    for file in (*ROOT.glob("ablate/**/*.py"), *ROOT.glob("dashboard/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                found.append(file.relative_to(ROOT).as_posix())
    assert set(found) == {"ablate/launching.py", "ablate/serving.py"}, "the latter replaces its own process"

"""Processes that ablate starts: they find what it finds, and nothing of the working folder stands in for that."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ablate
from ablate.processes import child_environment, python_command

ROOT = Path(ablate.__file__).parents[1]
SHADOWS = ("copy", "queue", "numpy", "torch", "typing", "json", "pydantic", "ablate")
"""Modules that a worker imports; the folder of a study may hold files of these names."""


def run_child(folder: Path, code: str) -> str:
    done = subprocess.run(
        python_command("-c", f"from ablate.processes import adopt_modules; adopt_modules(); {code}"),
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


def test_the_module_runs_beside_files_that_have_names_of_modules(tmp_path: Path) -> None:
    """All but `types` and the few others that Python itself imports before it runs a module."""
    installed = ("numpy", "typer", "dashboard", "torch/__init__", "ruamel/__init__")
    for name in ("copy", "queue", "random", "typing", "json", *installed):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the file of the user was imported')")
    command = [sys.executable, "-m", "ablate", "cost", "pre_ln", "--width", "64", "--heads", "4", "--depth", "2"]
    done = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


PLUGIN = """
import copy, random
import helper_of_mine
assert copy.deepcopy([1]) == [1] and random.random() < 1
print(helper_of_mine.VALUE)
"""


def test_a_plugin_imports_the_modules_beside_it_from_any_folder_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mixer.py").write_text(PLUGIN)
    (tmp_path / "mine" / "helper_of_mine.py").write_text("VALUE = 7")
    for name in ("copy", "random"):
        (tmp_path / "mine" / f"{name}.py").write_text("raise SystemExit('the file of the user was imported')")
    code = "from ablate.plugins import load_plugin; load_plugin('mine/mixer.py')"
    assert run_child(tmp_path, code) == "7"


def test_two_plugins_never_share_a_module_by_accident(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mixer.py").write_text("import helper_of_mine\nprint(helper_of_mine.VALUE)")
        (tmp_path / folder / "also.py").write_text("import helper_of_mine\nprint(helper_of_mine.VALUE)")
        (tmp_path / folder / "helper_of_mine.py").write_text(f"VALUE = {folder!r}")
    code = """
from ablate.errors import PluginError
from ablate.plugins import load_plugin
load_plugin('a/mixer.py')
load_plugin('a/also.py')
try:
    load_plugin('b/mixer.py')
except PluginError as error:
    print(error)
"""
    first, second, refusal = run_child(tmp_path, code).splitlines()
    assert (first, second) == ("a", "a")
    assert "`helper_of_mine`, and the folder of another plugin has a module of that name too" in refusal


def test_every_python_process_is_started_by_one_function() -> None:
    """`sys.executable` outside that module would be a process that looks into the working folder."""
    found = []
    for file in (*ROOT.glob("ablate/**/*.py"), *ROOT.glob("dashboard/**/*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "executable" in text else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                found.append(file.relative_to(ROOT).as_posix())
    fills_in = "ablate/execution/own_trainer.py"  # `{python}` in the user's command
    replaces_itself = "ablate/serving.py"
    assert set(found) == {"ablate/processes.py", fills_in, replaces_itself}


_STARTS = {"Popen", "run", "call", "check_call", "check_output", "getoutput"}
_CALLS = {
    *("ray.init", "eval", "exec", "compile", "torch.load", "pickle.load", "pickle.loads", "cloudpickle.loads"),
    *("marshal.loads", "webbrowser.open", "runpy.run_path", "runpy.run_module", "joblib.load", "dill.load"),
}
_METHODS = {"exec_module", "extractall", "Unpickler", "get_context", "entry_points", "recv"}


def _executes(call: ast.Call) -> str:
    """What a call may execute code by; empty if it cannot."""
    name = ast.unparse(call.func)
    owner, _, last = name.rpartition(".")
    by_name = last in {"import_module", "__import__"} and not isinstance(call.args[0], ast.Constant)
    process = (owner == "subprocess" and last in _STARTS) or (
        owner == "os" and last.startswith(("exec", "spawn", "posix_spawn", "system", "popen", "fork", "startfile"))
    )
    return name if process or by_name or name in _CALLS or last in _METHODS else ""


def test_security_md_names_everything_that_can_execute_code() -> None:
    found, unsafe = set(), []
    for file in (*ROOT.glob("ablate/**/*.py"), *ROOT.glob("dashboard/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            place = f"{file.relative_to(ROOT).as_posix()}:{node.lineno}"
            if name := _executes(node):
                found.add(file.relative_to(ROOT).as_posix())
                if name == "torch.load" and given.get("weights_only") != "True":
                    unsafe.append(place)
            if given.get("trust_remote_code", "False") != "False" or given.get("shell", "False") != "False":
                unsafe.append(place)
            if ast.unparse(node.func).endswith(("np.load", "numpy.load")) and "allow_pickle" in given:
                unsafe.append(place)
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = text.partition("## What can execute code")[2].partition("\n## ")[0]
    assert set(re.findall(r"`((?:ablate|dashboard)/[a-z_/]+\.py)`", section)) == found
    assert unsafe == []

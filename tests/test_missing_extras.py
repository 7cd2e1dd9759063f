"""Without the packages of an extra, every command, tracker, source and format names the extra to install."""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from cli_runs import Finished, Workplace

import ablate
from ablate import extras
from ablate.cli.app import COMMAND_NAMES
from ablate.errors import MissingPackageError
from ablate.extras import PACKAGES
from ablate.render.formats import FORMATS
from ablate.trained.hugging_face.check import compare

HOST = "postgresql://me@127.0.0.1:1/name"
FILES = {
    "hub": "task: {kind: language_model, data: 'hub:./rows', tokenizer: bytes, context: 16}",
    "labels": """
task: {kind: classification, data: 'hub:./rows', text: text, label: label, tokenizer: bytes, context: 16}
model: {family: encoder, head: {pooling: mean}}
objective: {metric: val_accuracy, direction: maximize}
""",
    "downstream": "task: {downstream: {tasks: {keywords: [acc]}}}",
    "parquet": "task: {kind: language_model, data: 'file:rows.parquet', tokenizer: bytes, context: 16}",
    "zstandard": "task: {kind: language_model, data: 'file:rows.txt.zst', tokenizer: bytes, context: 16}",
    "soap": "training: {optimizer: {kind: soap, lr: 1.0e-3}}",
    "search": "design: {kind: search, sampler: random, points: 2, seeds: 1}",
}
"""Spaces that extend `tiny`: name to the section that needs an extra."""
LACKING: list[tuple[str, list[str]]] = [
    ("aim", ["judge", "aim/run_metadata.sqlite", "--input", "aim"]),
    ("dashboard", ["dashboard"]),
    ("data", ["plan", "hub.yaml"]),
    ("data", ["study", "labels.yaml"]),
    ("data", ["plan", "parquet.yaml"]),
    ("data", ["report", "tiny", "--format", "parquet", "--out", "out"]),
    ("evaluate", ["evaluate", "tiny", "--tasks", "a_task"]),
    ("evaluate", ["plan", "downstream.yaml"]),
    ("figures", ["bench", "pre_ln", "--context", "8", "--out", "x.svg"]),
    ("judge", ["judge", "rows.parquet"]),
    ("mcp", ["mcp"]),
    ("mlflow", ["study", "tiny.yaml", "--log-to", "mlflow:runs"]),
    ("postgres", ["list", "--store", HOST]),
    ("ray", ["study", "tiny.yaml", "--engine", "ray"]),
    ("search", ["validate", "search.yaml"]),
    ("search", ["export", "tiny", "--optuna", "sqlite:///optuna.db"]),
    ("soap", ["plan", "soap.yaml"]),
    ("tensorboard", ["study", "tiny.yaml", "--log-to", "tensorboard:runs"]),
    ("trackio", ["judge", "trackio:rows"]),
    ("translation", ["plan", "translate"]),
    ("wandb", ["study", "tiny.yaml", "--log-to", "wandb:project"]),
]
"""An extra, and a command that needs all or some of its packages."""
if sys.version_info < (3, 14):
    LACKING.append(("data", ["plan", "zstandard.yaml"]))
OTHERS = {
    "diff": ["tiny.yaml", "soap.yaml"],
    "reproduce": ["0"],
    "resume": ["tiny"],
    "gate": ["tiny"],
    "rename": ["tiny", "tiny"],
    "delete": ["tiny"],
    "site": ["public"],
    "export-study": ["tiny"],
    "import-study": ["tiny.study.zip"],
    "evaluate": ["tiny", "--file", "rows.txt.zst"],
    "generate": ["0"],
    "judge": ["rows.parquet"],
    "translate": ["0", "a"],
    "draw": ["pre_ln"],
    "cost": ["pre_ln"],
    "import": ["rows", "--verify"],
    "export": ["0", "--hf", "model"],
    "new": ["other"],
    **{command: ["tiny.yaml"] for command in ("plan", "study", "validate", "data", "claims")},
    **{command: ["tiny"] for command in ("show", "report", "calibrate")},
}
"""The arguments of each command that takes some."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Workplace:
    """A folder with a study and spaces that need extras."""
    place = Workplace(tmp_path_factory.mktemp("lacking"), cache)
    place.space(steps=2, seeds=1)
    for name, section in FILES.items():
        (place.folder / f"{name}.yaml").write_text(f"extends: tiny.yaml\nname: {name}\n{section}\n")
    (place.folder / "rows").mkdir()
    (place.folder / "aim").mkdir()
    for name in ("rows.parquet", "rows.txt.zst", "aim/run_metadata.sqlite"):
        (place.folder / name).write_bytes(b"rows")
    assert place.call("study", "tiny.yaml", "--workers", "1").code == 0
    return place


@pytest.fixture
def everything_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in {package for packages in PACKAGES.values() for package in packages}:
        monkeypatch.setitem(sys.modules, package, None)


def assert_named(done: Finished, extra: str) -> None:
    said = " ".join(done.err.split())
    assert done.code == 2, said
    assert "Traceback" not in said
    assert f"Run `pip install 'ablate-blocks[{extra}]'`." in said, said


@pytest.mark.parametrize(("extra", "arguments"), LACKING, ids=lambda value: str(value))
def test_a_command_that_lacks_the_packages_of_an_extra_names_it(
    extra: str, arguments: list[str], place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in PACKAGES[extra]:
        monkeypatch.setitem(sys.modules, package, None)
    done = place.call(*arguments)
    assert_named(done, extra)
    assert any(package in done.err for package in PACKAGES[extra])


@pytest.mark.parametrize(("extra", "package"), [(extra, each) for extra in PACKAGES for each in PACKAGES[extra]])
def test_each_package_of_an_extra_is_missed(extra: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"needs .*\b{package}\b.*'ablate-blocks\[{extra}\]'"):
        extras.require(extra, "this test", packages=[package])


def test_validate_names_the_extra_of_data_that_it_cannot_look_for(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for space in ("hub.yaml", "labels.yaml"):
        done = place.call("validate", space)
        assert (done.code, done.err) == (0, "")
        assert "needs datasets, which is not installed. Run `pip install 'ablate-blocks[data]'`." in " ".join(
            done.out.split()
        )


def test_checking_a_store_on_postgres_names_the_tools_of_postgres(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No package would help: the command reads files of SQLite alone."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = place.call("check-store", "--store", HOST)
    assert done.code == 2
    assert "only an SQLite store can be checked" in done.err
    assert "pg_amcheck" in done.err
    assert "pip install" not in done.err


def test_every_extra_is_asked_for_by_a_command() -> None:
    in_python_alone, with_a_model = "notebook", "transformers"  # `import --check` reads a model first
    assert PACKAGES.keys() - {extra for extra, _ in LACKING} == {in_python_alone, with_a_model}


@pytest.mark.parametrize(
    "command", sorted(set(COMMAND_NAMES) - {"doctor", "check-kind", "bench"})
)  # which need minutes
@pytest.mark.usefixtures("everything_blocked")
def test_no_command_ends_in_a_traceback_without_any_extra(
    command: str, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = place.call(command, *OTHERS.get(command, []))
    assert "Traceback" not in done.err
    assert done.code in (0, 1, 2), done.err
    if done.code == 2:
        assert done.err.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("kind", FORMATS.members())
@pytest.mark.usefixtures("everything_blocked")
def test_every_format_is_written_or_names_its_extra(kind: str, place: Workplace) -> None:
    done = place.call("report", "tiny", "--format", kind, "--out", f"report-{kind}")
    if done.code != 0:
        assert_named(done, "data")


def test_a_comparison_with_transformers_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingPackageError, match=r"needs transformers, .*'ablate-blocks\[transformers\]'"):
        compare(Path(), MagicMock())


ASKED_BY_OTHERS = {
    "store/failures.py": "a driver that the URL names",
    "execution/ray/files.py": "a package of Arrow or fsspec for a URL",
    "execution/ray/tuning.py": "a class of Ray that other versions have moved",
    "spec/trainer.py": "a module of the user's that a trainer names",
    "analysis/optuna_export.py": "a driver that the URL of Optuna's storage names",
}
"""The files that may handle an ImportError, and of what."""


def handlers() -> Iterator[str]:
    root = Path(ablate.__file__).parent
    for file in root.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if re.search(r"ImportError|ModuleNotFoundError", text) else ():
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                names = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)}
                if names & {"ImportError", "ModuleNotFoundError"}:
                    yield file.relative_to(root).as_posix()


def test_only_one_function_asks_for_optional_packages() -> None:
    assert set(handlers()) == set(ASKED_BY_OTHERS)


def test_a_folder_with_the_name_of_a_package_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_tracker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(extras.PACKAGES, "acme", ("acme_tracker",))
    assert extras.missing_packages("acme") == ("acme_tracker",)


def test_packages_are_found_by_the_distributions_that_have_them() -> None:
    installed = packages_distributions()
    for package in {package for packages in extras.PACKAGES.values() for package in packages} & set(installed):
        assert extras._is_installed(package), (package, installed[package])

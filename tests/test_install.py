"""What `make study` and `make test` install, what the core packages suffice for, and what is said without an extra."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from cli_runs import Workplace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from ruamel.yaml import YAML

from ablate.errors import MissingPackageError
from ablate.extras import PACKAGES, require
from ablate.spec.reading import load_space

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

FAKE_PYTHON = """#!/bin/sh
# Writes down what it is called with; `-m venv` makes copies of itself and `ablate`, `-m pip` one of `uv`.
echo "$(basename "$0") $*" >> "$CALLS"
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
    for tool in ablate pytest; do cp "$0" "$3/bin/$tool"; done
elif [ "$1 $2" = "-m pip" ]; then
    cp "$0" "$(dirname "$0")/uv"
elif [ "$(basename "$0")" = uv ] && [ -n "$NO_TORCH_INDEX" ]; then
    case "$*" in *--torch-backend*) exit 2;; esac
fi
"""


@pytest.fixture
def make(tmp_path: Path):
    """Runs `make` in a folder with the Makefile and an interpreter that only writes down its calls."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    fake = tmp_path / "fake-python"
    fake.write_text(FAKE_PYTHON)
    fake.chmod(0o755)
    calls = tmp_path / "calls"

    def run(*arguments: str, path: str = os.defpath, **environment: str) -> list[str]:
        calls.write_text("")
        command = ["make", f"PYTHON={fake}", *arguments]
        environment |= {"PATH": path, "CALLS": str(calls)}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
        return calls.read_text().splitlines()

    return run


def installed(calls: list[str]) -> list[str]:
    """What each call of uv installs: its last argument."""
    return [call.split()[-1] for call in calls if call.startswith("uv pip install ")]


def test_a_study_installs_the_core_and_tests_add_the_rest(make) -> None:
    study = make("study")
    assert installed(study) == ["."]
    assert study[-1] == "ablate study spaces/simplify_block.yaml"
    assert installed(make("study")) == [], "the environment was there already"
    assert installed(make("test")) == [".[all,dev,docs]"]
    assert installed(make("test")) == []
    assert installed(make("study")) == []


def test_tests_install_what_a_study_needs_too(make) -> None:
    assert installed(make("test")) == [".[all,dev,docs]"]
    assert installed(make("study")) == []


@pytest.mark.parametrize("target", ["study", "test"])
def test_another_build_of_torch_is_installed_before_the_rest(make, target: str) -> None:
    calls = make(target, "TORCH=torch --index-url URL")
    first, second = [call for call in calls if call.startswith("uv pip install ")]
    assert first.endswith("--no-deps torch --index-url URL")
    assert "--constraint constraints.txt" in first
    assert "URL" not in second
    assert "--torch-backend" not in second, "it would replace that build"


def test_uv_on_path_is_used_and_otherwise_installed(make, tmp_path: Path) -> None:
    assert "python -m pip install --quiet uv" in make("study")
    shutil.rmtree(tmp_path / ".venv")
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(tmp_path / "fake-python", tools / "uv")
    calls = make("study", path=f"{tools}{os.pathsep}{os.defpath}")
    assert not [call for call in calls if " -m pip " in call]
    assert installed(calls) == ["."]


def test_without_pytorchs_index_the_default_build_is_installed(make) -> None:
    first, second = [call for call in make("study", NO_TORCH_INDEX="1") if call.startswith("uv pip install ")]
    assert "--torch-backend auto" in first
    assert first.replace("--torch-backend auto ", "") == second


OLD_PYTHON = """#!/bin/sh
# Runs `-c PROGRAM` as an interpreter whose version, or module venv, is another.
[ "$1" = -c ] && exec {python} -c '{changes}; import sys; exec(sys.argv[1])' "$2"
"""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("import sys; sys.version_info = (3, 10, 13)", "ablate needs Python 3.11 or later, and {} is Python "),
        ("import sys; sys.version_info = (2, 7, 18)", "name another, such as: make study PYTHON=python3.13"),
        ('import sys; sys.modules["ensurepip"] = None', "without the module venv; install it"),
        (None, "ablate needs Python 3.11 or later; name another, such as: make study PYTHON="),
    ],
)
def test_make_names_the_interpreters_that_work_and_leaves_nothing(
    make, tmp_path: Path, changes: str | None, says: str
) -> None:
    other = tmp_path / "other-python"
    if changes is not None:
        other.write_text(OLD_PYTHON.format(python=sys.executable, changes=changes))
        other.chmod(0o755)
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(subprocess.CalledProcessError) as failed:
        make("study", f"PYTHON={other}")
    assert says.format(other) in failed.value.stderr.decode()
    assert {path.name for path in tmp_path.iterdir()} - {"calls"} == before


@pytest.mark.parametrize(("target", "resolution"), [("test-lowest", "lowest-direct"), ("test-newest", "highest")])
def test_the_bounds_are_installed_without_constraints(make, target: str, resolution: str) -> None:
    calls = make(target)
    installs = [call for call in calls if call.startswith("uv ")]
    assert [call.split()[-1] for call in installs] == [".[all]", ".[dev]"]
    assert installs[0].startswith(f"uv pip install --resolution {resolution} ")
    assert "--constraint" not in "".join(installs)
    assert calls[-1].startswith("python -m pytest ")


def requirements(extra: str) -> set[str]:
    """The distributions of an extra, of the extras that it names too."""
    found: set[str] = set()
    for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
        own = requirement.name == PROJECT["name"]
        found |= set.union(*map(requirements, requirement.extras)) if own else {canonicalize_name(requirement.name)}
    return found


def core_modules() -> set[str]:
    """The modules that `pip install ablate-blocks` brings without any extra."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in PROJECT["dependencies"]]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += map(Requirement, distribution(name).requires or ())
    modules = packages_distributions()
    return {module for module, owners in modules.items() if any(canonicalize_name(name) in found for name in owners)}


def test_the_source_distribution_is_what_the_tests_use_and_nothing_that_only_shares_a_name() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    patterns = build["targets"]["sdist"]["include"]
    assert all(pattern.startswith("/") and (ROOT / pattern[1:]).exists() for pattern in patterns)
    of_the_tests = {"/benchmarks", "/cluster", "/tests", "/Makefile", "/constraints.txt", "/SECURITY.md", "/.github"}
    assert of_the_tests <= set(patterns)
    assert "/studies" not in patterns


APART = {"aim", "trackio"}
"""Extras whose package holds others below the versions that are tested."""


def test_the_extra_all_is_every_extra() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"all", "dev", "docs"} - APART
    assert requirements("all") == set.union(*map(requirements, extras))


def test_every_extra_brings_the_packages_that_its_commands_ask_for() -> None:
    distributions = packages_distributions()
    for extra, packages in PACKAGES.items():
        brought = requirements(extra)
        for package in packages:
            names = distributions.get(package, [package] if extra in APART else [])
            assert brought & {canonicalize_name(name) for name in names}, (extra, package)


ONLY_CORE = """
import sys
from importlib.machinery import PathFinder

class OnlyCore(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = OnlyCore
"""


class BareWorkplace(Workplace):
    """A folder in which `ablate` and its workers see the core packages alone."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONPATH": str(self.folder / "hook")}


@pytest.fixture
def bare(tmp_path: Path, cache: Path) -> BareWorkplace:
    blocked = set(packages_distributions()) - core_modules() - {"ablate", "pip"}
    assert {"vl_convert", "optuna", "sklearn", "sacrebleu", "pandas", "ray", "streamlit"} <= blocked
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(f"BLOCKED = {blocked!r}\n{ONLY_CORE}")
    return BareWorkplace(tmp_path, cache)


def test_the_core_packages_are_enough_to_run_and_report_a_study(bare: BareWorkplace) -> None:
    file = bare.folder / bare.space(seeds=1)
    file.write_text(file.read_text().replace("leave_one_out", "grid"))  # a grid has importances, by fANOVA
    study = bare.run("study", file.name, "--workers", "1", "--json")
    assert (study.code, study.last_object["trained"]) == (0, 4), study.err
    commands = (
        ("report", "tiny", "--format", "html", "--out", "report"),
        ("export", "tiny", "--optuna", "sqlite:///o.db"),
    )
    report, export = bare.series(*commands)
    assert (report.code, report.err) == (0, "Without figures: run `pip install 'ablate-blocks[figures]'`.\n")
    assert [path.name for path in (bare.folder / "report").iterdir()] == ["tiny.html"]
    page = (bare.folder / "report" / "tiny.html").read_text()
    assert "<figure" not in page
    assert "fANOVA) needs optuna, sklearn, cmaes" in page
    assert export.code == 2
    assert re.search(r"needs optuna, .* Run `pip install\s+'ablate-blocks\[search\]'`", export.err)


def test_a_translation_says_what_it_lacks_before_any_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingPackageError, match=r"needs sacrebleu, .*'ablate-blocks\[translation\]'"):
        load_space("translate").task.prepare(tmp_path, lambda line: pytest.fail(line))


@pytest.mark.parametrize("extra", PACKAGES)
def test_without_an_extra_the_error_names_it(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if extra not in APART:  # those need not be installed here
        require(extra, "this")
    first, *_ = PACKAGES[extra]
    monkeypatch.setitem(sys.modules, first, None)
    with pytest.raises(MissingPackageError) as refused:
        require(extra, "this", where="here")
    expected = f"here: this needs {first}, which is not installed. Run `pip install 'ablate-blocks[{extra}]'`."
    assert str(refused.value) == expected


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = [
    name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.fullmatch(r"Programming.* :: \d\.\d+", name)
]
"""The versions of Python that are tested, in the order of pyproject.toml."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "cluster").iterdir()),
    ROOT / "Makefile",
]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = {
    canonicalize_name(requirement.name): requirement.specifier
    for text in [*PROJECT["dependencies"], *(text for name in EXTRAS.keys() - APART for text in EXTRAS[name])]
    if (requirement := Requirement(text)).name != PROJECT["name"]
}


def lowest(specifiers: SpecifierSet) -> str:
    """The version of the only bound of a requirement, which is a lower one."""
    (bound,) = specifiers
    assert bound.operator == ">="
    return bound.version


def test_every_python_from_the_lowest_on_is_allowed_and_each_up_to_the_newest_is_tested() -> None:
    first, last = (int(version.partition(".")[2]) for version in (PYTHONS[0], PYTHONS[-1]))
    assert [f"3.{minor}" for minor in range(first, last + 1)] == PYTHONS
    assert lowest(SpecifierSet(PROJECT["requires-python"])) == PYTHONS[0]


def test_the_tools_check_for_the_lowest_python() -> None:
    assert PYPROJECT["tool"]["mypy"]["python_version"] == PYTHONS[0]
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{PYTHONS[0].replace('.', '')}"


def test_the_workflows_test_every_python_and_both_bounds() -> None:
    jobs = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS
    bounds = {job["versions"]: job["python"] for job in jobs["bounds"]["strategy"]["matrix"]["include"]}
    assert bounds == {"lowest": PYTHONS[0], "newest": PYTHONS[-1]}
    for workflow in (ROOT / ".github" / "workflows").iterdir():
        for version in re.findall(r'python-version: "(.*)"', workflow.read_text(encoding="utf-8")):
            assert version in PYTHONS, workflow.name


def test_every_requirement_has_a_lower_bound_that_the_tested_version_satisfies() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    tested = {canonicalize_name(name): version for name, version in pinned.items()}
    for name, specifier in REQUIREMENTS.items():
        assert Version(lowest(specifier)) <= Version(tested[name]), name


def test_every_sentence_about_versions_is_true() -> None:
    bounds = {name: lowest(specifier) for name, specifier in REQUIREMENTS.items()} | {"python": PYTHONS[0]}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for said in re.findall(r"(3\.\d+) to (3\.\d+)", text):
            assert said == (PYTHONS[0], PYTHONS[-1]), page
        assert set(re.findall(r"python(?: find )?(3\.\d+)", text)) <= set(PYTHONS), page
        for name, version in re.findall(r"([\w-]+) (\d+(?:\.\d+)+) or (?:later|newer)", text):
            assert version == bounds[canonicalize_name(name)], f"{page}: {name} {version}"


def test_the_first_pages_name_the_versions() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "docs/get-started.md", "docs/decisions/0030-dependencies.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(rf"Python(?: \|)? {PYTHONS[0]} to {PYTHONS[-1]}", text), name

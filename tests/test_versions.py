"""What README, the documentation and the workflows say about versions is what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
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
    for text in [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
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

"""Every kind and every named model names the tests that compare it with code that is not ours, or with equations."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from ablate.plugins import FAMILIES
from ablate.spec.named import model_names
from docs.reference import checks_page, independent_checks

TESTS = Path(__file__).parents[1]
OF_DATA_AND_STUDIES = {"tasks", "tokenizers", "sources", "designs", "formats", "trackers"}
"""Families that are no part of a model or of its training."""


@functools.cache
def functions(file: str) -> set[str]:
    """The tests of a file below `tests/`."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - OF_DATA_AND_STUDIES))
def test_every_kind_has_a_check(family: str) -> None:
    assert set(independent_checks()[family]) == set(FAMILIES[family].members())


def test_every_named_model_has_a_check() -> None:
    assert set(independent_checks()["models"]) == {name for name in model_names() if not name.endswith("_small")}


def test_the_tests_exist() -> None:
    for kinds in independent_checks().values():
        for kind, tests in kinds.items():
            assert tests, kind
            for test in tests:
                file, _, name = test.partition("::")
                assert name in functions(file), f"{kind}: {test}"


def test_the_page_has_a_row_for_each() -> None:
    page = checks_page()
    for kinds in independent_checks().values():
        for kind, tests in kinds.items():
            assert all(f"| `{kind}` | " in page and f"`{test}` |" in page for test in tests)

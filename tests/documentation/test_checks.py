"""Every kind and every named model has a test that compares it with code that is not ours, or with equations.

The tests say so themselves, by the mark `independent_check`.
"""

from __future__ import annotations

import pytest

from ablate.plugins import FAMILIES
from ablate.spec.average import AverageSpec
from ablate.spec.growth import GrowthSpec
from ablate.spec.named import model_names
from docs.reference import checks_page, independent_checks

OF_DATA_AND_STUDIES = {"tasks", "tokenizers", "sources", "designs", "formats", "trackers"}
"""Families that are not part of a model or of its training."""
KINDS = {name: set(family.members()) for name, family in FAMILIES.items() if name not in OF_DATA_AND_STUDIES} | {
    "growths": set(GrowthSpec.family.members()),
    "averages": set(AverageSpec.family.members()),
    "models": {name for name in model_names() if not name.endswith("_small")},
}


@pytest.mark.parametrize("family", KINDS)
def test_every_kind_has_a_check(family: str) -> None:
    assert set(independent_checks()[family]) == KINDS[family]


def test_the_page_has_a_row_for_each() -> None:
    page = checks_page()
    for kinds in independent_checks().values():
        for kind, tests in kinds.items():
            assert all(f"| `{kind}` | " in page and f"`{test}` |" in page for test in tests)

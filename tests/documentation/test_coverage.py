"""The page of the tables of papers: each row that it claims is a variant of a shipped space."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.nn.model.pricing import price
from ablate.spec.model import ModelSpec
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from docs.reference import coverage, coverage_page
from docs.studies import PAPERS

TABLES = coverage()


def settings_of(space: SpaceSpec, name: str) -> dict[str, str]:
    """The settings of a row: the baseline, a variant of the space, or `switch=setting`, several by commas."""
    if name in space.variants:
        return dict(space.variants[name])
    return {} if name == "baseline" else dict(part.strip().split("=") for part in name.split(","))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["source"])
def test_each_row_is_a_variant_and_no_two_are_the_same(table: dict[str, Any]) -> None:
    space = load_space(PAPERS.parent / f"{table['space']}.yaml")
    assert isinstance(space, SpaceSpec)
    assert table["source"] in space.source
    hashes: dict[str, str] = {}
    for row, name in table["rows"].items():
        if isinstance(name, str):
            variant = space.resolve(settings_of(space, name))
            assert hashes.setdefault(variant.content_hash(), row) == row
        else:
            assert len(name["why"]) > 10, row


def test_every_space_of_2026_is_on_the_page_and_every_paper_too() -> None:
    files = {file.stem for file in (PAPERS / "2026").glob("*.yaml") if not file.stem.endswith("_small")}
    assert {table["space"].rpartition("/")[2] for table in TABLES} == files
    page = coverage_page()
    assert all(table["paper"] in page for table in TABLES)


@pytest.mark.parametrize(("sizes", "millions"), [({}, 483), ({"width": 768, "heads": 6, "depth": 8}, 1420)])
def test_the_model_of_marin_has_as_many_parameters_as_its_results_say(sizes: dict[str, int], millions: int) -> None:
    """The column `total` of experiments/grug/fast_track/README.md; the pattern of eight layers is four, twice."""
    space = load_space(PAPERS / "2026" / "marin.yaml")
    assert isinstance(space, SpaceSpec)
    plain = space.resolve({}).model.model_dump(mode="json")
    pattern = plain["pattern"][:4] if sizes else plain["pattern"]
    model = ModelSpec.model_validate({**plain, **sizes, "pattern": pattern})
    total = price(model, context=4096, vocabulary=16384).total.parameters
    assert total / 1e6 == pytest.approx(millions, abs=5 if sizes else 0.5)

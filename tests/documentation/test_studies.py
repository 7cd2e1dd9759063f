"""The lab notebook's index and the spaces of the papers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.spec.reading import load_space
from docs.studies import INDEX, PAPERS, index, reports

SPACES = sorted(PAPERS.rglob("*.yaml"))


def test_the_index_is_made_of_the_reports() -> None:
    assert INDEX.read_text() == index(), "run `python -m docs.studies`"


def test_every_report_is_of_a_whole_study() -> None:
    for report in reports():
        progress = report["progress"]
        assert progress["waiting"] == progress["running"] == 0, report["study"]


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_a_space_of_a_paper_names_its_source_and_what_it_departs_from(file: Path) -> None:
    space = load_space(file)
    assert space.name == file.stem
    assert space.source.startswith("arXiv:")
    assert all(claim.source for claim in space.claims)
    assert bool(space.departs) or not file.stem.endswith("_small")

"""Generated pages: each kind has a check, each row of a paper is a variant, each study is in the index."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ablate.analysis.answer import answer_of
from ablate.analysis.findings import Findings
from ablate.nn.model.pricing import price
from ablate.plugins import FAMILIES
from ablate.spec.model import ModelSpec
from ablate.spec.named import model_names
from ablate.spec.reading import load_space
from ablate.spec.schedule import AverageSpec, GrowthSpec
from ablate.spec.space import SpaceSpec
from ablate.store.records import TrialState
from docs.reference import checks_page, coverage, coverage_page, independent_checks
from docs.studies import NOTEBOOK, PAPERS, differing, kept, read_kept

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


SPACES = sorted(PAPERS.rglob("*.yaml"))


@pytest.fixture(scope="module")
def studies() -> dict[str, Findings]:
    return read_kept()


def test_pages_say_what_the_kept_studies_give(studies: dict[str, Findings]) -> None:
    assert not differing(studies), "run `python -m docs.studies`"
    assert set(NOTEBOOK["order"]) >= set(kept())
    assert not set(NOTEBOOK["dropped"]) & set(kept())


def test_a_study_is_kept_only_if_its_question_can_be_answered_by_it(studies: dict[str, Findings]) -> None:
    for name, findings in studies.items():
        report = findings.report
        assert report.progress.states[TrialState.FINISHED] == report.progress.planned, name
        if report.record.judged is not None:
            continue
        rows = answer_of(report).rows
        assert sum(row.verdict != "undecided" for row in rows) >= 2 / 3 * len(rows), name
        tuned = report.evidence.tuning is not None or "tuned" in report.record.space
        excused = "trainer" in report.record.space and name in NOTEBOOK["exceptions"]  # which says why
        assert tuned or excused or report.evidence.windows, name  # where windows are paired nothing was trained
        if name in NOTEBOOK["exceptions"]:
            continue
        trivial, mean = report.evidence.trivial, report.baseline.mean(report.metric).mean
        assert trivial is not None, name
        assert mean is not None, name
        errors = [row.difference.standard_error for row in report.variants if row.difference is not None]
        assert abs(mean - trivial.value) >= 10 * median(error for error in errors if error is not None), name


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_a_space_of_a_paper_names_its_source_and_what_it_departs_from(file: Path) -> None:
    space = load_space(file)
    assert space.name == file.stem
    assert space.source.startswith("arXiv:") or ", issue " in space.source
    assert all(claim.source for claim in space.claims)
    assert bool(space.departs) or not file.stem.endswith("_small")

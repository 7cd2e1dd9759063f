"""The lab notebook's index and the spaces of the papers."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from ablate.analysis.answer import answer_of
from ablate.analysis.findings import Findings
from ablate.spec.reading import load_space
from ablate.store.records import TrialState
from docs.studies import NOTEBOOK, PAPERS, differing, kept, read_kept

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
        assert tuned or report.evidence.windows, name  # nothing was trained where windows are paired
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
    assert space.source.startswith("arXiv:")
    assert all(claim.source for claim in space.claims)
    assert bool(space.departs) or not file.stem.endswith("_small")

"""Designs replayed on a table in which every variant of a real space was trained agree with the grid."""

from __future__ import annotations

import math
import statistics

import pytest

from ablate.spec.design import SeedsSpec
from benchmarks.truth_table import FOLDER, Tally, TruthTable, fractional, leave_one_out, other_seeds

ORDER = (7, 2, 9, 0, 4, 1, 8, 3, 6, 5)


@pytest.fixture(scope="module", params=sorted(file.stem for file in FOLDER.glob("*.yaml")))
def table(request: pytest.FixtureRequest) -> TruthTable:
    return TruthTable.read(request.param)


def shares(tally: Tally) -> tuple[float, float]:
    """Agreement and false verdicts, of the decisions that the grid makes too."""
    decided = tally.agree + tally.false
    return tally.agree / decided, tally.false / decided


def test_the_table_is_the_whole_grid_with_every_seed(table: TruthTable) -> None:
    assert len(table.rows) == math.prod(len(settings) for settings in table.switches.values()) >= 64
    assert all(len(row.losses) == table.seeds >= 10 for row in table.rows.values())


def test_leave_one_out_with_growing_seeds_agrees_with_the_grid_at_a_fifteenth_of_its_cost(table: TruthTable) -> None:
    tally = leave_one_out(table, SeedsSpec(start=3, max=table.seeds), "", [ORDER])
    agree, false = shares(tally)
    assert statistics.fmean(tally.saved) >= 15
    assert agree >= 0.95
    assert false <= 0.05
    assert tally.silent / tally.reference <= 0.1


def test_verdicts_hold_on_seeds_that_were_not_seen(table: TruthTable) -> None:
    _, false = shares(leave_one_out(table, 5, "", [ORDER], truth=other_seeds))
    assert false <= 0.05


@pytest.mark.parametrize(("resolution", "least"), [("IV", 0.9), ("V", 0.95)])
def test_main_effects_of_fractions_are_those_of_the_grid(table: TruthTable, resolution: str, least: float) -> None:
    """Resolution IV aliases main effects with interactions of three switches, V with those of four."""
    agree, false = shares(fractional(table, resolution, 2, [ORDER]))
    assert agree >= least
    assert false <= 1 - least

"""A gate against bounds worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_store import fake_store

from ablate.analysis import read_study
from ablate.analysis.gate import gate, only_variant
from ablate.analysis.report import StudyReport
from ablate.errors import ArgumentError, NotFoundError

T_95_ONE_SIDED_DF_2 = 2.92
"""From a printed table."""
WIDTH = T_95_ONE_SIDED_DF_2 * 0.01 / 3**0.5
"""Of the one-sided bounds of differences d - 0.01, d and d + 0.01 (standard deviation 0.01)."""


def study(difference: float, margin: float = 0.1, *, seeds: int = 3, names: tuple[str, ...] = ("a=x",)) -> StudyReport:
    made = fake_store({name: ({}, 10) for name in ("baseline", *names)}, seeds=3, margin=margin)
    for seed in range(3):
        made.add("baseline", seed, {"val_loss": 3.0})
        for name in names:
            if seed < seeds:
                made.add(name, seed, {"val_loss": 3.0 + difference + 0.01 * (seed - 1)})
    return read_study(made, "a_study")


@pytest.mark.parametrize(
    ("difference", "not_worse", "better"),
    [
        (-0.1 - WIDTH - 1e-4, "passes", "passes"),
        (-0.1 - WIDTH + 1e-4, "passes", "undecided"),
        (-0.1 + WIDTH - 1e-4, "passes", "undecided"),
        (-0.1 + WIDTH + 1e-4, "passes", "fails"),
        (0.0, "passes", "fails"),
        (0.1 - WIDTH - 1e-4, "passes", "fails"),
        (0.1 - WIDTH + 1e-4, "undecided", "fails"),
        (0.1 + WIDTH - 1e-4, "undecided", "fails"),
        (0.1 + WIDTH + 1e-4, "fails", "fails"),
    ],
)
def test_a_gate_follows_the_bounds(difference: float, not_worse: str, better: str) -> None:
    report = study(difference)
    assert only_variant(report) == "a=x"
    asked = gate(report, "a=x", "not worse")
    assert asked.passed == not_worse
    assert (asked.verdict == "undecided") == (not_worse == "undecided")
    assert gate(report, "a=x", "better").passed == better


def test_missing_trials_decide_nothing_and_the_command_that_trains_them_is_named() -> None:
    asked = gate(study(1.0, seeds=2), "a=x", "not worse")
    assert asked.passed == "undecided"
    assert asked.next[0].arguments == ("resume", "a_study")


def test_a_variant_that_has_learnt_nothing_voids_its_own_gate_alone() -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x", "b=y")}, seeds=3, margin=0.1)
    made.record = replace(made.record, trivial={"bigram": {"val_loss": 3.5}})
    for seed in range(3):
        for name, loss in (("baseline", 3.0), ("a=x", 3.0), ("b=y", 3.6)):
            made.add(name, seed, {"val_loss": loss + 0.01 * seed * (name != "baseline")})
    report = read_study(made, "a_study")
    assert gate(report, "a=x", "not worse").passed == "passes"
    asked = gate(report, "b=y", "not worse")
    assert asked.passed == "undecided"
    assert "learnt no more than a bigram" in asked.reason


def test_a_gate_asks_of_one_variant_that_is_there() -> None:
    several = study(0.0, names=("a=x", "b=y"))
    with pytest.raises(ArgumentError, match="compares several variants; expected one of a=x and b=y"):
        only_variant(several)
    with pytest.raises(NotFoundError, match="compares no variant 'c'"):
        gate(several, "c", "better")

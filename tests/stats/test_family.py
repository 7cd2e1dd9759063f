"""Holm's procedure against statsmodels, its error rate at a known truth; the Pareto front by its definition."""

from __future__ import annotations

import gc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from ablate.stats import SeedSchedule, Verdict, dominators, hold_together, holm, judge


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_agrees_with_statsmodels(p_values: list[float]) -> None:
    ours = holm({str(i): p for i, p in enumerate(p_values)})
    with patch.object(gc, "collect"):  # it does that each time, which takes a third of a second in a large process
        theirs = multipletests(p_values, method="holm")[1]
    assert list(ours.values()) == pytest.approx(theirs)


@pytest.mark.parametrize("schedule", [None, SeedSchedule(3, 8)], ids=["fixed", "sequential"])
def test_verdicts_that_hold_together_are_all_right_nineteen_times_in_twenty(schedule: SeedSchedule | None) -> None:
    # Eight comparisons with one baseline. Two are far worse and two do nothing, so that Holm's later steps are reached;
    # four stand at the margin, where both words are wrong.
    rng = np.random.default_rng(6)
    truths, margin, studies, seeds = [0.5, 0.4, 0.0, 0.0, 0.05, 0.05, 0.05, 0.05], 0.05, 500, 8
    each_needed = needed = each_not_needed = not_needed = stood = 0
    for _ in range(studies):
        baseline = dict(enumerate(rng.normal(3.4, 0.01, seeds).tolist()))
        verdicts: dict[str, Verdict] = {}
        for i, truth in enumerate(truths):
            variant = {seed: value + truth + rng.normal(0, 0.015) for seed, value in baseline.items()}
            verdicts[str(i)] = judge(variant, baseline, margin=margin, direction="minimize", schedule=schedule)
        together = hold_together(verdicts)
        wrong = {word: {name for name in "4567" if verdicts[name].word == word} for word in ("needed", "not needed")}
        each_needed += bool(wrong["needed"])
        each_not_needed += bool(wrong["not needed"])
        needed += bool(wrong["needed"] & together)
        not_needed += bool(wrong["not needed"] & together)
        stood += {"0", "1", "2", "3"} <= together
    bound = 0.05 + 3 * (0.05 * 0.95 / studies) ** 0.5
    assert needed / studies <= bound
    assert not_needed / studies <= bound
    assert min(each_needed, each_not_needed) / studies > 0.12  # without the procedure some verdict is often wrong
    assert stood / studies > 0.9


def test_better_verdicts_that_hold_together_are_all_right_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(7)
    margin, studies, seeds = 0.05, 400, 5
    each = together = stood = 0
    for _ in range(studies):
        baseline = dict(enumerate(rng.normal(3.4, 0.01, seeds).tolist()))
        verdicts = {
            str(place): judge(
                {seed: value + truth + rng.normal(0, 0.01) for seed, value in baseline.items()},
                baseline,
                margin=margin,
                direction="minimize",
            )
            for place, truth in enumerate([-0.5, 0.2, *[-margin] * 5])
        }
        wrong = {name for name in "23456" if verdicts[name].word == "better"}
        hold = hold_together(verdicts)
        each += bool(wrong)
        together += bool(wrong & hold)
        stood += "0" in hold
    assert together / studies <= 0.05 + 3 * (0.05 * 0.95 / studies) ** 0.5
    assert each / studies > 0.12
    assert stood / studies > 0.9


def test_undecided_and_diverged_members_never_stand_but_count() -> None:
    decided = Verdict("needed", "needed: ...", None, p_needed=0.02, p_not_needed=0.98)
    better = Verdict("better", "better ...", None, p_needed=1.0, p_not_needed=0.001, p_better=0.03)
    undecided = Verdict("undecided", "undecided: ...", 2, p_needed=0.3, p_not_needed=0.7)
    diverged = Verdict("diverged", "diverged: ...", None)
    assert hold_together({"a": decided}) == hold_together({"a": decided.of_replacement()}) == {"a"}
    assert hold_together({"a": decided, "b": undecided}) == {"a"}  # 2 x 0.02
    assert hold_together({"a": decided, "b": undecided, "c": diverged}) == frozenset()  # 3 x 0.02
    assert hold_together({"a": better}) == hold_together({"a": better.of_replacement()}) == {"a"}
    assert hold_together({"a": better, "b": decided}) == {"b"}, "2 x 0.03; `better` is a family of its own"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 9))
def test_members_that_cannot_be_rejected_need_not_be_written_out(p_values: list[float], others: int) -> None:
    few = dict(enumerate(p_values))
    every = few | {len(few) + i: 1.0 for i in range(others)}
    assert holm(few, len(every)) == {name: holm(every)[name] for name in few}


numbers = st.integers(-3, 3).map(float)


@given(st.integers(2, 3).flatmap(lambda n: st.lists(st.tuples(*[numbers] * n), max_size=12)), st.data())
def test_against_the_definition(points: list[tuple[float, ...]], data: st.DataObject) -> None:
    width = len(points[0]) if points else 2
    directions = data.draw(st.lists(st.sampled_from(["minimize", "maximize"]), min_size=width, max_size=width))

    def dominates(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
        pairs = [
            (one, other) if way == "maximize" else (other, one)
            for one, other, way in zip(left, right, directions, strict=True)
        ]
        return all(one >= other for one, other in pairs) and any(one > other for one, other in pairs)

    expected = [[i for i, left in enumerate(points) if dominates(left, right)] for right in points]
    assert dominators(points, directions) == expected

"""Bounds in words: they stay true, and are never rounded to what they are compared with."""

from __future__ import annotations

import random

import pytest
from fake_store import fake_store
from hypothesis import assume, given
from hypothesis import strategies as st

from ablate.analysis import read_study
from ablate.stats import judge
from ablate.stats.bounds import at_least, at_most
from ablate.stats.verdict import Verdict

SIZES = st.floats(1e-6, 1e6)


@given(SIZES, SIZES)
def test_a_rounded_bound_stays_true_and_is_not_the_margin(value: float, margin: float) -> None:
    assume(value != margin)
    low, high = float(at_least(value, margin)), float(at_most(value, margin))
    assert low <= value * (1 + 1e-11)
    assert high >= value * (1 - 1e-11)
    assert (low > margin, high > margin) == (value > margin, value > margin)
    assert margin not in (low, high)


@given(st.floats(0.01, 1.0), st.floats(1e-9, 0.05))
def test_a_bound_just_beyond_the_margin_reads_as_beyond_it(margin: float, beyond: float) -> None:
    assert float(at_least(margin * (1 + beyond), margin)) > margin
    assert float(at_most(margin * (1 - beyond), margin)) < margin


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [(0.1571, "0.157", "0.16"), (0.1436, "0.14", "0.144"), (1234.0, "1200", "1300"), (-0.0415, "-0.042", "-0.041"),
     (0.1 + 0.2, "0.3", "0.3"), (0.0, "0", "0")],
)  # fmt: skip
def test_two_digits_unless_these_are_the_margin(value: float, least: str, most: str) -> None:
    margin = 0.15
    assert (at_least(value, margin), at_most(value, margin)) == (least, most)


def _worse(gap: float, margin: float) -> Verdict:
    noise = random.Random(1)
    baseline = {seed: 2.0 + seed / 10 for seed in range(4)}
    return judge(
        {seed: loss + gap + noise.uniform(-0.004, 0.004) for seed, loss in baseline.items()},
        baseline,
        margin=margin,
        direction="minimize",
    )


def test_neither_a_verdict_nor_an_answer_states_the_margin_as_a_bound() -> None:
    needed, fine = _worse(0.161, 0.15), _worse(0.141, 0.15)
    assert (needed.word, fine.word) == ("needed", "not needed")
    assert "worse by at least 0.15" in needed.sentence
    assert "worse by at least 0.15;" not in f"{needed.sentence};"
    assert "at most 0.15 worse" not in fine.sentence
    made = fake_store({"baseline": ({"a": "on"}, 9), "a=off": ({"a": "off"}, 9)}, seeds=4, margin=0.15)
    noise = random.Random(1)
    for seed in range(4):
        made.add("baseline", seed, {"val_loss": 2.0 + seed / 10})
        made.add("a=off", seed, {"val_loss": 2.161 + seed / 10 + noise.uniform(-0.004, 0.004)})
    said = " ".join(read_study(made, "a_study").answer.sentences)
    assert "val_loss at least 0.15" in said
    assert "val_loss at least 0.15 higher" not in said

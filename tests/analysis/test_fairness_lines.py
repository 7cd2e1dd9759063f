"""The lines of a report on tuning and matching, made from the numbers only."""

from __future__ import annotations

import pytest
from fake_store import fake_store

from ablate.analysis.fairness import MatchedBudgets, Spent, Tuned, Tuning, fairness_lines
from ablate.analysis.warnings import support
from ablate.store.records import TrialState

STEPS = MatchedBudgets("steps", None, {})


def matched(equal: str, path: str, **relative: float | None) -> MatchedBudgets:
    of = {
        name: Spent(100 + number, 64, 1000, None, None, None, share)
        for number, (name, share) in enumerate(relative.items())
    }
    return MatchedBudgets(equal, path, of)


def test_nothing_tuned_and_equal_steps_say_nothing() -> None:
    assert fairness_lines(None, STEPS, "val_loss") == ()


@pytest.mark.parametrize(
    ("relative", "words"),
    [
        ({"baseline": 1.0, "x": 1.0}, "All match the baseline exactly."),
        ({"baseline": 1.0, "x": 1.02, "y": 0.97}, "The furthest from the baseline: y, -3.00 %."),
        ({"baseline": 1.0, "x": None}, "steps from 100 to 101."),
    ],
)
def test_how_near_the_budgets_came(relative: dict[str, float | None], words: str) -> None:
    (line,) = fairness_lines(None, matched("flops", "training.steps", **relative), "val_loss")
    assert line.endswith(words)
    assert line.startswith("Matched: equal flops, by `training.steps`: steps from 100 to")


def test_budgets_that_are_not_equal_are_warned_of() -> None:
    (line,) = fairness_lines(None, matched("seconds", "training.steps", baseline=1.0, x=1.3), "val_loss")
    assert line.startswith("* Matched: equal seconds")
    assert "another machine gives other values" in line
    assert "x, +30.00 %" in line


def test_edges_and_what_is_still_tuning_are_named() -> None:
    of = {"baseline": Tuned({"lr": 1}, ("lr",), ()), "x": Tuned({"lr": 2}, (), ()), "y": Tuned(None, (), ())}
    tuning = Tuning({"lr": [1, 2, 3]}, (1000,), of)
    evidence = support(
        fake_store({"baseline": ({}, 10)}).record, dict.fromkeys(TrialState, 0), (), "seed", tuning, STEPS
    )
    assert (evidence.level, evidence.text) == ("weak", "0/0 trials, lr still being tuned")
    lines = fairness_lines(tuning, STEPS, "val_loss")
    assert "lr over 1, 2, 3, by the mean val_loss on validation over seeds (1000)" in lines[0]
    assert lines[1] == "Still tuning: y."
    assert lines[2].startswith("* The best value lies at the edge of the grid for baseline:")


def test_what_was_tuned_before_the_study_is_distinguished_from_what_it_tunes() -> None:
    of = {"baseline": Tuned({"lr": 1, "wd": 2}, (), ())}
    (line,) = fairness_lines(Tuning({"lr": [1, 2]}, (), of, before=("lr",)), STEPS, "val_loss")
    assert line == "Tuned for each variant before this study: lr; the space says how."
    both = fairness_lines(Tuning({"lr": [1, 2], "wd": [2, 3]}, (1000,), of, before=("lr",)), STEPS, "val_loss")
    assert both[0] == line
    assert "wd over 2, 3" in both[1]
    assert "lr over" not in both[1]

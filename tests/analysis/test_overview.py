"""A study in one line, beside its report, and several sides compared."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fake_store import NOON, FakeStore, fake_store

from ablate.analysis.diff import differences
from ablate.analysis.status import read_overview
from ablate.analysis.study import read_study
from ablate.store import TrialState

VARIANTS = {"baseline": ({}, 100), "small": ({}, 40), "smaller": ({}, 20), "wild": ({}, 10), "best": ({}, 200)}
LOSSES = {"baseline": 2.0, "small": 2.001, "smaller": 3.0, "best": 1.5}


@pytest.fixture
def store() -> FakeStore:
    found = fake_store(VARIANTS)
    for seed in range(3):
        for variant, loss in LOSSES.items():
            found.add(variant, seed, {"val_loss": loss + 0.0001 * seed * (variant == "small")})
    found.add("wild", 0, state=TrialState.DIVERGED)
    return found


def test_the_best_and_the_simplest_are_those_of_the_report(store: FakeStore) -> None:
    found, report = read_overview(store, "a_study"), read_study(store, "a_study")
    means = {row.name: row.metrics["val_loss"].mean for row in report.variants if row.metrics and not row.diverged}
    assert (found.best, found.best_value) == min(means.items(), key=lambda item: item[1])
    will_do = [row for row in report.variants if row.verdict and row.verdict.word == "not needed"]
    simplest = min([report.baseline, *will_do], key=lambda row: row.parameters)
    assert (found.simplest, found.simplest_parameters) == (simplest.name, simplest.parameters) == ("small", 40)
    assert found.seconds == 130.0


def test_a_diverged_variant_is_never_the_best(store: FakeStore) -> None:
    store.add("wild", 1, {"val_loss": 0.1})
    store.add("wild", 2, {"val_loss": float("nan")})
    assert read_overview(store, "a_study").best == "best"


def test_time_left_follows_the_pace(store: FakeStore) -> None:
    for number, (key, trial) in enumerate(store.trial_records.items()):
        store.trial_records[key] = replace(trial, finished_at=NOON + timedelta(seconds=60 * number))
    assert read_overview(store, "a_study").seconds_left == pytest.approx(2 * 60.0)
    for seed in (1, 2):
        store.add("wild", seed, state=TrialState.DIVERGED)
    assert read_overview(store, "a_study").seconds_left is None


def test_nothing_has_finished_yet() -> None:
    found = read_overview(fake_store(VARIANTS), "a_study")
    assert (found.best, found.simplest, found.seconds, found.seconds_left) == (None, "baseline", 0.0, None)


def test_only_what_differs_is_compared() -> None:
    sides = [{"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}}, {"a": 1, "b": {"c": 2}, "e": None}]
    expected = {"b.d": {0: 3, 1: 4}, "e": {2: None}}
    assert {change.path: change.values for change in differences(*sides)} == expected

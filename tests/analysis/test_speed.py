"""The relative speed of a variant: an interval over measurements, of which a pack is one."""

from __future__ import annotations

import dataclasses

import pytest
from fake_store import fake_store

from ablate.analysis.speed import relative_speed


def trials(seconds: list[float]) -> dict[int, object]:
    store = fake_store({"baseline": ({}, 9)}, seeds=len(seconds))
    for seed in range(len(seconds)):
        store.add("baseline", seed, {"val_loss": 3.0})
    records = sorted(store.trials([trial.key for trial in store.record.planned]).values(), key=lambda one: one.seed)
    return {
        seed: dataclasses.replace(record, seconds=took, tokens=1000)
        for seed, (record, took) in enumerate(zip(records, seconds, strict=True))
    }


def test_seeds_of_one_pack_are_one_measurement() -> None:
    found = relative_speed(trials([20.0] * 4), trials([10.0] * 4))
    assert found is not None
    assert (found.mean, found.low, found.high) == (pytest.approx(0.5), None, None)


def test_seeds_trained_separately_give_an_interval() -> None:
    found = relative_speed(trials([20.0, 21.0, 19.0]), trials([10.0, 10.5, 10.0]))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.5 < found.high

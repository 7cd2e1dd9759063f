"""The answer reports margins that were changed, and claims that were added, after results could be seen."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fake_store import NOON, fake_store

from ablate.analysis.study import read_study
from ablate.store.records import Declaration


def test_changed_declarations_are_reported_with_the_answer() -> None:
    store = fake_store({"baseline": ({}, 10), "a=x": ({}, 10)}, seeds=2, margin=0.0001)
    now = store.record.objective
    assert not any("Until" in sentence for sentence in read_study(store, "a_study").answer)
    store.record = replace(
        store.record,
        declared_before=(
            Declaration({**now, "margin": 0.05}, [], NOON, 15),
            Declaration({**now, "margin": 0.05, "metric": "accuracy"}, ["a claim"], NOON + timedelta(hours=1), 1),
        ),
    )
    first, second = [sentence for sentence in read_study(store, "a_study").answer if "Until" in sentence]
    assert first.startswith(f"Until {NOON:%Y-%m-%d %H:%M} UTC, when 15 trials had finished, the metric was val_loss ")
    assert " and there were no claims. " in first
    assert "when 1 trial had finished, the " in second
    assert all(
        part in second for part in ("metric was accuracy", "margin was 0.05", " and the claims were different. ")
    )

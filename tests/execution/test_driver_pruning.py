"""Pruning through the driver and the store: what is pruned, what a resumed study and another study make of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_samples import ENVIRONMENT, Log, ScriptedEngine, measured, planner

from ablate.analysis.study import read_study
from ablate.execution.driver import StudyResult, run_study
from ablate.execution.protocol import Done, Happened, Job, Message
from ablate.planning.packing import Packing
from ablate.spec.variant import VariantSpec
from ablate.store import Store, open_store
from ablate.store.records import TrialState

STEPS = 10
SEARCH = {
    "kind": "search",
    "sampler": "random",
    "seeds": 1,
    "points": 17,
    "batch": 8,
    "confirm": 0,
    "ranges": {"training.optimizer.lr": {"low": 1e-4, "high": 1e-2}},
}
PRUNING = {"kind": "median", "finished": 3}


def curves(job: Job, attempt: int) -> Sequence[Message]:
    """Each trial falls the faster the higher its rate is; all points come, also those after a stop."""
    rates = [VariantSpec.model_validate_json(member.variant).training.optimizer.lr for member in job.members]
    points = [measured(step, *(3.0 - step * rate * 20 for rate in rates)) for step in range(STEPS + 1)]
    return [*(Happened(job.number, point) for point in points), Done(job.number)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Store:
    with open_store(folder / "store.db") as opened:
        yield opened


def run(
    store: Store, folder: Path, pruning: Any = PRUNING, name: str = "sample", most: int = 1, log: Log | None = None
) -> tuple[StudyResult, ScriptedEngine]:
    made = planner(
        folder,
        name=name,
        training={"steps": STEPS, "batch_size": 2, "optimizer": {"lr": 1e-4}},
        design={**SEARCH, **({"pruning": pruning} if pruning else {})},
    )
    engine = ScriptedEngine(curves, size=2)
    return run_study(made, store, engine, ENVIRONMENT, log or Log(), Packing(most)), engine


def by_state(store: Store, name: str = "sample") -> dict[TrialState, set[str]]:
    records = store.trials([planned.key for planned in store.study(name).planned])
    return {state: {key for key, record in records.items() if record.state is state} for state in TrialState}


@pytest.mark.parametrize("most", [1, 4])
def test_pruned_trials_are_stored_as_pruned_with_their_curves(store: Store, folder: Path, most: int) -> None:
    log = Log()
    result, engine = run(store, folder, most=most, log=log)
    found = by_state(store)
    assert result.trials == 17 == result.trained + result.pruned
    assert len(found[TrialState.PRUNED]) == result.pruned == len(engine.stopped) > 2
    for outcome in (each for each in log.outcomes if each.state is TrialState.PRUNED):
        assert outcome.metrics == {}
        assert outcome.reason == f"its design ended it at step {outcome.stopped_at}"
        steps = [point.step for point in store.curves([outcome.key])[outcome.key]]
        assert steps == list(range(outcome.stopped_at + 1))
        assert outcome.steps == outcome.stopped_at < STEPS
    (summary,) = store.studies()
    assert (summary.finished, summary.pruned) == (result.trained, result.pruned)


def test_the_same_study_does_not_train_it_again_and_decides_as_before(store: Store, folder: Path) -> None:
    first, _ = run(store, folder)
    before = by_state(store)
    again, engine = run(store, folder)
    assert engine.jobs == []
    assert (again.trials, again.reused, again.pruned) == (17, first.trained, first.pruned)
    assert by_state(store) == before


def test_without_pruning_it_is_trained_to_its_end(store: Store, folder: Path) -> None:
    first, _ = run(store, folder)
    pruned = by_state(store)[TrialState.PRUNED]
    other, engine = run(store, folder, pruning=None, name="other")
    assert (other.trained, other.reused, other.pruned) == (first.pruned, first.trained, 0)
    assert by_state(store, "other")[TrialState.FINISHED] >= pruned
    back, engine = run(store, folder)
    assert engine.jobs == []
    assert (back.reused, back.pruned) == (17, 0), "a whole trial is worth more than a pruned one"


def test_another_study_that_prunes_decides_for_itself(store: Store, folder: Path) -> None:
    first, _ = run(store, folder)
    other, engine = run(store, folder, name="other")
    assert len(engine.jobs) == first.pruned
    assert other.reused == first.trained


def test_the_design_of_a_study_may_stop_pruning(store: Store, folder: Path) -> None:
    first, _ = run(store, folder)
    whole, engine = run(store, folder, pruning=None)
    assert len(engine.jobs) == first.pruned
    assert (whole.trained, whole.pruned) == (first.pruned, 0)


def test_pruned_trials_have_no_mean_and_no_verdict(store: Store, folder: Path) -> None:
    run(store, folder)
    report = read_study(store, "sample")
    pruned = [row for row in report.variants if row.pruned]
    assert len(pruned) == report.progress[TrialState.PRUNED] > 2
    assert all(row.metrics == {} and row.verdict is None and row.difference is None for row in pruned)
    assert all(row.finished == () for row in pruned)
    others = [row for row in report.variants if not row.pruned]
    assert all(row.metrics for row in others)

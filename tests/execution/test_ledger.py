"""Writes of the driver: plans that take longer to write than a driver may be silent, and points of running trials."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from engine_samples import ENVIRONMENT, SPACE, planner

from ablate.errors import StudyBusyError
from ablate.execution import ledger
from ablate.execution.attempt import Attempt
from ablate.execution.ledger import Ledger
from ablate.planning.planner import make_plan
from ablate.store import CurvePoint, TrialOutcome, open_store
from ablate.store.leases import Lease
from ablate.store.records import DesignTraits, InferenceCost, SpeedTiming, TrialState, WorkerRecord
from ablate.store.tables import leases

OBJECTIVE: dict[str, Any] = {"metric": "val_loss", "direction": "minimize", "margin": 0.1}


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
def test_a_plan_that_is_written_in_parts_is_the_plan(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ledger, "_AT_ONCE", at_once)
    signs: list[str] = []
    renew = Lease.renew
    monkeypatch.setattr(Lease, "renew", lambda self: [signs.append("sign"), renew(self)])
    plan = make_plan(planner(tmp_path))
    assert (len(plan.variants), len(plan.trials)) == (3, 6)
    with open_store(tmp_path / "store.db") as store, store.lease("sample") as lease:
        for _ in range(2):  # the second time instead of the first
            Ledger(store, lease, ENVIRONMENT).begin(plan, {})
            study = store.study("sample")
            assert [variant.name for variant in study.variants] == [variant.name for variant in plan.variants]
            assert [trial.key for trial in study.planned] == [trial.key for trial in plan.trials]
    parts = -(-3 // at_once) - 1 + (0 if at_once >= 6 else -(-6 // at_once))
    assert len(signs) == 2 * (parts + 1)


def test_a_driver_that_lost_the_study_notices_when_a_trial_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(planner(tmp_path))
    trial = plan.trials[0]
    with open_store(tmp_path / "store.db") as store, store.lease("sample") as lease:
        lost, taker = Ledger(store, lease, ENVIRONMENT), store.lease("sample")
        lost.begin(plan, {})
        assert lost.mark_running(trial, 1)
        with store._database.writing() as connection:
            silent = {"processes": "others", "heartbeat": datetime(2020, 1, 1, tzinfo=UTC)}
            connection.execute(leases.update().values(silent))
        with taker:
            other = Ledger(store, taker, ENVIRONMENT)
            other.begin(plan, {})
            assert other.mark_running(trial, 1)
            outcome = Attempt(trial, 1, 0, 1, datetime.now(UTC)).outcome()
            with pytest.raises(StudyBusyError):
                lost.end(outcome, None)
            assert store.trials([trial.key])[trial.key].state is TrialState.RUNNING
            other.end(outcome, None)


def test_points_of_all_running_trials_are_written_together_and_those_of_an_ended_one_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(planner(tmp_path))
    one, two, other = plan.trials[:3]
    points = [CurvePoint(step, 0.5 * step, 10 * step, 1.0 * step, 5.0, 5.0 - step) for step in range(3)]
    now = datetime.now(UTC)
    with open_store(tmp_path / "store.db") as store, store.lease("sample") as lease:
        ledger = Ledger(store, lease, ENVIRONMENT)
        ledger.begin(plan, {})
        assert ledger.mark_running(one, 1)
        assert ledger.mark_running(two, 1)
        for point in points:
            ledger.add_point(one, point)
            ledger.add_point(two, point)
        ledger.add_point(one, points[-1])  # a step that is evaluated again has one point
        assert ledger._points[one.key] == points
        ledger.add_point(other, points[0])  # it runs nowhere
        curve = tuple(points)
        ledger.end(
            TrialOutcome(
                key=two.key,
                variant_hash=two.variant.hash,
                seed=two.seed,
                state=TrialState.FINISHED,
                metrics={"val_loss": 3.0},
                steps=2,
                seconds=1.0,
                tokens=20,
                flops=2.0,
                stopped_at=None,
                reason="",
                data_fingerprint=two.variant.fingerprint,
                started_at=now,
                finished_at=now,
                curve=curve,
            ),
            None,
        )
        assert store.curves([one.key, two.key]) == {one.key: (), two.key: curve}
        ledger.write_points()
        assert store.curves([trial.key for trial in (one, two, other)]) == {
            one.key: curve,
            two.key: curve,
            other.key: (),
        }
        ledger.write_points()  # nothing is left to write
        assert store.curves([one.key])[one.key] == curve
        later = CurvePoint(3, 1.5, 30, 3.0, 5.0, 2.0)
        ledger.add_point(one, later)
        ledger.record_worker(one, None, 2)
        ledger.write_points()
        assert store.curves([one.key])[one.key] == curve, "an attempt that was lost writes no more"
        ledger.add_point(one, later)
        ledger.record_worker(one, WorkerRecord("here", "cpu", 1), 2)
        ledger.write_points()
        assert store.curves([one.key])[one.key] == (*curve, later)


def test_a_study_that_takes_the_place_of_another_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "store.db") as store, store.lease("sample") as lease:
        for changed, replaced in (
            ({}, 0),
            ({"objective": {"margin": 0.5}}, 0),
            ({"training": {**SPACE["training"], "steps": 3}}, 6),
        ):
            ledger = Ledger(store, lease, ENVIRONMENT)
            ledger.begin(make_plan(planner(tmp_path, **changed)), {})
            assert ledger.replaced == replaced


def stub(**methods: Any) -> Ledger:
    """A ledger whose store knows only what these methods say."""
    return Ledger(cast(Any, SimpleNamespace(**methods)), cast(Any, SimpleNamespace(study="s", token="t")), ENVIRONMENT)


@pytest.mark.parametrize(
    ("points", "seconds"),
    [
        ([(0, 0.0), (4, 4.0), (8, 6.0)], 0.5),
        ([(0, 0.0), (3, 4.0), (5, 5.0), (8, 6.5)], 0.5),
        ([(0, 0.0), (3, 4.0), (8, 6.0)], None),
        ([(0, 0.0), (4, 4.0)], None),
        ([(0, 0.0), (3, 4.0)], None),
        ([], None),
    ],
)
def test_a_step_of_the_second_half_is_timed(
    points: list[tuple[int, float]], seconds: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trial = make_plan(planner(tmp_path, training={**SPACE["training"], "steps": 8})).trials[0]
    curve = tuple(CurvePoint(step, at, 0, 0.0, None, None) for step, at in points)
    assert stub(curves=lambda keys: {trial.key: curve}).seconds_of_step(trial) == seconds


@pytest.mark.parametrize("inference", [True, False])
def test_a_trial_is_timed_beside_one_baseline_and_at_inference_if_asked(inference: bool) -> None:
    cost = InferenceCost("prefill", (1.0,), (1.0,))
    timings = {
        "a": [SpeedTiming("base", (1.0,), (1.0,), "cpu")],
        "b": [SpeedTiming("base", (1.0,), (1.0,), "cpu", (cost,)), SpeedTiming("other", (1.0,), (1.0,), "cpu")],
        "c": [SpeedTiming("other", (1.0,), (1.0,), "cpu", (cost,))],
        "d": [],
    }
    trials: list[Any] = [SimpleNamespace(key=key) for key in timings]
    found = stub(timings=lambda keys: {key: timings[key] for key in keys}).timed(trials, "base", inference=inference)
    assert found == ({"b"} if inference else {"a", "b"})


RATE = "training.optimizer.lr"


@pytest.mark.parametrize(
    ("changes", "traits"),
    [
        ({}, DesignTraits()),
        ({"objective": {**OBJECTIVE, "reach": 2.0}}, DesignTraits(adds_seeds=False)),
        (
            {"design": {"kind": "sweep", "path": RATE, "values": [1e-3, 1e-2], "seeds": 1}},
            DesignTraits(sets_values=True),
        ),
        (
            {"design": {"kind": "search", "points": 4, "seeds": 1, "ranges": {RATE: {"low": 1e-4, "high": 1e-2}}}},
            DesignTraits(chooses=True, adds_seeds=False, plans_points=False, sets_values=True, finds_best=True),
        ),
    ],
)
def test_a_study_says_what_its_design_does(
    changes: dict[str, Any], traits: DesignTraits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "store.db") as store, store.lease("sample") as lease:
        Ledger(store, lease, ENVIRONMENT).begin(make_plan(planner(tmp_path, **changes)), {"guess": {"val_loss": 4.0}})
        study = store.study("sample")
    assert study.traits == traits
    assert study.trivial == {"guess": {"val_loss": 4.0}}
    compared = "steps_to_2" if "objective" in changes else "val_loss"
    assert study.objective == {**OBJECTIVE, "metric": compared}

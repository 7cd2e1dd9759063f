"""Running drivers and trials of a store, on both backends; and the claims of trials by drivers."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from store_samples import HERE, begin, curve, digest, draft, now, outcome, planned, sql, start, variant

from ablate.store import Store, TrialState, WorkerRecord, open_store
from ablate.store.activity import HEARTBEAT_TIMEOUT
from ablate.store.leases import Lease
from ablate.store.records import FailedTrial, RunningTrial
from ablate.store.tables import leases

WORKER = WorkerRecord("node-7", "cuda: 1 x NVIDIA H200", 4711)


def begin_trial(store: Store, lease: Lease, name: str, seed: int, attempts: int = 1) -> bool:
    key = digest((name, seed))
    return store.record_started(key, digest(name), seed, digest("data"), HERE, lease.token, attempts)


def test_what_a_driver_runs_and_where(store: Store) -> None:
    training = {"steps": 9, "precision": "bf16"}
    variants = [replace(variant(name), spec={"training": training}) for name in ("baseline", "no_norm")]
    store.begin_study(draft("s"), variants, [planned(one.name, seed) for one in variants for seed in range(3)])
    with store.lease("s") as lease:
        (idle,) = store.activity().drivers
        assert (idle.planned, idle.running, idle.retries) == (6, 0, 0)
        assert begin_trial(store, lease, "baseline", 0)
        assert begin_trial(store, lease, "baseline", 1, attempts=2)
        assert begin_trial(store, lease, "no_norm", 0)
        key = digest(("baseline", 0))
        store.record_worker(key, WORKER, 1, lease.token)
        store.record_points({key: curve(3)}, lease.token)
        ended = outcome("no_norm", 0)
        assert store.record_outcome(ended, HERE, lease.token)
        activity = store.activity()
        (driver,) = activity.drivers
        assert (driver.host, driver.pid, driver.alive) == (platform.node(), os.getpid(), True)
        assert driver.since == driver.begin <= driver.heartbeat <= activity.at
        counts = {"planned": 6, "settled": 1, "failed": 0, "running": 2, "retries": 1}
        ended_before = {"ended": 0, "flops": 0.0, "failures": ()}  # before this driver began, says its record
        found = {name: getattr(driver, name) for name in ("study", *counts, *ended_before)}
        assert found == {"study": "s", **counts, **ended_before}
        assert abs(activity.at - now()) < timedelta(minutes=1)
        first, second = sorted(activity.running, key=lambda trial: trial.seed)
        begun = {trial.seed: trial.started_at for trial in activity.running}
        last = curve(3)[-1]
        assert first == RunningTrial(
            key, "s", "baseline", 0, last.step, 9, last.val_loss, 1, begun[0], WORKER, last.seconds, last.flops, "bf16"
        )
        again = digest(("baseline", 1))
        assert second == RunningTrial(again, "s", "baseline", 1, None, 9, None, 2, begun[1], None, 0.0, 0.0, "bf16")
    assert store.activity().drivers == ()
    assert {trial.study for trial in store.activity().running} == {""}


def test_throughput_counts_what_ended_in_the_last_ten_minutes_since_the_driver_began(
    store: Store, location: str
) -> None:
    begin(store, seeds=3)
    with store.lease("s") as lease:
        for seed, minutes in enumerate((11.0, 9.0, -0.1)):
            begin_trial(store, lease, "baseline", seed)
            ended = outcome("baseline", seed)
            store.record_outcome(replace(ended, finished_at=now() - timedelta(minutes=minutes)), HERE, lease.token)
        (driver,) = store.activity().drivers
        assert (driver.ended, driver.flops) == (1, ended.flops)
        with sql(location) as connection:
            connection.execute(update(leases).values(acquired_at=now() - timedelta(hours=1)))
        (driver,) = store.activity().drivers
        assert (driver.ended, driver.flops) == (2, 2 * ended.flops)


def test_a_trial_is_held_as_long_as_its_driver_lives(store: Store, location: str) -> None:
    begin(store)
    key = digest(("baseline", 0))
    with store.lease("one") as one, open_store(location) as other, other.lease("two") as two:
        assert begin_trial(store, one, "baseline", 0)
        assert not begin_trial(other, two, "baseline", 0)
        assert begin_trial(store, one, "baseline", 0, attempts=2), "its own driver may begin it again"
        other.record_points({key: curve(2)}, two.token)
        assert store.curves([key])[key] == ()
        assert not other.record_outcome(outcome("baseline", 0), HERE, two.token)
        assert other.forget_unfinished([key], two.token) == 0
        assert store.trials([key])[key].state is TrialState.RUNNING
        assert store.studies()[0].running == 1
        with sql(location) as connection:
            dead = {"host": "elsewhere", "processes": "others", "heartbeat": now() - 1.1 * HEARTBEAT_TIMEOUT}
            connection.execute(update(leases).where(leases.c.study == "one").values(**dead))
        assert begin_trial(other, two, "baseline", 0), "its driver is dead"
        assert not store.record_outcome(outcome("baseline", 0), HERE, one.token), "the first one wakes up too late"
        assert other.record_outcome(outcome("baseline", 0, points=7), HERE, two.token)
        assert len(store.curves([key])[key]) == 7
        assert not begin_trial(store, one, "baseline", 0)


def test_the_latest_failures_are_reported_with_their_reasons(store: Store) -> None:
    begin(store, seeds=9)
    with store.lease("s") as lease:
        for seed in range(7):
            begin_trial(store, lease, "baseline", seed)
            failed = outcome("baseline", seed, TrialState.FAILED)
            at = now() + timedelta(seconds=seed)
            store.record_outcome(replace(failed, finished_at=at, reason=f"no {seed}\nmore"), HERE, lease.token)
        (driver,) = store.activity().drivers
    assert driver.failed == 7
    assert driver.failures == tuple(FailedTrial("baseline", seed, f"no {seed}\nmore") for seed in (6, 5, 4, 3, 2))


def test_what_failed_or_was_left_running_by_older_versions_is_free_at_once(store: Store, location: str) -> None:
    begin(store)
    key = start(store, "baseline", 0)
    with store.lease("one") as one, open_store(location) as other, other.lease("two") as two:
        assert begin_trial(store, one, "baseline", 0)
        assert store.trials([key])[key].attempts == 1
        store.record_outcome(outcome("baseline", 0, TrialState.FAILED), HERE, one.token)
        assert begin_trial(other, two, "baseline", 0)


@pytest.mark.parametrize("attempts", [1, 3])
def test_attempts_and_worker_outlast_the_trial(store: Store, attempts: int) -> None:
    begin(store)
    with store.lease("one") as one:
        begin_trial(store, one, "baseline", 0)
        key = digest(("baseline", 0))
        store.record_worker(key, WORKER, attempts, one.token)
        store.record_outcome(outcome("baseline", 0), HERE, one.token)
    record = store.trials([key])[key]
    assert (record.attempts, record.worker, record.state) == (attempts, WORKER, TrialState.FINISHED)


@pytest.mark.parametrize("gone", [{"processes": "others", "heartbeat": datetime(2020, 1, 1, tzinfo=UTC)}, None])
def test_what_a_dead_driver_left_is_not_running(store: Store, location: str, gone: dict[str, object] | None) -> None:
    """Its process was killed, or another driver has removed its lease: the trial waits for the next run."""
    begin(store)
    key = digest(("baseline", 0))
    with store.lease("one") as one:
        assert begin_trial(store, one, "baseline", 0)
        assert (store.trial(key).state, store.studies()[0].running) == (TrialState.RUNNING, 1)
        with sql(location) as connection:
            connection.execute(leases.delete() if gone is None else leases.update().values(gone))
            connection.commit()
        assert store.trial(key).state is TrialState.WAITING
        assert store.trials([key])[key].state is TrialState.WAITING
        assert store.studies()[0].running == 0

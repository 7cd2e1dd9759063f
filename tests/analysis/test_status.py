"""Throughput, time left, machines and relative speed, computed from a store."""

from __future__ import annotations

import io
import json
import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from fake_store import NOON, FakeStore, fake_store
from rich.console import Console
from scipy import stats
from vega import marks, series

from ablate.analysis.findings import read_findings
from ablate.analysis.status import (
    TrialLine,
    WorkerFailure,
    WorkerLoad,
    _seconds_left,
    list_trials,
    read_workers,
    status_of,
)
from ablate.analysis.study import read_study
from ablate.render.as_json import study_json
from ablate.render.figures import curves, draw
from ablate.render.formats import Place, find_format
from ablate.render.table import print_study
from ablate.render.terminal.studies import print_status, status_json
from ablate.store.records import Activity, DriverRecord, FailedTrial, RunningTrial, TrialState, WorkerRecord

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT_8 = datetime(2026, 1, 5, 8, tzinfo=UTC)
DRIVER = DriverRecord(
    study="s",
    host="head",
    pid=1,
    since=AT - timedelta(hours=2),
    heartbeat=AT - timedelta(seconds=5),
    alive=True,
    planned=100,
    settled=40,
    failed=2,
    running=2,
    retries=1,
    ended=5,
    flops=5e15,
    begin=AT - timedelta(minutes=10),
)
RUNNING = RunningTrial(
    "ab" * 32, "s", "norm=none", 3, 50, 100, 2.5, 1, AT - timedelta(minutes=4), WorkerRecord("gpu-3", "cuda: H200", 77)
)


def active(*drivers: DriverRecord, running: tuple[RunningTrial, ...] = ()) -> Activity:
    return Activity(AT, drivers, running)


def shown(activity: Activity, width: int = 140) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        print_status(status_of(activity), console)
    return capture.get()


def test_throughput_and_time_left() -> None:
    waits = replace(RUNNING, step=None, worker=None, attempts=2)
    (study,) = status_of(active(DRIVER, running=(RUNNING, waits))).studies
    assert study.trials_per_hour == pytest.approx(30)
    assert study.flops_per_second == pytest.approx(5e15 / 600)
    assert study.left == 58
    # 58 trials, of which one is half done, at one in two minutes
    assert study.seconds_left == pytest.approx(57.5 * 120)


def test_a_study_that_has_just_begun_or_is_nearly_done_has_no_negative_time() -> None:
    """Counts are per second from the first on; a trial that runs may be further than the counts say."""
    (begun,) = status_of(active(replace(DRIVER, begin=AT))).studies
    assert (begun.trials_per_hour, begun.flops_per_second) == (5 * 3600, 5e15)
    untrained = replace(RUNNING, step=0, steps=0)
    (done,) = status_of(active(replace(DRIVER, planned=42), running=(RUNNING, untrained))).studies
    assert (done.left, done.seconds_left) == (0, 0.0)


@pytest.mark.parametrize(("ended", "planned"), [(0, 5), (1, 5), (2, 2), (2, 5), (20, 23), (30, 41)])
def test_the_time_left_follows_the_pace_of_the_latest_twenty(ended: int, planned: int) -> None:
    """Trials that become slower, in any order; those whose times are not known are still to come."""
    at = [AT + timedelta(seconds=number**2) for number in range(ended)]
    trials = [SimpleNamespace(started_at=AT, finished_at=one) for one in random.Random(2).sample(at, ended)]
    trials += [SimpleNamespace(started_at=AT, finished_at=None), SimpleNamespace(started_at=None, finished_at=AT)]
    first = max(0, ended - 20)
    known = ended > 1 and planned > ended
    pace = ((ended - 1) ** 2 - first**2) / (ended - 1 - first) if known else 0.0
    assert _seconds_left(trials, planned) == (pytest.approx((planned - ended) * pace) if known else None)  # type: ignore[arg-type]


def test_no_time_is_estimated_before_a_trial_has_ended() -> None:
    (study,) = status_of(active(replace(DRIVER, ended=0, flops=0.0))).studies
    assert (study.trials_per_hour, study.seconds_left) == (None, None)
    assert "no trial has ended" in shown(active(replace(DRIVER, ended=0)))
    (dead,) = status_of(active(replace(DRIVER, alive=False))).studies
    assert (dead.trials_per_hour, dead.seconds_left) == (None, None)


def test_the_text_for_people() -> None:
    orphan = replace(RUNNING, study="", variant="")
    waits = replace(RUNNING, step=None, val_loss=None, worker=None, attempts=2)
    text = shown(active(DRIVER, running=(RUNNING, waits, orphan)))
    assert "driven by process 1 on head for 2 h 00 min" in text
    assert "40 of 100 trials done, 2 running, 2 failed, 1 retried" in text
    assert "30 trials an hour, 8.33 TFLOP/s, 1 h 55 min left" in text
    assert "gpu-3, process 77, cuda: H200" in text
    assert "waits for a worker, attempt 2" in text
    assert text.startswith("1 trial interrupted: their driver is gone")
    failed = replace(DRIVER, failures=(FailedTrial("norm=none", 1, "ValueError: no\nTraceback ..."),))
    assert "failed: norm=none, seed 1: ValueError: no\n" in shown(active(failed))
    dead = shown(active(replace(DRIVER, alive=False, heartbeat=AT - timedelta(minutes=2)), running=(RUNNING, waits)))
    assert "interrupted: process 1 on head has been silent for 2 min 00 s" in dead
    assert "40 of 100 trials done, 2 interrupted, 2 failed" in dead
    assert not any(word in dead for word in ("running", "driven", "left", "gpu-3"))
    assert shown(active()) == "Nothing runs.\n"


def test_the_json_is_plain_and_complete() -> None:
    plain = json.loads(json.dumps(status_json(status_of(active(DRIVER, running=(RUNNING,)))), allow_nan=False))
    assert plain["studies"][0]["trials_per_hour"] == pytest.approx(30)
    assert plain["studies"][0]["since"] == "2026-03-01T10:00:00+00:00"
    assert plain["running"][0]["worker"] == {"host": "gpu-3", "device": "cuda: H200", "pid": 77}


def test_trials_are_counted_where_they_ended_and_failures_are_reported() -> None:
    made = fake_store({"baseline": ({}, 10), "x": ({"s": "x"}, 5)})
    for seed in (0, 1, 2):
        made.add("baseline", seed, {"val_loss": 1.0}, seconds=2.0, tokens=100, flops=3.0)
        state = TrialState.DIVERGED if seed == 1 else TrialState.FINISHED
        made.add("x", seed, {}, state=state, seconds=1.0, tokens=10, flops=0.5, reason="no\nTraceback")
    *others, last = made.record.planned  # what confirms trained on a machine too
    made.record = replace(made.record, planned=tuple(others), confirm_trials=(last,))
    places = {"baseline/0": ("a", 1), "baseline/1": ("a", 1), "baseline/2": ("b", 2), "x/1": ("b", 1), "x/0": ("b", 1)}
    for key, (host, attempts) in places.items():
        made.trial_records[key] = replace(
            made.trial_records[key],
            worker=WorkerRecord(host, "cpu", 7),
            attempts=attempts,
            started_at=NOON - timedelta(minutes=int(key[-1])),
            finished_at=None if key == "x/1" else datetime(2026, 1, 5, 9 - attempts, int(key[-1]), tzinfo=UTC),
        )
    made.trial_records["x/2"] = replace(made.trial_records["x/2"], started_at=None)
    loads, failures = read_workers(made, made.record.name)
    assert [one for one in loads if one.host] == [
        WorkerLoad(
            "b", "cpu", 3, 0, 1, 4.0, 120, 4.0, (AT_8 - timedelta(minutes=58), AT_8), NOON - timedelta(minutes=2)
        ),
        WorkerLoad(
            "a", "cpu", 2, 0, 0, 4.0, 200, 6.0, (AT_8, AT_8 + timedelta(minutes=1)), NOON - timedelta(minutes=1)
        ),
    ], "the busiest first; of one of b nobody knows when it ended"
    assert sum(one.trials for one in loads) == 6
    assert (loads[2].host, loads[2].began_at) == ("", None)
    assert loads[1].tokens_per_second == pytest.approx(50.0)
    assert replace(loads[0], seconds=0.5).tokens_per_second == 240.0
    assert replace(loads[0], seconds=0.0).tokens_per_second is replace(loads[0], tokens=0).tokens_per_second is None
    assert set(failures) == {
        WorkerFailure("baseline", 2, TrialState.FINISHED, 2, "b", ""),
        WorkerFailure("x", 1, TrialState.DIVERGED, 1, "b", "no"),
    }


def test_trials_are_listed_in_the_order_of_the_design_those_that_wait_among_them() -> None:
    made = fake_store({"baseline": ({}, 10), "x": ({}, 5)}, seeds=2)
    made.add("x", 0, {"val_loss": 1.5})
    made.add("baseline", 1, state=TrialState.DIVERGED)
    states = (TrialState.WAITING, TrialState.FINISHED, TrialState.DIVERGED, TrialState.WAITING)
    names = [(name, seed) for seed in range(2) for name in ("baseline", "x")]
    assert list_trials(made, "a_study") == [
        TrialLine(f"{name}/{seed}", name, seed, state, {"val_loss": 1.5} if number == 1 else {}, "val_loss")
        for number, ((name, seed), state) in enumerate(zip(names, states, strict=True))
    ]


def study() -> FakeStore:
    """The variant finished in a tenth of the baseline's time, beside other work."""
    made = fake_store({"baseline": ({"a": "on"}, 100), "a=off": ({"a": "off"}, 90)}, seeds=3)
    for seed in range(3):
        for name, seconds in (("baseline", 100.0), ("a=off", 10.0 + seed)):
            curve = [(step, 3.0 - step / 100 + seed / 50) for step in (10, 20, 30)]
            made.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve, seconds=seconds)
    return made


def shown_speed(made: FakeStore) -> str:
    out = Console(file=io.StringIO(), width=160)
    print_study(read_study(made, "a_study"), out)
    findings = read_findings(made, "a_study")
    texts = [str(find_format(name).render(findings, Place())) for name in ("md", "html", "latex", "slides")]
    return "\n".join([out.file.getvalue(), *texts])  # type: ignore[attr-defined]


def test_the_clocks_of_trials_reach_no_table_no_figure_and_no_latex() -> None:
    made = study()
    report = read_study(made, "a_study")
    assert [row.relative_speed for row in report.variants] == [None, None]
    assert "speed" not in shown_speed(made)
    assert study_json(report)["variants"][1]["relative_speed"] is None
    assert "seconds" not in str(find_format("csv").render(read_findings(made, "a_study"), Place()))
    assert all(picture.name != "loss_seconds" for picture in curves.pictures(read_findings(made, "a_study")))


def test_rounds_in_turns_give_a_ratio_with_its_interval_and_the_load_of_the_machine_cancels() -> None:
    made, noise = study(), random.Random(4)
    loads = [noise.uniform(0.2, 1.0) for _ in range(12)]  # of the machine, five times as much at some rounds
    ours = [1.25 * 1000 * load * noise.gauss(1, 0.02) for load in loads]
    theirs = [1000 * load for load in loads]
    made.time("a=off", ours, theirs)
    report = read_study(made, "a_study")
    speed = report.variants[1].relative_speed
    assert speed is not None
    logarithms = [math.log(one / other) for one, other in zip(ours, theirs, strict=True)]
    low, high = stats.ttest_1samp(logarithms, 0).confidence_interval(0.95)
    assert (speed.low, speed.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    assert speed.mean == pytest.approx(stats.gmean(ours) / stats.gmean(theirs))
    assert speed.low < 1.25 < speed.high
    text = shown_speed(made)
    assert "1.2" in text.partition("speed:")[0]
    assert "in turns in one process" in " ".join(text.split())


def test_curves_over_seconds_are_drawn_at_the_timed_rates() -> None:
    made = study()
    for key, points in made.curve_points.items():
        made.curve_points[key] = tuple(point._replace(tokens=100 * point.step, seconds=9.0) for point in points)
    made.time("a=off", [200.0, 200.0], [100.0, 100.0])
    findings = read_findings(made, "a_study")
    assert any(picture.name == "loss_seconds" for picture in curves.pictures(findings))
    spec = draw("loss_seconds", findings)
    lines = series(marks(spec, "line")[0])
    assert [row["x"] for row in lines["baseline"]] == pytest.approx([10.0, 20.0, 30.0])
    assert [row["x"] for row in lines["variant"]] == pytest.approx([5.0, 10.0, 15.0])
    made.time("a=off", [200.0, 900.0, 40.0], [100.0, 100.0, 100.0])
    pictures = curves.pictures(read_findings(made, "a_study"))
    assert all(picture.name != "loss_seconds" for picture in pictures), "a speed that the table does not show"

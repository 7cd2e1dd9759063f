"""Variants are timed side by side, after the trials, and the store keeps what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_samples import ENVIRONMENT, Log, ScriptedEngine, finish, planner

from ablate.analysis import read_study
from ablate.analysis.pareto import read_front
from ablate.errors import SpaceError
from ablate.execution.driver import run_study
from ablate.execution.timing import LEAST_ROUNDS, Bench, _in_turns, _Side, time_side_by_side
from ablate.metrics import CACHE, DECODE, PREFILL
from ablate.planning.plan import Variant
from ablate.planning.planner import make_plan
from ablate.spec.reading import with_rung
from ablate.store import Store, open_store
from ablate.store.records import InferenceCost, SpeedTiming
from ablate.training.pack import Pack

BENCH = Bench(torch.device("cpu"), 1, "cpu", seconds=0.0)


@pytest.fixture
def slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that every step of a model of one layer moves by 1 ms, one of two layers by 3 ms, and load by more."""
    now = [0.0]
    monkeypatch.setattr("ablate.execution.timing.time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr("ablate.execution.timing._ROUND_SECONDS", 0.01)

    def step(self: Pack, number: int) -> None:
        load = 1 + int(now[0] * 20) % 5  # other work comes and goes
        now[0] += 0.001 * load * (3 if self.training.optimizer.lr == 0.5 else 1)

    monkeypatch.setattr(Pack, "step", step)


@pytest.mark.usefixtures("slower")
def test_steps_in_turns_give_the_ratio_whatever_else_the_machine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = planner(tmp_path, switches={"lr": {"low": {}, "high": {"training.optimizer.lr": 0.5}}})
    baseline, variant = make_plan(made).variants
    timing = time_side_by_side(variant, baseline, made.costs.prepare, BENCH)
    assert timing is not None
    assert len(timing.rates) == len(timing.baseline_rates) == LEAST_ROUNDS
    ratios = [ours / theirs for ours, theirs in zip(timing.rates, timing.baseline_rates, strict=True)]
    assert max(timing.baseline_rates) > 2 * min(timing.baseline_rates), "the load moved"
    assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1 / 3, rel=0.5)


@pytest.mark.parametrize("stopped", range(4))
def test_a_stop_in_any_part_of_a_timing_leaves_nothing(
    stopped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training, reading and writing are timed one after the other; none of them is stored without the others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.execution.timing._ROUND_SECONDS", 0.001)
    rates = [((1.0 + part,), (5.0 + part,)) for part in range(3)]
    parts = iter([*rates[:stopped], None, None, None])
    monkeypatch.setattr("ablate.execution.timing._in_turns", lambda *_: next(parts))
    made = planner(tmp_path)
    baseline, variant, *_ = make_plan(made).variants
    bench = replace(BENCH, description="some", inference=True)
    timing = time_side_by_side(variant, baseline, made.costs.prepare, bench)
    if stopped < 3:
        assert timing is None
        return
    assert timing is not None
    *measured, cache = timing.inference
    assert replace(timing, inference=()) == SpeedTiming(baseline.hash, *rates[0], "some")
    assert measured == [InferenceCost(PREFILL, *rates[1]), InferenceCost(DECODE, *rates[2])]
    assert cache.quantity == CACHE


class Turn:
    """A side whose rounds take these seconds."""

    def __init__(self, name: str, seconds: float, order: list[str]) -> None:
        self.name, self.seconds, self.order, self.tokens = name, seconds, order, 12

    def run(self) -> float:
        self.order.append(self.name)
        return self.seconds


@pytest.mark.parametrize(
    ("least", "seconds", "rounds"), [(3, 0.0, 3), (1, 5.0, 3), (4, 5.0, 4), (1, 4.0, 2), (1, 4.1, 3)]
)
def test_rounds_alternate_who_begins_until_both_had_their_seconds(least: int, seconds: float, rounds: int) -> None:
    order: list[str] = []
    sides: list[Any] = [Turn("a", 1.0, order), Turn("b", 3.0, order)]
    bench = replace(BENCH, seconds=seconds)
    assert _in_turns(sides, bench, lambda: True, least) == ((12.0,) * rounds, (4.0,) * rounds)
    assert "".join(order) == ("baab" * rounds)[: 2 * rounds]
    left = iter([True] * (rounds - 1))
    assert _in_turns(sides, bench, lambda: next(left, False), least) is None


def test_a_round_is_as_many_calls_as_are_long_beside_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], [0]
    monkeypatch.setattr("ablate.execution.timing.time", SimpleNamespace(perf_counter=lambda: now[0]))

    def call() -> None:
        now[0], calls[0] = now[0] + 0.03, calls[0] + 1

    side = _Side(call, 10, torch.device("cpu"), 2)
    assert (calls[0], side.tokens) == (2 + 1, 40), "0.1 seconds are four calls"
    assert side.run() == pytest.approx(0.12)
    assert _Side(lambda: now.__setitem__(0, now[0] + 7.0), 10, torch.device("cpu"), 0).tokens == 10


def test_a_study_times_its_variants_after_its_trials_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def study(store: Store, bench: Bench | None) -> list[str]:
        log, said = Log(), list[str]()
        monkeypatch.setattr(log, "say", said.append)
        run_study(planner(tmp_path), store, ScriptedEngine(finish, size=1), ENVIRONMENT, log, bench=bench)
        return said

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.execution.timing._ROUND_SECONDS", 0.001)
    with open_store(tmp_path / "a.db") as store:
        assert study(store, None) == []
        name = store.studies()[0].name
        assert not read_study(store, name).timed
        assert study(store, BENCH) == ["timing 2 variants: steps of each in turns with the baseline, 0 s or more"]
        report = read_study(store, name)
        assert report.timed
        keys = [planned.key for planned in store.study(name).planned]
        first = store.timings(keys)
        assert study(store, BENCH) == []
        assert store.timings(keys) == first, "what was timed is not timed again"
        study(store, Bench(torch.device("cpu"), 1, "cpu", again=True, seconds=0.0))
        assert store.timings(keys) != first
        others = [row for row in report.variants if row.name != report.record.baseline]
        assert all(row.relative_speed is not None and row.relative_speed.low is not None for row in others)
        (key, *_) = first
        assert all(one.step >= 0 for one in store.recordings(key)), "a timing is not a recording of the trial"
        beside = SpeedTiming("another baseline", (1.0,), (2.0,), "cpu")
        store.record_timing(key, beside)
        assert set(store.timings([key])[key]) >= {beside}
        assert len(store.timings([key])[key]) == 2


def test_a_variant_that_cannot_be_timed_is_named_and_the_others_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []

    def measure(variant: Variant, *_: object) -> SpeedTiming:
        timed.append(variant.name)
        if len(timed) == 1:
            raise MemoryError("too large")
        return SpeedTiming("", (1.0,), (2.0,), "cpu")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.execution.timing.time_side_by_side", measure)
    log, said = Log(), list[str]()
    monkeypatch.setattr(log, "say", said.append)
    with open_store(tmp_path / "a.db") as store:
        run_study(planner(tmp_path), store, ScriptedEngine(finish, size=1), ENVIRONMENT, log, bench=BENCH)
        (name,) = store.studies()
        planned = store.study(name.name).planned
        known = store.timings([one.key for one in planned])
    assert said[-1] == f"{timed[0]} could not be timed: MemoryError: too large"
    assert len(timed) == 2
    assert {one.variant for one in planned if one.key in known} == {timed[1]}


@pytest.mark.parametrize("inference", [True, False])
def test_a_study_says_how_long_its_timings_take(
    inference: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds for each side of two variants; with reading and writing three times as long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.execution.timing.time_side_by_side", lambda *_: None)
    log, said = Log(), list[str]()
    monkeypatch.setattr(log, "say", said.append)
    bench = replace(BENCH, seconds=10.0, inference=inference)
    with open_store(tmp_path / "a.db") as store:
        run_study(planner(tmp_path), store, ScriptedEngine(finish, size=1), ENVIRONMENT, log, bench=bench)
    assert said[-1].endswith(f"with the baseline, {120 if inference else 40} s or more")


def test_inference_is_timed_where_a_space_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.execution.timing._ROUND_SECONDS", 0.001)
    switches = {"mixer": {"attention": {}, "linear": {"block.mixer": "linear"}}}
    claim = {"id": "c", "left": "mixer=linear", "right": "baseline", "expect": "better", "margin": 1.0}
    made = planner(
        tmp_path, switches=switches, columns=[PREFILL], claims=[{**claim, "metric": CACHE}], design="leave_one_out"
    )
    assert made.space.times_inference
    bench = Bench(torch.device("cpu"), 1, "cpu", inference=True, seconds=0.0)
    with open_store(tmp_path / "a.db") as store:
        run_study(
            made, store, ScriptedEngine(finish, size=1), ENVIRONMENT, Log(), bench=replace(bench, inference=False)
        )
        report = read_study(store, made.space.name)
        assert PREFILL not in report.variants[1].metrics, "absent where it was not measured"
        assert "`ablate resume" in report.answer.claims[0].sentence
        run_study(made, store, ScriptedEngine(finish, size=1), ENVIRONMENT, Log(), bench=bench)
        report = read_study(store, made.space.name)
        (timing,) = store.timings([one.key for one in store.study(made.space.name).planned])[
            next(one.key for one in store.study(made.space.name).planned if one.variant == "mixer=linear")
        ]
        front = read_front(store, made.space.name, (CACHE, DECODE))
    assert front is None, "two variants make no front"
    measured = {cost.quantity: cost for cost in timing.inference}
    assert {len(measured[name].values) for name in (PREFILL, DECODE)} == {LEAST_ROUNDS}
    model, context = made.space.model, made.space.task.context  # type: ignore[attr-defined]
    head = model.width // model.heads
    assert measured[CACHE].baseline_values == (4 * 2 * model.width * model.depth,)
    assert measured[CACHE].values == (4 * model.depth * model.heads * head * (head + 1) / context,)
    shown = report.variants[1].metrics[PREFILL]
    assert shown.n == LEAST_ROUNDS
    assert shown.low is not None
    assert report.answer.claims[0].verdict == "supported"


def test_the_variants_of_a_ladder_are_timed_beside_the_baseline_of_their_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.execution.timing._ROUND_SECONDS", 0.001)
    switches = {"norm": {"rms": {}, "none": {"block.norm": "none"}}}
    made = planner(tmp_path, switches=switches, design={"kind": "ladder", "rungs": [1, 2], "seeds": 1, "target": 1})
    with open_store(tmp_path / "a.db") as store:
        run_study(made, store, ScriptedEngine(finish, size=1), ENVIRONMENT, Log(), bench=BENCH)
        record = store.study(made.space.name)
        hashes = {variant.name: variant.hash for variant in record.variants}
        beside = {
            planned.variant: store.timings([planned.key])[planned.key][0].baseline
            for planned in record.planned
            if store.timings([planned.key])
        }
    assert beside == {f"norm=none@rung={rung}": hashes[f"baseline@rung={rung}"] for rung in (1, 2)}
    larger = with_rung(made.space, 3)
    assert larger.design.rungs == (1, 2, 3)  # type: ignore[attr-defined]
    assert {*made.space.points()} < {*larger.points()}
    with pytest.raises(SpaceError, match="only a ladder has rungs"):
        with_rung(planner(tmp_path, switches=switches).space, 3)
    with pytest.raises(SpaceError, match="ascend"):
        with_rung(made.space, 2)

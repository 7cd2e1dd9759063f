"""What `ablate bench` measures: known arithmetic, known memory, known slopes; refusals are reported in their row."""

from __future__ import annotations

import math

import pytest
import torch

from ablate import timing as measuring
from ablate.spec.block import BlockSpec
from ablate.spec.lookup import find_block
from ablate.timing import Setting, Timing, growth, measure, peak_bytes, side_by_side

SETTING = Setting(width=16, heads=2, batch=2, device="cpu", whole=False)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "side_by_side", lambda steps, device: side_by_side(steps, device, 0.0))
    monkeypatch.setattr(measuring, "machine_flops", lambda device: 1e12)


def test_steps_are_timed_in_turns() -> None:
    order: list[str] = []
    times = side_by_side([lambda: order.append("a"), lambda: order.append("b")], "cpu", 0.0)
    assert "".join(order) == "ab" * 4  # one for warmth, three that count
    assert [len(taken) for taken in times] == [3, 3]


def test_peak_is_what_lives_at_once() -> None:
    def step() -> None:
        first = torch.ones(1000)
        second = first + 1
        del first
        second + 1

    assert peak_bytes(step, "cpu") == pytest.approx(2 * 4000, abs=256)  # alignment


def test_rows_agree_with_each_other() -> None:
    rows = list(measure(["pre_ln", "simple"], [8, 32], SETTING))
    assert [(row.block, row.length) for row in rows] == [("pre_ln", 8), ("simple", 8), ("pre_ln", 32), ("simple", 32)]
    for row in rows:
        assert row.tokens == pytest.approx(2 * row.length / row.seconds)
        assert row.share == pytest.approx(row.flops / 1e12)
        assert row.peak > 4 * 2 * row.length * 16
    assert rows[0].ratio == 1
    assert rows[1].ratio == pytest.approx(rows[0].seconds / rows[1].seconds)


def test_flops_are_those_of_three_passes() -> None:
    (row,) = measure(["pre_ln"], [8], SETTING)
    spec = find_block("pre_ln").block.mixer
    model = find_block("pre_ln").model(width=16, heads=2, depth=None)
    expected = 2 * 3 * spec.cost(model.layer_context(8), 8).flops
    assert row.flops * row.seconds == pytest.approx(expected)


def test_the_whole_block_needs_more() -> None:
    (mixer,) = measure(["pre_ln"], [32], SETTING)
    (whole,) = measure(["pre_ln"], [32], Setting(16, 2, 2, "cpu", whole=True))
    assert whole.flops * whole.seconds > 1.5 * mixer.flops * mixer.seconds
    assert whole.peak > mixer.peak


def test_a_refused_length_stands_in_its_row_and_the_others_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    short = BlockSpec.model_validate({"mixer": {"kind": "extractor", "type": "we", "context": 16}})
    block = find_block("we")
    monkeypatch.setattr(
        measuring, "find_block", lambda name: find_block(name) if name != "we" else type(block)("we", "", short, {})
    )
    rows = list(measure(["we", "pre_ln"], [8, 32], SETTING))
    assert [bool(row.why) for row in rows] == [False, False, True, False]
    assert "at most 16 tokens, and inputs have up to 32" in rows[2].why
    assert math.isnan(rows[3].ratio)
    assert math.isnan(growth(rows)["we"])


def test_too_little_memory_stands_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "available_memory", lambda: 100_000)
    rows = list(measure(["pre_ln"], [8, 4096], SETTING))
    assert [bool(row.why) for row in rows] == [False, True]
    assert "out of memory" in rows[1].why


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")])
def test_memory_that_runs_out_on_the_way_stands_in_its_row(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(step: object, device: str) -> int:
        raise error

    monkeypatch.setattr(measuring, "peak_bytes", fail)
    assert [row.why for row in measure(["pre_ln"], [8], SETTING)] == ["out of memory"]


def test_growth_is_the_slope_of_a_power() -> None:
    rows = [Timing("cube", length, True, seconds=1e-9 * length**3) for length in (10, 20, 70)]
    rows.append(Timing("cube", 100, True, why="out of memory"))
    assert growth(rows) == {"cube": pytest.approx(3)}

"""Schedules against formulas written again, and properties that all of them have."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ablate.kinds.schedules.constant import ConstantScheduleSpec
from ablate.kinds.schedules.cosine import CosineScheduleSpec
from ablate.kinds.schedules.linear import LinearScheduleSpec
from ablate.spec.schedule import SCHEDULES, ScheduleSpec


@given(
    steps=st.integers(1, 400), warmup=st.floats(0, 1), floor=st.floats(0, 1), kind=st.sampled_from(["linear", "cosine"])
)
def test_it_rises_then_falls_and_never_stands_still_at_zero(steps: int, warmup: float, floor: float, kind: str) -> None:
    schedule = ScheduleSpec.parse({"kind": kind, "warmup": warmup, "floor": floor})
    factors = [schedule.factor(step, steps) for step in range(1, steps + 1)]
    risen = round(warmup * steps)
    assert all(0 < factor <= 1 for factor in factors)
    assert factors[:risen] == [pytest.approx((i + 1) / risen) for i in range(risen)]
    falling = factors[max(0, risen - 1) :]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(falling))
    assert all(factor >= floor - 1e-12 for factor in falling)


def test_by_hand() -> None:
    linear = LinearScheduleSpec(warmup=0.2)
    assert [linear.factor(step, 10) for step in range(1, 11)] == pytest.approx(
        [1 / 2, 1, 8 / 9, 7 / 9, 6 / 9, 5 / 9, 4 / 9, 3 / 9, 2 / 9, 1 / 9]
    )
    constant = ConstantScheduleSpec(warmup=0.5)
    assert [constant.factor(step, 4) for step in range(1, 5)] == pytest.approx([0.5, 1, 1, 1])
    cosine = CosineScheduleSpec(warmup=0, floor=0.5)
    assert [cosine.factor(step, 3) for step in (1, 2, 3)] == pytest.approx(
        [0.5 + 0.25 * (1 + math.cos(math.pi * quarter / 4)) for quarter in (1, 2, 3)]
    )


@pytest.mark.parametrize("kind", sorted(SCHEDULES.members()))
@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_a_schedule_of_one_step_moves(kind: str, warmup: float) -> None:
    assert ScheduleSpec.parse({"kind": kind, "warmup": warmup}).factor(1, 1) >= 0.5


def test_a_mapping_without_a_kind_is_linear() -> None:
    assert ScheduleSpec.parse({"warmup": 0.3}) == LinearScheduleSpec(warmup=0.3)


def test_a_constant_rate_has_no_floor() -> None:
    with pytest.raises(ValidationError, match="there is no key `floor` here"):
        ScheduleSpec.parse({"kind": "constant", "floor": 0.1})

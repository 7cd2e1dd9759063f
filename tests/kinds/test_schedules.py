"""Schedules against formulas written again, and properties that all of them have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.optim.lr_scheduler import LambdaLR

from ablate.kinds.schedules.shapes import ConstantScheduleSpec, CosineScheduleSpec, LinearScheduleSpec
from ablate.spec.schedule import SCHEDULES, RisingSpec, ScheduleSpec
from ablate.spec.training import TrainingSpec


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


@pytest.mark.independent_check("schedules", "constant cosine", against="values computed by hand")
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


WITH_WARMUP = sorted(kind for kind, member in SCHEDULES.members().items() if issubclass(member, RisingSpec))


@pytest.mark.parametrize("kind", WITH_WARMUP)
@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_a_schedule_of_one_step_moves(kind: str, warmup: float) -> None:
    assert ScheduleSpec.parse({"kind": kind, "warmup": warmup}).factor(1, 1) >= 0.5


@pytest.mark.parametrize("kind", WITH_WARMUP)
def test_a_warmup_in_steps_is_the_same_share_of_them(kind: str) -> None:
    by_share, by_steps = (
        ScheduleSpec.parse({"kind": kind, **given}) for given in ({"warmup": 0.3}, {"warmup_steps": 9})
    )
    assert [by_steps.factor(step, 30) for step in range(1, 31)] == [by_share.factor(step, 30) for step in range(1, 31)]
    assert by_steps.factor(4, 1000) == pytest.approx(4 / 9)


def test_a_warmup_longer_than_the_training_is_refused() -> None:
    plain = {"steps": 9, "batch_size": 1, "optimizer": {"lr": 1}}
    TrainingSpec.model_validate({**plain, "schedule": {"kind": "constant", "warmup_steps": 9}})
    with pytest.raises(ValidationError, match="never reach its peak in 9 steps") as refused:
        TrainingSpec.model_validate({**plain, "schedule": {"kind": "constant", "warmup_steps": 10}})
    assert refused.value.errors()[0]["loc"] == ("schedule", "warmup_steps")


def of_transformers(make: Callable[..., LambdaLR], steps: int, **settings: Any) -> list[float]:
    """The factors of a schedule of `transformers`; its step 0 is before our first."""
    scheduler = make(torch.optim.SGD([torch.zeros(1)], lr=1.0), **settings)
    return [float(scheduler.lr_lambdas[0](step)) for step in range(1, steps + 1)]


@pytest.mark.independent_check("schedules", "warmup_stable_decay", against="the schedule of `transformers`")
@pytest.mark.parametrize(("shape", "theirs"), [("linear", "linear"), ("sqrt", "1-sqrt"), ("cosine", "cosine")])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_warmup_stable_decay_is_that_of_transformers(shape: str, theirs: str, floor: float) -> None:
    schedule = ScheduleSpec.parse(
        {"kind": "warmup_stable_decay", "warmup": 0.1, "decay": 0.3, "shape": shape, "floor": floor}
    )
    settings = {"num_warmup_steps": 4, "num_stable_steps": 24, "num_decay_steps": 13, "min_lr_ratio": floor}
    if theirs == "cosine":
        settings["num_cycles"] = 0.5
    expected = of_transformers(transformers.get_wsd_schedule, 40, **settings, decay_type=theirs)
    ours = [schedule.factor(step, 40) for step in range(1, 41)]
    assert ours[:4] == pytest.approx([1 / 4, 1 / 2, 3 / 4, 1])  # theirs rises from the floor, ours from 0
    assert ours[4:] == pytest.approx(expected[4:])


def test_a_decay_is_no_longer_than_what_the_warmup_leaves() -> None:
    schedule = ScheduleSpec.parse({"kind": "warmup_stable_decay", "warmup": 0.5, "decay": 1.0})
    assert [schedule.factor(step, 4) for step in (1, 2, 3, 4)] == pytest.approx([1 / 2, 1, 2 / 3, 1 / 3])


@pytest.mark.independent_check("schedules", "inverse_sqrt", against="the schedule of `transformers`")
def test_inverse_sqrt_is_that_of_transformers() -> None:
    expected = of_transformers(transformers.get_inverse_sqrt_schedule, 50, num_warmup_steps=7, timescale=7)
    schedule = ScheduleSpec.parse({"kind": "inverse_sqrt", "warmup_steps": 7})
    assert [schedule.factor(step, 50) for step in range(1, 51)] == pytest.approx(expected)


def test_inverse_sqrt_as_the_papers_print_it() -> None:
    ours = ScheduleSpec.parse({"kind": "inverse_sqrt", "warmup_steps": 40, "form": "transformer", "width": 512})
    arena = ScheduleSpec.parse({"kind": "inverse_sqrt", "warmup_steps": 40, "form": "long_range_arena"})
    for step in (1, 17, 40, 41, 300):
        assert ours.factor(step, 300) == pytest.approx(512**-0.5 * min(step**-0.5, step * 40**-1.5))
        assert arena.factor(step, 300) == pytest.approx(min(1.0, step / 40) / math.sqrt(max(step, 40)))


@pytest.mark.parametrize("given", [{"form": "transformer"}, {"form": "peak", "width": 8}])
def test_a_width_belongs_to_the_form_of_the_transformer(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="divides by the root of the width"):
        ScheduleSpec.parse({"kind": "inverse_sqrt", **given})


@pytest.mark.independent_check("schedules", "slanted_triangular", against="arXiv:1801.06146 eq. 3")
def test_slanted_triangular_is_equation_3() -> None:
    schedule, steps = ScheduleSpec.parse({"kind": "slanted_triangular", "cut": 0.2, "ratio": 16}), 50
    cut = math.floor(steps * 0.2)
    for t in range(1, steps + 1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.2 - 1))
        assert schedule.factor(t, steps) == pytest.approx((1 + p * (16 - 1)) / 16)


def test_a_mapping_without_a_kind_is_linear() -> None:
    assert ScheduleSpec.parse({"warmup": 0.3}) == LinearScheduleSpec(warmup=0.3)


def test_a_constant_rate_has_no_floor() -> None:
    with pytest.raises(ValidationError, match="there is no key `floor` here"):
        ScheduleSpec.parse({"kind": "constant", "floor": 0.1})


@pytest.mark.independent_check("schedules", "linear", against="the schedule of `transformers`")
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (7, 0), (40, 2), (40, 39), (40, 40)])
def test_linear_from_zero_is_that_of_transformers(steps: int, warmup: int) -> None:
    """The schedule of the released code of arXiv:2311.01906: the first step has rate 0."""
    schedule = LinearScheduleSpec(warmup_steps=warmup, from_zero=True)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
    rates = []
    for _ in range(steps):
        rates.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    assert [schedule.factor(step, steps) for step in range(1, steps + 1)] == pytest.approx(rates)

"""A run that resumes from a checkpoint equals an uninterrupted run."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
import torch
from random_tokens import CPU, RandomTokens, points, variant

from ablate.spec.space_fields import CheckpointInterval
from ablate.spec.variant import VariantSpec
from ablate.training.events import Checkpoint, Diverged, Event, Measurement, State
from ablate.training.loop import misfit, train
from ablate.training.members import Member
from ablate.training.pack import Pack


def pack(spec: VariantSpec, *seeds: int) -> list[Member]:
    return [Member(spec, seed) for seed in seeds]


def state_at(spec: VariantSpec, seeds: list[int], step: int, task: RandomTokens | None = None) -> State:
    """The state after a step, read back from the bytes of a file by the loader that runs no code."""
    for event in train(pack(spec, *seeds), task or RandomTokens(), CPU, save=CheckpointInterval(steps=step)):
        if isinstance(event, Checkpoint):
            file = io.BytesIO()
            torch.save(event.state, file)
            file.seek(0)
            return torch.load(file, weights_only=True)
    raise AssertionError("no checkpoint")


def told(events: list[Event]) -> list[tuple[Any, ...]]:
    """All but the seconds, which no two runs share."""
    return [
        (event.step, event.tokens, event.flops, str(event.train_loss), str(event.metrics))
        if isinstance(event, Measurement)
        else (event.member, event.step, str(event.loss))
        for event in events
        if isinstance(event, Measurement | Diverged)
    ]


@pytest.mark.parametrize("model", [{}, {"block": "sas"}, {"dropout": 0.3}, {"block": "performer"}])
@pytest.mark.parametrize("evaluations", [3, 10])
def test_to_the_last_bit(model: dict[str, Any], evaluations: int) -> None:
    spec = variant(model, steps=10, evaluations=evaluations)
    whole = list(train(pack(spec, 5, 2), RandomTokens(), CPU))
    state = state_at(spec, [5, 2], 4)
    torch.rand(7)  # of random numbers drawn between the two runs nothing may be seen
    task = RandomTokens()
    again = list(train(pack(spec, 5, 2), task, CPU, start=state))
    assert told(again) == told(whole)
    assert {step for _, step, _ in task.served} == {5, 6, 7, 8, 9, 10}


def test_seconds_continue() -> None:
    spec = variant(steps=6)
    state = state_at(spec, [0], 3)
    state["counters"]["seconds"] = 1000.0
    again = points(list(train(pack(spec, 0), RandomTokens(), CPU, start=state)))
    assert [point.seconds > 1000.0 for point in again if point.step > 3] == [True] * 3


def test_a_member_that_diverged_before_stays_diverged_and_is_reported_again() -> None:
    spec, poisoned = variant(steps=8, evaluations=2), {1: 2}
    whole = list(train(pack(spec, 0, 1), RandomTokens(poisoned), CPU))
    kept: list[int] = []
    again = list(
        train(
            pack(spec, 0, 1),
            RandomTokens(poisoned),
            CPU,
            lambda model, place, member: kept.append(member),
            start=state_at(spec, [0, 1], 5, RandomTokens(poisoned)),
        )
    )
    assert told(again)[1] == (1, 2, "nan")
    assert told(again) == told(whole)
    assert kept == [0]


def test_checkpoints_come_at_their_interval_and_not_at_the_end() -> None:
    events = train(pack(variant(steps=6), 0), RandomTokens(), CPU, save=CheckpointInterval(steps=2))
    assert [event.step for event in events if isinstance(event, Checkpoint)] == [2, 4]


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The path and the value of every tensor and number of a state."""
    inside = part.items() if isinstance(part, Mapping) else enumerate(part) if isinstance(part, list | tuple) else ()
    for name, one in inside:
        yield from places(one, (*path, name))
    if isinstance(part, torch.Tensor | int | float):
        yield path, part


def test_a_state_with_any_part_of_another_kind_does_not_fit() -> None:
    spec = variant(steps=6)
    state = state_at(spec, [0, 1], 3)
    with Pack(pack(spec, 0, 1), RandomTokens(), CPU) as fresh:
        assert misfit(fresh, state) == ""
        tried = 0
        for path, value in places({name: part for name, part in state.items() if "random" not in name}):
            if path[0] in ("events", "positions", "alive"):
                continue
            for other in (
                (value.to(torch.complex64), value[..., None]) if isinstance(value, torch.Tensor) else ("x", math.nan)
            ):
                damaged = deepcopy(state)
                part = damaged
                for name in path[:-1]:
                    part = part[name]
                part[path[-1]] = other
                assert misfit(fresh, damaged), path
                tried += 1
        assert tried > 100
        for missing in ("events", "model", "counters"):
            assert missing in misfit(fresh, {name: part for name, part in state.items() if name != missing})

"""Packs of members with different values, against single runs: optimizers, initial values, dropout, leaving members."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from random_tokens import CPU, RandomTokens, divergences, losses, points, variant

from ablate.spec.variant import VariantSpec
from ablate.training.events import Event, Measurement
from ablate.training.loop import train
from ablate.training.members import Member, pack_key

STEPS = 12


def member(seed: int, model: dict[str, Any] | None = None, **training: Any) -> Member:
    return Member(variant(model, **{"steps": STEPS, **training}), seed)


def mixed() -> list[Member]:
    """Every value of the training that may differ, out of order, and two members that share all of it."""
    cosine = {"kind": "cosine", "warmup": 0.5, "floor": 0.1}
    return [
        member(5, optimizer={"lr": 1e-2}),
        member(3, optimizer={"lr": 1e-3, "weight_decay": 0.5}),
        member(4, optimizer={"lr": 1e-2}),
        member(3, optimizer={"lr": 1e-2, "betas": [0.5, 0.9], "eps": 1e-4}, schedule=cosine),
        member(5, optimizer={"lr": 1e-2, "clip": 0.05, "eps": 0.01}),
    ]


def run(members: Sequence[Member], task: RandomTokens | None = None) -> list[Event]:
    return list(train(members, task or RandomTokens(), CPU))


def single(trial: Member, task: RandomTokens | None = None) -> torch.Tensor:
    return losses(run([trial], task))[0]


def trained(trial: Member) -> torch.nn.Module:
    kept: list[torch.nn.Module] = []
    list(train([trial], RandomTokens(), CPU, lambda model, *_: kept.append(model)))
    return kept[0]


def assert_same(packed: torch.Tensor, alone: torch.Tensor) -> None:
    torch.testing.assert_close(packed, alone, rtol=1e-4, atol=1e-5)


def test_every_member_has_its_own_optimizer_and_schedule() -> None:
    members = mixed()
    packed = losses(run(members))
    alone = torch.stack([single(trial) for trial in members])
    assert_same(packed, alone)
    ends = alone[:, -1, 1]
    assert (ends[:, None] - ends).abs().fill_diagonal_(1.0).min() > 1e-3, "members must differ for this to say anything"


@pytest.mark.parametrize("first", ["cold", "warm"])
def test_windows_of_a_member_that_starts_from_weights_are_measured_beside_any_other(first: str) -> None:
    both = {"cold": member(1), "warm": member(1, init_from={"source": "somewhere", "identity": "abc"})}
    assert len({pack_key(trial.variant, "data") for trial in both.values()}) == 1
    members = [both[first], *(trial for name, trial in both.items() if name != first)]
    packed, alone = (points(run(trials))[-1].windows["val_loss"] for trials in (members, [both["warm"]]))
    torch.testing.assert_close(torch.tensor(packed[members.index(both["warm"])]), torch.tensor(alone[0]))


def test_members_may_start_from_other_values() -> None:
    def block(branch: float, value: str) -> dict[str, Any]:
        gains = {"mixer_branch": {"init": branch, "trainable": True}}
        return {"block": {"mixer": {"kind": "attention", "value": {"kind": "dense", "init": value}}, "gains": gains}}

    members = [member(1, block(0.3, "normal")), member(1, block(1.0, "orthogonal")), member(2, block(1.0, "normal"))]
    assert len({pack_key(trial.variant, "data") for trial in members}) == 1
    packed = losses(run(members))
    assert_same(packed, torch.stack([single(trial) for trial in members]))
    assert not torch.allclose(packed[0], packed[1], rtol=1e-3)


@pytest.mark.parametrize("where", ["embedding", "block", "mixer"])
def test_dropout_of_a_member_depends_on_its_own_seed_alone(where: str) -> None:
    block = {"mixer": {"kind": "attention", "dropout": 0.3 * (where == "mixer")}, "dropout": 0.3 * (where == "block")}
    model = {"block": block, "dropout": 0.3 * (where == "embedding")}
    members = [member(seed, model) for seed in (7, 2, 7)]
    events, plain = run(members, RandomTokens(poisoned={2: 6})), run([member(7, {"block": {"mixer": "attention"}})])
    packed = losses(events)
    assert_same(packed[[0, 2]], single(members[0]).expand(2, -1, -1))
    assert not torch.allclose(packed[0], losses(plain)[0], rtol=1e-3)
    before, without = (points(one)[0].metrics["val_loss"] for one in (events, plain))
    assert before[0] == before[2] == pytest.approx(without[0], rel=1e-6), "an evaluation drops nothing"


def test_a_diverged_member_leaves_and_the_others_continue_as_if_alone() -> None:
    members, poison = mixed(), {4: 5}
    events = run(members, RandomTokens(poisoned=poison))
    assert [(event.member, event.step) for event in divergences(events)] == [(2, 5)]
    packed = losses(events)
    for place, trial in enumerate(members):
        if place != 2:
            assert_same(packed[place], single(trial))
    assert packed[2, 4:].isnan().all()
    assert_same(packed[2, :4], single(members[2])[:4])


class _Stops:
    """Stops members after a number of steps; counts the sequences that the model then still reads."""

    def __init__(self, stops: dict[int, Sequence[int]]) -> None:
        self.stops = stops
        self.step = 0

    def __call__(self) -> Sequence[int]:
        self.step += 1
        return self.stops.get(self.step, ())


class _Widths(RandomTokens):
    """Remembers how many members each training step has."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[int] = []

    def loss(self, outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self.widths.append(len(outputs))
        return super().loss(outputs, batch)


def test_a_stopped_member_leaves_and_the_others_continue_as_if_alone() -> None:
    members, task = mixed(), _Widths()
    events = list(train(members, task, CPU, stopped=_Stops({3: [1], 6: [0, 4], 9: [3]})))
    packed = losses(events)
    assert task.widths == [5] * 3 + [4] * 3 + [2] * 3 + [1] * 3, "places are given up"
    assert divergences(events) == []
    ends = {0: 5, 1: 2, 2: STEPS, 3: 8, 4: 5}
    for place, trial in enumerate(members):
        assert_same(packed[place, : ends[place]], single(trial)[: ends[place]])
        assert packed[place, ends[place] :].isnan().all()


def test_training_ends_when_everyone_has_left() -> None:
    task = RandomTokens(poisoned={1: 4})
    events = list(train([member(0), member(1)], task, CPU, stopped=_Stops({6: [0]})))
    assert task.steps == 6
    assert points(events)[-1].step == 5


def test_training_ends_when_a_validation_loss_is_the_first_that_is_not_finite() -> None:
    class Ruined(RandomTokens):
        def loss(self, outputs: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss = super().loss(outputs, batch)
            # sqrt has an infinite slope at 0: a finite loss with a gradient that is not.
            return loss + (outputs.sum() * 0).abs().sqrt() if self.steps == 3 else loss

    events = run([member(0), member(1)], Ruined())
    assert [(event.member, event.step, math.isnan(event.loss)) for event in divergences(events)] == [
        (0, 3, True), (1, 3, True)
    ]  # fmt: skip
    assert points(events)[-1].step == 3


def test_only_completed_members_are_kept_with_the_weights_of_a_single_run() -> None:
    members = mixed()
    kept: dict[int, torch.Tensor] = {}

    def keep(model: torch.nn.Module, place: int, number: int) -> None:
        kept[number] = model.embedding.weight[place].detach().clone()

    list(train(members, RandomTokens(poisoned={4: 5}), CPU, keep, _Stops({3: [1]})))
    assert kept.keys() == {0, 3, 4}
    for number, weight in kept.items():
        alone = trained(members[number]).embedding.weight[0].detach()
        torch.testing.assert_close(weight, alone, rtol=1e-3, atol=1e-4)


def test_the_seconds_of_a_pack_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Iterator[float] = iter(range(10_000))
    monkeypatch.setattr("ablate.training.pack.time.perf_counter", lambda: float(next(clock)))
    events = list(train([member(0), member(1)], RandomTokens(), CPU, stopped=_Stops({4: [0]})))
    seconds = [point.seconds for point in points(events)]
    assert seconds[:5] == [0, 0.5, 1.0, 1.5, 2.0], "a second for each step, shared by two members"
    assert seconds[5:] == [3.0 + step for step in range(STEPS - 4)]


def test_batches_of_a_seed_are_made_once() -> None:
    task = RandomTokens()
    run([member(seed, optimizer={"lr": lr}) for lr in (1e-3, 1e-2) for seed in (0, 1)], task)
    assert [(seed, step) for seed, step, _ in task.served] == [(s, t) for t in range(1, STEPS + 1) for s in (0, 1)]


def test_values_share_a_pack_and_structures_do_not() -> None:
    def key(spec: VariantSpec, fingerprint: str = "data") -> str | None:
        return pack_key(spec, fingerprint)

    plain = key(variant())
    assert plain is not None
    for same in (
        variant(optimizer={"lr": 1.0, "weight_decay": 0.0, "clip": 2.0, "betas": [0.1, 0.2]}),
        variant(schedule="cosine"),
        variant(save_weights=True),
    ):
        assert key(same) == plain
    for other in (
        variant(steps=21),
        variant(batch_size=5),
        variant(precision="bf16"),
        variant(evaluations=2),
        variant({"width": 15}),
        variant({"depth": 2}),
        variant({"init_std": 0.03}),
        variant({"dropout": 0.1}),
        variant({"exceptions": {"last": {"mlp": "gated"}}}),
        variant({"block": {"mixer": "attention", "gains": {"mixer_branch": 0.5}}}),
    ):
        assert key(other) != plain
    assert key(variant(), "other data") != plain
    by_turns, by_number = {"pattern": [{"norm": "layer"}, {}]}, {"exceptions": {"0": {"norm": "layer"}}}
    assert key(variant({"depth": 2, **by_turns})) == key(variant({"depth": 2, **by_number})), "the same layers"
    # A fixed gain of 1 is not an operation, so that it is part of the structure; a trainable one is a value.
    gains = [{"init": 1.0}, {"init": 0.5}, {"init": 1.0, "trainable": True}, {"init": 0.5, "trainable": True}]
    keys = [key(variant({"block": {"mixer": "attention", "gains": {"mlp_branch": gain}}})) for gain in gains]
    assert len({keys[0], keys[1], keys[2]}) == 3
    assert keys[2] == keys[3]


def test_members_of_two_structures_are_refused() -> None:
    with pytest.raises(ValueError, match="same names and shapes"):
        run([member(0), member(0, {"width": 15})])


def test_members_that_have_left_have_no_numbers() -> None:
    events = list(train([member(0), member(1)], RandomTokens(), CPU, stopped=_Stops({1: [1]})))
    last = [event for event in events if isinstance(event, Measurement)][-1]
    assert math.isfinite(last.train_loss[0])
    assert math.isnan(last.train_loss[1])
    assert math.isnan(last.metrics["val_loss"][1])

"""The training loop: packs against single runs, divergence, precision, further losses, prefetched batches."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import pytest
import torch
from families import without_dropout
from random_tokens import CPU, RandomTokens, losses, points, run, variant

from ablate.spec.training import TrainingSpec
from ablate.training.batches import Batches
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack


@pytest.mark.parametrize("block", ["pre_ln", "parallel", "sas_p_no_norm", "post_ln", "simple_resl", "rwkv7", "mamba2"])
def test_a_pack_of_three_gives_the_losses_of_three_single_runs(block: str) -> None:
    spec = variant({**without_dropout(block), "depth": 2}, optimizer={"clip": 0.5}, steps=4)
    seeds = [11, 3, 7]
    pack = losses(run(spec, seeds))
    single = torch.cat([losses(run(spec, [seed])) for seed in seeds])
    assert pack.shape == (3, 4, 2)
    torch.testing.assert_close(pack, single, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(pack[0], pack[1], rtol=1e-2), "members must differ for this to say anything"


@pytest.mark.parametrize("packed", [True, False])
def test_all_variants_of_a_seed_see_the_same_batches(packed: bool) -> None:
    seen = []
    for block in ("pre_ln", "sas", "parallel"):
        task = RandomTokens()
        run(variant({"block": block, "width": 9}, steps=5), [4, 2] if packed else [4], task)
        seen.append({(seed, step): batch for seed, step, batch in task.served if seed == 4})
    assert len(seen[0]) == 5
    for other in seen[1:]:
        assert seen[0].keys() == other.keys()
        assert all(torch.equal(batch, other[key]) for key, batch in seen[0].items())
    assert not torch.equal(seen[0][4, 1], seen[0][4, 2]), "every step has its own batch"


def test_points_hold_the_measured_values() -> None:
    spec = variant(steps=10, evaluations=4)
    events = run(spec, [0, 1])
    curve = points(events)
    assert [point.step for point in curve] == [0, 2, 5, 8, 10]
    assert all(math.isnan(loss) for loss in curve[0].train_loss)
    assert [point.tokens for point in curve] == [step * 4 * 9 for step in (0, 2, 5, 8, 10)]
    every = losses(run(variant(steps=10, evaluations=10), [0, 1]))
    torch.testing.assert_close(torch.tensor(curve[2].train_loss, dtype=torch.float64), every[:, 2:5, 0].mean(1))
    torch.testing.assert_close(torch.tensor(curve[2].metrics["val_loss"], dtype=torch.float64), every[:, 4, 1])
    assert curve[-1].flops / curve[1].flops == pytest.approx(5)
    seconds = [point.seconds for point in curve]
    assert seconds == sorted(seconds)
    assert seconds[0] == 0


def test_evaluation_does_not_touch_training() -> None:
    often, once = (run(variant({"dropout": 0.1}, evaluations=n), [5]) for n in (20, 1))
    last_often, last_once = points(often)[-1], points(once)[-1]
    assert last_often.metrics == last_once.metrics
    assert last_once.train_loss[0] == pytest.approx(losses(often)[0, :, 0].mean().item(), rel=1e-6)


def test_training_is_a_stream() -> None:
    """The first point comes before the first step, so that a display has something to show."""
    task = RandomTokens()
    first = next(iter(train([Member(variant(), 0)], task, CPU)))
    assert isinstance(first, Measurement)
    assert first.step == 0
    assert task.served == []


def test_tiny_numbers_are_0_while_a_trial_trains_and_only_then() -> None:
    def product() -> float:
        return float(torch.tensor(1e-38) * torch.tensor(0.1))

    supported = torch.set_flush_denormal(True)
    torch.set_flush_denormal(False)
    events = train([Member(variant(), 0)], RandomTokens(), CPU)
    assert isinstance(events, Generator)
    next(events)
    assert (product() == 0) == supported
    events.close()
    assert product() > 0


def test_auxiliary_losses_train_the_weights_and_are_not_reported_as_the_tasks() -> None:
    def mlp(**parts: float) -> dict[str, Any]:
        return {"block": {"mixer": "attention", "mlp": {"kind": "mixture", "experts": 4, **parts}}}

    packs = [[Member(variant(mlp(**parts), steps=2), 3)] for parts in ({}, {"balance_loss": 5.0})]
    with Pack(packs[0], RandomTokens(), CPU) as plain, Pack(packs[1], RandomTokens(), CPU) as balanced:
        for pack in (plain, balanced):
            pack.step(1)
        assert plain.last_loss() == balanced.last_loss()
        ours, theirs = (dict(pack.model.named_parameters()) for pack in (plain, balanced))
        assert (ours["blocks.0.mlp.router.weight"] - theirs["blocks.0.mlp.router.weight"]).abs().max() > 1e-6


STEPS = 40


def training(batch_size: int) -> TrainingSpec:
    return TrainingSpec.model_validate({"steps": STEPS, "batch_size": batch_size, "optimizer": {"lr": 0.1}})


def asked(batches: Batches, calls: list[tuple[list[int], int]]) -> None:
    """Every batch is the task's own for its seeds and step."""
    for seeds, step in calls:
        batch = batches.get(seeds, step)
        for name, values in batch.items():
            own = torch.stack([RandomTokens().train_batch(seed, step, 4)[name] for seed in seeds])
            torch.testing.assert_close(values, own, rtol=0, atol=0)


def test_batches_are_those_of_their_step_and_seeds() -> None:
    batches = Batches(RandomTokens(), training(4), CPU)
    steps = [*range(1, 9), *range(30, 35), 3, 4]  # a run that jumps to other steps, as after a checkpoint
    asked(batches, [([3], step) for step in steps])
    asked(batches, [([3, 5], step) for step in range(5, 9)])
    asked(batches, [([5], step) for step in range(9, STEPS + 1)])  # a member has left


def test_batches_are_made_once_and_none_beyond_the_last_step() -> None:
    task = RandomTokens()
    asked(Batches(task, training(4), CPU), [([0], step) for step in range(1, STEPS + 1)])
    assert [step for _, step, _ in task.served] == list(range(1, STEPS + 1))


def test_large_batches_are_not_made_in_advance() -> None:
    task = RandomTokens()
    Batches(task, training(1 << 17), CPU).get([0], 1)
    assert len(task.served) == 1

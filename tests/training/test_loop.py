"""The training loop: packs against single runs, common random numbers, divergence, precision, dropout."""

from __future__ import annotations

import math
from collections.abc import Generator

import pytest
import torch
from families import without_dropout
from random_tokens import CPU, RandomTokens, losses, points, run, variant

from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member


@pytest.mark.parametrize("block", ["pre_ln", "parallel", "sas_p_no_norm", "post_ln", "simple_resl", "rwkv7", "mamba2"])
def test_a_pack_of_three_gives_the_losses_of_three_single_runs(block: str) -> None:
    spec = variant({**without_dropout(block), "depth": 2}, optimizer={"clip": 0.5}, steps=4)
    seeds = [11, 3, 7]
    pack = losses(run(spec, seeds))
    single = torch.cat([losses(run(spec, [seed])) for seed in seeds])
    assert pack.shape == (3, 4, 2)
    torch.testing.assert_close(pack, single, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(pack[0], pack[1], rtol=1e-2), "members must differ for this to say anything"


def test_training_learns() -> None:
    curve = losses(run(variant(steps=150, evaluations=3), [0]))[0, :, 1]
    assert curve[-1] < 0.8 * math.log(17)


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


def test_bf16_runs_and_stays_near_fp32() -> None:
    full, half = (losses(run(variant({"block": "sas"}, precision=precision), [0])) for precision in ("fp32", "bf16"))
    assert not torch.equal(full, half)
    torch.testing.assert_close(half, full, rtol=0.02, atol=0)


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

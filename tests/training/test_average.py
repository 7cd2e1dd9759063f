"""Averages of the weights against torch's, and against means of the weights that runs of fewer steps end with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from random_tokens import CPU, RandomTokens, variant
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ablate.spec.schedule import AverageSpec, LastSpec
from ablate.training.loop import restore, state_of
from ablate.training.members import Member
from ablate.training.optimizer import WeightAverage
from ablate.training.pack import Pack

STEPS = 9


def walk(model: nn.Linear, step: int) -> None:
    """Weights that jump."""
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))


def averaged(spec: dict[str, Any], steps: int = STEPS) -> tuple[list[Tensor], list[Tensor]]:
    """The average after every step, and the weights after every step."""
    model = nn.Linear(3, 1, bias=False)
    average = WeightAverage(model, AverageSpec.parse(spec), steps)
    averages, weights = [], []
    for step in range(1, steps + 1):
        walk(model, step)
        average.update(step)
        weights.append(model.weight.detach().clone())
        with average.applied():
            averages.append(model.weight.detach().clone())
        assert torch.equal(model.weight, weights[-1])
    return averages, weights


@pytest.mark.independent_check("averages", "ema", against="torch `swa_utils.AveragedModel`")
def test_ema_is_that_of_torch() -> None:
    ours, _ = averaged({"kind": "ema", "decay": 0.7, "corrected": False})
    model = nn.Linear(3, 1, bias=False)
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.7))
    for step in range(1, STEPS + 1):
        walk(model, step)
        theirs.update_parameters(model)
        torch.testing.assert_close(ours[step - 1], theirs.module.weight.detach())


def test_a_corrected_ema_weighs_steps_by_their_age_alone() -> None:
    ours, weights = averaged({"kind": "ema", "decay": 0.7})
    shares = 0.7 ** torch.arange(STEPS - 1, -1, -1.0)
    expected = (torch.stack(weights) * (shares / shares.sum())[:, None, None]).sum(0)
    torch.testing.assert_close(ours[-1], expected)


@pytest.mark.independent_check("averages", "last", against="means of the weights of shorter runs")
def test_last_is_the_mean_of_the_last_checkpoints() -> None:
    ours, weights = averaged({"kind": "last", "count": 3, "share": 0.6}, steps=10)
    assert LastSpec(count=3, share=0.6).checkpoints(10) == [6, 8, 10]
    torch.testing.assert_close(ours[9], (weights[5] + weights[7] + weights[9]) / 3)
    torch.testing.assert_close(ours[6], weights[5])
    torch.testing.assert_close(ours[4], weights[4])


def test_a_short_training_has_fewer_checkpoints() -> None:
    assert LastSpec(count=5, share=0.2).checkpoints(12) == [10, 11, 12]


def test_what_is_evaluated_and_kept_is_the_average_and_training_continues_without_it() -> None:
    plain, ema = variant(steps=6), variant(steps=6, average={"kind": "ema", "decay": 0.6, "corrected": False})
    members = [Member(ema, 3), Member(ema, 4)]
    trained = []
    with (
        Pack(members, RandomTokens(), CPU) as pack,
        Pack([Member(plain, seed) for seed in (3, 4)], RandomTokens(), CPU) as other,
    ):
        theirs = AveragedModel(other.model, multi_avg_fn=get_ema_multi_avg_fn(0.6))
        for step in range(1, 7):
            pack.step(step)
            other.step(step)
            theirs.update_parameters(other.model)
            trained.append((pack.last_loss(), other.last_loss()))
        ours = pack.point()
        expected = other.model.load_state_dict(theirs.module.state_dict())
        assert not expected.missing_keys
        reference = other.point()
        with pack.evaluated_weights():
            for one, two in zip(pack.model.parameters(), theirs.module.parameters(), strict=True):
                torch.testing.assert_close(one, two)
    assert all(one == two for one, two in trained)
    assert ours.metrics["val_loss"] == pytest.approx(reference.metrics["val_loss"], rel=1e-5)


def test_it_continues_from_a_checkpoint_and_in_a_smaller_pack() -> None:
    spec = variant(steps=8, average={"kind": "ema", "decay": 0.9})
    members = [Member(spec, seed) for seed in (5, 2, 7)]

    def finish(pack: Pack, first: int) -> float:
        for step in range(first, 9):
            pack.step(step)
        loss: float = pack.point().metrics["val_loss"][1]
        return loss

    with Pack(members, RandomTokens(), CPU) as whole:
        expected = finish(whole, 1)
    with Pack(members, RandomTokens(), CPU) as begun, Pack(members, RandomTokens(), CPU) as resumed:
        for step in range(1, 5):
            begun.step(step)
        restore(resumed, state_of(begun))
        assert finish(resumed, 5) == expected
        begun.leave(0)
        begun.compact()
        assert finish(begun, 5) == pytest.approx(expected, rel=1e-5)  # a smaller pack sums in another order

"""Batches and contexts that grow: against a loop over torch's own optimizer, and against sums over single steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from random_tokens import CPU, RandomTokens, T, V, losses, points, run, variant

from ablate.nn.model import build_model, mean_flops
from ablate.spec.space_fields import CheckpointInterval
from ablate.spec.variant import VariantSpec
from ablate.training.events import Checkpoint, State
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.program import EagerProgram

if TYPE_CHECKING:
    from ablate.spec.task import Batch

STEPS = 12
BATCHES = [2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8]
"""`shares` (1/4, 1/2) of 8 sequences until 0.25 and 0.6 of 12 steps."""
CONTEXTS = [3, 6, 6, 6, 9, 9, 9, 9, 9, 9, 9, 9]
"""1/3 + 2/3·t/6 of 9 tokens at step t < 6, to the nearest multiple of 3."""
GROWING = {
    "batch_size": 8,
    "batch_growth": {"kind": "stages", "shares": [0.25, 0.5], "until": [0.25, 0.6]},
    "context_growth": {"kind": "linear", "start": 1 / 3, "until": 0.5, "multiple": 3},
}


class Shortened(RandomTokens):
    """Random tokens, whose inputs may have fewer tokens. Keeps the shape of every batch that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[int, tuple[int, int]] = {}

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        self.shapes[step] = batch_size, T
        return super().train_batch(seed, step, batch_size)

    def shorter_batch(self, seed: int, step: int, batch_size: int, length: int) -> Batch:
        whole = super().train_batch(seed, step, batch_size)
        self.shapes[step] = batch_size, length
        return {**whole, **{name: whole[name][:, :length].contiguous() for name in ("inputs", "targets")}}


def growing(**training: Any) -> VariantSpec:
    return variant(steps=STEPS, **{**GROWING, **training})


def by_hand(spec: VariantSpec, seed: int) -> list[list[float]]:
    """Training loss of every step and validation loss after it, by torch's AdamW and the sizes of `BATCHES`."""
    task, rate = RandomTokens(), spec.training.optimizer.lr
    model = build_model(spec.model, vocabulary=V, context=T, seeds=[seed])
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    curve = []
    for step, (size, length) in enumerate(zip(BATCHES, CONTEXTS, strict=True), 1):
        batch = task.train_batch(seed, step, size)
        optimizer.param_groups[0]["lr"] = rate
        outputs = model(batch["inputs"][:, :length].unsqueeze(0))[0]
        loss = F.cross_entropy(outputs.reshape(-1, V), batch["targets"][:, :length].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            nats = [
                F.cross_entropy(model(b["inputs"].unsqueeze(0))[0].reshape(-1, V), b["targets"].reshape(-1)).item()
                for b in task.validation_batches(8)  # of the whole context
            ]
        curve.append([loss.item(), sum(nats) / len(nats)])
    return curve


@pytest.mark.independent_check("growths", "linear stages", against="a loop over torch's AdamW, sizes by hand")
def test_a_growing_trial_is_that_of_a_loop_written_by_hand() -> None:
    plain = {"optimizer": {"weight_decay": 0, "betas": [0.9, 0.95]}, "schedule": {"kind": "constant", "warmup": 0}}
    spec, task = growing(**plain), Shortened()
    curve = losses(run(spec, [3], task))[0]
    assert task.shapes == dict(enumerate(zip(BATCHES, CONTEXTS, strict=True), 1))
    # torch sums gradients in another order.
    torch.testing.assert_close(curve, torch.tensor(by_hand(spec, 3), dtype=torch.float64), rtol=1e-4, atol=1e-5)


def test_tokens_and_arithmetic_are_the_sums_over_the_steps() -> None:
    spec = growing()
    curve = points(run(spec, [0, 1], Shortened()))
    parameters = sum(p.numel() for p in build_model(spec.model, vocabulary=V, context=T, seeds=[0]).parameters())
    tokens, flops = [0], [0.0]
    for size, length in zip(BATCHES, CONTEXTS, strict=True):
        forward = mean_flops(spec.model, [length], vocabulary=V, context=T)
        moved = spec.training.optimizer.step_flops(parameters, spec.model.width)
        tokens.append(tokens[-1] + size * length)
        flops.append(flops[-1] + 3 * size * forward + moved)
    assert [point.tokens for point in curve] == tokens
    assert [point.flops for point in curve] == pytest.approx(flops)


def test_a_pack_of_growing_trials_trains_each_as_alone() -> None:
    members = [growing(optimizer={"lr": rate}) for rate in (3e-3, 1e-2)]
    together = losses(list(train([Member(spec, seed) for seed, spec in enumerate(members)], Shortened(), CPU)))
    alone = [losses(run(spec, [seed], Shortened()))[0] for seed, spec in enumerate(members)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-4, atol=1e-5)  # products of other shapes


@pytest.mark.parametrize("step", [2, 3, 7])
def test_it_resumes_to_the_last_bit(step: int) -> None:
    """In the middle of a phase, and after its last step."""
    spec = growing()
    whole, state = points(run(spec, [5, 2], Shortened())), State()
    for event in train([Member(spec, 5), Member(spec, 2)], Shortened(), CPU, save=CheckpointInterval(steps=step)):
        if isinstance(event, Checkpoint) and event.step == step:
            state = {**event.state, "model": {k: v.clone() for k, v in event.state["model"].items()}}
            break
    again = points(list(train([Member(spec, 5), Member(spec, 2)], Shortened(), CPU, start=state)))
    assert [(p.step, p.tokens, p.flops, str(p.metrics)) for p in again] == [
        (p.step, p.tokens, p.flops, str(p.metrics)) for p in whole
    ]


def test_micro_batches_of_a_growing_batch_give_the_same_curve() -> None:
    whole, parts = (losses(run(growing(micro_batch=size), [4], Shortened())) for size in (None, 2))
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)  # sums of parts


def test_each_shape_has_a_program_of_its_own() -> None:
    """A CUDA graph is of one shape: a new one is captured where the shape changes, and nowhere else."""
    built: list[int] = []
    with Pack([Member(growing(), 0)], Shortened(), CPU, lambda compute, device: _Counted(compute, built)) as pack:
        for step in range(1, STEPS + 1):
            pack.step(step)
    assert len(built) == len(set(zip(BATCHES, CONTEXTS, strict=True))) == 5


class _Counted(EagerProgram):
    def __init__(self, compute: Any, built: list[int]) -> None:
        super().__init__(compute)
        built.append(1)


def _phases(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Runs of equal sizes, found step by step."""
    found: list[tuple[int, int, int, int]] = []
    for step, (batch, context) in enumerate(sizes, 1):
        if found and found[-1][2:] == (batch, context):
            found[-1] = (found[-1][0], step, batch, context)
        else:
            found.append((step, step, batch, context))
    return found


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 50, 333])
def test_phases_found_by_bisection_are_those_found_step_by_step(steps: int) -> None:
    training = variant(steps=steps, **GROWING).training
    found = [(p.first, p.last, p.batch_size, p.context) for p in training.phases(T)]
    assert found == _phases([training.shape_at(step, T) for step in range(1, steps + 1)])
    assert sum(phase.steps for phase in training.phases(T)) == steps

"""Prefetched batches: each step gets its own batch in any order of requests; the queue is bounded by memory."""

from __future__ import annotations

import torch
from random_tokens import CPU, RandomTokens

from ablate.spec.training import TrainingSpec
from ablate.training.batches import Batches

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

"""Tokens and arithmetic of a trial, whose batches may grow from step to step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ablate.spec.growth import Phase
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """The cost of each step of a phase.

    Attributes:
        phase: The phase.
        tokens: Training tokens of a step.
        flops: Arithmetic of a step: forward and backward pass, and optimizer.
    """

    phase: Phase
    tokens: int
    flops: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens and arithmetic of one trial.

    Attributes:
        phases: What the steps take, in order.
    """

    phases: tuple[PhaseCost, ...]

    def until(self, step: int) -> tuple[int, float]:
        """Tokens and arithmetic of the steps up to this one, which is counted from 1; nothing for 0."""
        tokens, flops = 0, 0.0
        for cost in self.phases:
            steps = min(step, cost.phase.last) - cost.phase.first + 1
            if steps > 0:
                tokens, flops = tokens + steps * cost.tokens, flops + steps * cost.flops
        return tokens, flops

    @property
    def whole(self) -> tuple[int, float]:
        """Tokens and arithmetic of all steps."""
        return self.until(self.phases[-1].phase.last if self.phases else 0)


def totals(variant: VariantSpec, task: Task, trainable: int, forward: Callable[[int], float], frozen: float) -> Totals:
    """The cost of the steps of a trial.

    Args:
        variant: What is trained.
        task: Its task.
        trainable: Number of trainable parameters.
        forward: Arithmetic of the forward pass over an example with inputs of this length; for the context of the task
            the mean over its examples.
        frozen: The part of it that frozen projections do, for a token.
    """
    training, context = variant.training, task.shape.context
    lengths = task.input_lengths()
    costs = []
    for phase in training.phases(context):
        whole = task.tokens_per_batch(phase.batch_size)
        rows = task.mean_rows(phase.batch_size)
        undone = frozen * (sum(lengths) / len(lengths) if phase.context == context else phase.context)
        flops = training.step_flops(forward(phase.context), trainable, variant.model.width, undone, rows)
        # Tasks whose inputs shorten have inputs of one length.
        tokens = whole if phase.context == context else phase.batch_size * phase.context
        costs.append(PhaseCost(phase, tokens, flops))
    return Totals(tuple(costs))

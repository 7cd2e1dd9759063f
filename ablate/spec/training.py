"""`TrainingSpec`: how long and how a trial is trained."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ablate.spec.annotations import ShortFor
from ablate.spec.base import Spec, refusal
from ablate.spec.population import PopulationSpec

_ASIDE = ("save_weights", "record_blocks")


class OptimizerSpec(Spec):
    """The optimiser. Weight decay leaves gains, norms and biases alone."""

    kind: Literal["adamw"] = "adamw"
    """`adamw`: decoupled weight decay (arXiv:1711.05101)."""
    lr: float = Field(gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay of matrices and embeddings."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of the two moment averages."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    clip: float = Field(default=1.0, gt=0)
    """Largest 2-norm of a member's whole gradient; longer ones are scaled down."""


class ScheduleSpec(Spec):
    """How the learning rate goes over the steps. A bare name is a kind."""

    kind: Literal["constant", "linear", "cosine"] = "linear"
    """After the warm-up: `constant`, or down to `floor` along a line or a half cosine."""
    warmup: float = Field(default=0.05, ge=0, le=1)
    """Share of the steps in which the rate rises linearly from 0 to its peak."""
    floor: float = Field(default=0.0, ge=0, le=1)
    """Share of the peak that is left at the last step."""

    def factor(self, step: int, steps: int) -> float:
        """Learning rate as a share of its peak, at a step counted from 1 to `steps`."""
        warmup = round(self.warmup * steps)
        if step <= warmup:
            return step / warmup
        if self.kind == "constant":
            return 1.0
        # The last step still moves: the line would reach the floor one step after the end.
        progress = (step - warmup) / (steps - warmup + 1)
        down = progress if self.kind == "linear" else (1 - math.cos(math.pi * progress)) / 2
        return 1.0 - (1.0 - self.floor) * down


class TrainingSpec(Spec):
    """Steps, batches, optimiser, schedule, precision and how often the validation loss is measured."""

    value_fields: ClassVar[frozenset[str]] = frozenset({"optimizer", "schedule", "save_weights", "record_blocks"})

    steps: int = Field(ge=1)
    """Optimiser steps."""
    batch_size: int = Field(ge=1)
    """Sequences in a batch."""
    optimizer: OptimizerSpec
    """The optimiser."""
    schedule: Annotated[ScheduleSpec, ShortFor("kind")] = ScheduleSpec()
    """The learning rate over the steps."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16`: matrix products under autocast; parameters and optimiser stay fp32."""
    evaluations: int = Field(default=10, ge=1)
    """Points of the validation curve, evenly spread over the steps; the last one is at the end."""
    population: PopulationSpec | None = Field(default=None, exclude_if=lambda population: population is None)
    """The population that the trial belongs to; the design `population` sets it."""
    save_weights: bool = False
    """Whether the final weights of every trial are kept, for `ablate generate` and `ablate translate`. It changes no
    result, so it is no part of what a trial is known by: one that was trained without is not trained again."""

    record_blocks: bool = False
    """Whether each evaluation records how large the weights and gradients of every block are, and how its mixer mixes
    the first tokens of the validation data, for the trial's page of the dashboard. As `save_weights`, it renames no
    trial."""

    @model_validator(mode="after")
    def _exchanges_what_was_measured(self) -> Self:
        if self.population is not None and self.population.every * min(self.evaluations, self.steps) < self.steps:
            raise refusal(
                ("population", "every"),
                self.population.every,
                "members are compared by their validation loss, which is measured at every"
                f" {self.steps / self.evaluations:g} steps",
                "Set `every` to no less, or more `training.evaluations`.",
            )
        return self

    def canonical(self) -> Any:
        """As any spec, without what changes no result."""
        return {name: value for name, value in super().canonical().items() if name not in _ASIDE}

    def evaluation_steps(self) -> tuple[int, ...]:
        """The steps after which the validation loss is measured, ascending, the last step among them."""
        count = min(self.evaluations, self.steps)
        return tuple(round(self.steps * (i + 1) / count) for i in range(count))

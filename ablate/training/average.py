"""The average of the weights of a pack, used in their place for evaluation and in saved files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ablate.spec.average import AverageSpec
from ablate.training.sharding import joined, local, part_of


class WeightAverage:
    """A running average of the trainable weights of a model, the same for all K members.

    Args:
        model: Whose weights are averaged.
        spec: Gives the weight of each step in the average.
        steps: The last step.
    """

    def __init__(self, model: nn.Module, spec: AverageSpec, steps: int) -> None:
        self._whole = list(model.parameters())
        self._parameters = [local(parameter) for parameter in self._whole]
        self._spec = spec
        self._steps = steps
        self._average = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after a step, counted from 1."""
        if weight := self._spec.weight(step, self._steps):
            torch._foreach_lerp_(self._average, self._parameters, weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager: the model has the averages in place of its weights in the body."""
        before = [parameter.detach().clone() for parameter in self._parameters]
        self._put(self._average)
        try:
            yield
        finally:
            self._put(before)

    def state(self) -> list[Tensor]:
        """The averages, in the order of the model's parameters; shares memory with them."""
        return [joined(average, whole) for average, whole in zip(self._average, self._whole, strict=True)]

    def restore(self, averages: list[Tensor], places: Tensor | None = None) -> None:
        """Continue from these averages; if `places` is given, from those of the members at these positions."""
        for ours, theirs, whole in zip(self._average, averages, self._whole, strict=True):
            ours.copy_(part_of(theirs, whole) if places is None else theirs[places])

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)  # in place, as a CUDA graph reads the memory of the parameters

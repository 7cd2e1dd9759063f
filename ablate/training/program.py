"""Runs the arithmetic of a step eagerly, or on a GPU as one CUDA graph.

A step of a small model has hundreds of kernels of a few microseconds each, so that a GPU mostly waits for Python. A
CUDA graph launches all of them at once. `build_program` chooses between the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ablate.spec.task import Batch

Compute = Callable[["Batch"], Tensor]
"""Runs an optimizer step on a batch and returns the loss of each member, [K]."""

_WARM_UP_STEPS = 3
"""Eager steps before a capture, in which libraries choose kernels and allocate workspaces."""
_COMPARED_STEPS = 2
"""Steps after a capture that are run eagerly too, to compare."""
_LOSS_TOLERANCE = 1e-3
"""The largest relative difference of losses: both ways run the same kernels, some of which sum in any order."""
_UPDATE_TOLERANCE = 0.05
"""The largest difference between two updates of the weights, relative to their 2-norm. An optimizer that divides by the
size of a gradient turns the rounding of a gradient near zero into a whole step of that weight."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a step changes.

    Attributes:
        weights: The parameters, by which a graph is compared with eager operations.
        others: Buffers, and the state of the optimizer.
        random: The generators from which a step draws.
    """

    weights: Sequence[Tensor]
    others: Sequence[Tensor]
    random: Sequence[torch.Generator]


class Program(ABC):
    """Runs steps.

    Attributes:
        remark: Why steps are not run as a CUDA graph; empty if they are, or on a CPU.
    """

    def __init__(self) -> None:
        self.remark = ""

    def compare(self, changed: Callable[[], Changed]) -> None:  # noqa: B027 - most programs have nothing to compare
        """Compare the first fast steps with eager ones, given what a step changes. Eager steps need no comparison."""

    @abstractmethod
    def run(self, batch: Batch) -> Tensor:
        """Run an optimizer step; returns the loss of each member before it, [K], which the next step may overwrite."""


def build_program(compute: Compute, device: torch.device) -> Program:
    """The program for a device: a CUDA graph on a GPU, eager operations on a CPU, where a graph gains nothing."""
    return GraphProgram(compute, device) if device.type == "cuda" else EagerProgram(compute)


BuildProgram = Callable[[Compute, torch.device], Program]


class EagerProgram(Program):
    """Runs steps eagerly."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self._compute = compute

    def run(self, batch: Batch) -> Tensor:
        return self._compute(batch)


class GraphProgram(Program):
    """Runs steps as one CUDA graph, captured after the first steps.

    Batches of other shapes than the captured one are run eagerly on the same parameters. All batches are if the step
    cannot be captured, for example because a mixer synchronises with the device, or if a replay differs from an eager
    step (see `compare`); `remark` then gives the reason.
    """

    def __init__(self, compute: Compute, device: torch.device) -> None:
        super().__init__()
        self._compute = compute
        self._device = device
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Batch = {}
        self._loss = torch.empty(0)
        self._changed: Callable[[], Changed] | None = None
        self._compared = 0

    def compare(self, changed: Callable[[], Changed]) -> None:
        self._changed = changed

    def run(self, batch: Batch) -> Tensor:
        self._steps += 1
        if self._steps <= _WARM_UP_STEPS:
            return self._warm_up(batch)
        if self._graph is None and not self.remark:
            self._capture(batch)
        if self._graph is None or not self._fits(batch):
            return self._compute(batch)
        for name, values in batch.items():
            self._inputs[name].copy_(values)
        if self._changed is not None and self._compared < _COMPARED_STEPS:
            self._compared += 1
            return self._replay_and_compare(self._graph, self._changed())
        self._graph.replay()
        return self._loss

    @torch.no_grad()
    def _replay_and_compare(self, graph: torch.cuda.CUDAGraph, changed: Changed) -> Tensor:
        """Run a step both ways from the same state; if they differ, keep the eager one and drop the graph.

        Copies are on the CPU, so that the GPU needs no more memory.
        """
        tensors = [*changed.weights, *changed.others]
        before, states = _copied(tensors), [generator.get_state() for generator in changed.random]
        with torch.enable_grad():
            loss = self._compute(self._inputs).clone()
        after, drawn = _copied(tensors), [generator.get_state() for generator in changed.random]
        _put(tensors, before, changed.random, states)
        graph.replay()
        if not (difference := _difference(changed.weights, before, after, self._loss, loss)):
            return self._loss
        _put(tensors, after, changed.random, drawn)
        self._graph, self._inputs = None, {}
        self.remark = f"its steps run eagerly, because a CUDA graph gave another result: {difference}"
        return loss

    def _warm_up(self, batch: Batch) -> Tensor:
        """Run a step on a separate stream, as capturing requires."""
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            loss = self._compute(batch)
        current.wait_stream(stream)
        return loss

    def _capture(self, batch: Batch) -> None:
        """Capture a step without running it."""
        self._inputs = {name: values.clone() for name, values in batch.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            # Another thread may be preparing batches.
            with torch.cuda.device(self._device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._loss = self._compute(self._inputs)
        except RuntimeError as error:
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            self._inputs = {}
            self.remark = f"its steps cannot be captured as a CUDA graph and run eagerly: {first_sentence(error)}"
            return
        self._graph = graph

    def _fits(self, batch: Batch) -> bool:
        return batch.keys() == self._inputs.keys() and all(
            values.shape == self._inputs[name].shape and values.dtype == self._inputs[name].dtype
            for name, values in batch.items()
        )


def _copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().to("cpu", copy=True) for tensor in tensors]


def _put(
    tensors: Sequence[Tensor],
    values: Sequence[Tensor],
    random: Sequence[torch.Generator],
    states: Sequence[Tensor],
) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
    for generator, state in zip(random, states, strict=True):
        generator.set_state(state)


def _difference(
    weights: Sequence[Tensor], before: Sequence[Tensor], eager: Sequence[Tensor], graph_loss: Tensor, eager_loss: Tensor
) -> str:
    """How a replay differs from an eager step; empty within rounding, and where both losses are not finite."""
    finite = eager_loss.isfinite()
    if not torch.allclose(graph_loss[finite], eager_loss[finite], rtol=_LOSS_TOLERANCE, atol=1e-6):
        return f"losses of {graph_loss.tolist()} instead of {eager_loss.tolist()}"
    apart = update = size = 0.0
    for tensor, was, want in zip(weights, before, eager, strict=False):
        got = tensor.detach().cpu()
        kept = torch.isfinite(want) & torch.isfinite(was)
        apart += (got - want)[kept].double().square().sum().item()
        update += (want - was)[kept].double().square().sum().item()
        size += want[kept].double().square().sum().item()
    if apart**0.5 <= _UPDATE_TOLERANCE * update**0.5 + torch.finfo(torch.float32).eps * size**0.5:
        return ""
    return f"its update of the weights is off by {(apart / max(update, 1e-300)) ** 0.5:.2g} of the update"


def first_sentence(error: Exception) -> str:
    """The first line of what an exception says, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

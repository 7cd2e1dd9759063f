"""Runs the arithmetic of a step eagerly, or on a GPU as one CUDA graph.

A step of a small model has hundreds of kernels of a few microseconds each, so that a GPU mostly waits for Python. A
CUDA graph launches all of them at once. `build_program` chooses between the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ablate.tasks.base import Batch

Compute = Callable[["Batch"], Tensor]
"""Runs an optimizer step on a batch and returns the loss of each member, [K]."""

_WARM_UP_STEPS = 3
"""Eager steps before a capture, in which libraries choose kernels and allocate workspaces."""


class Program(ABC):
    """Runs steps.

    Attributes:
        remark: Why steps are not run as a CUDA graph; empty if they are, or on a CPU.
    """

    def __init__(self) -> None:
        self.remark = ""

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
    cannot be captured, for example because a mixer synchronises with the device; `remark` then gives the reason.
    """

    def __init__(self, compute: Compute, device: torch.device) -> None:
        super().__init__()
        self._compute = compute
        self._device = device
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Batch = {}
        self._loss = torch.empty(0)

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
        self._graph.replay()
        return self._loss

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


def first_sentence(error: Exception) -> str:
    """The first line of what an exception says, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

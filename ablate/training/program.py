"""How the arithmetic of a step is run: operation by operation, or, on a GPU, as one CUDA graph.

A step of a small model is some hundred kernels of a few microseconds each, so that a GPU mostly waits for Python; a
graph hands all of them over at once. `build_program` is the one switch.
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
"""A whole optimizer step on a batch, which gives the loss of each member, [K]."""

_WARM_UP_STEPS = 3
"""Steps before a capture: libraries choose their kernels and allocate their workspaces in them."""


class Program(ABC):
    """A step, ready to be run again and again.

    Attributes:
        remark: Why it is run otherwise than it might be; empty unless there is something to say.
    """

    def __init__(self) -> None:
        self.remark = ""

    @abstractmethod
    def run(self, batch: Batch) -> Tensor:
        """One optimizer step; the loss of each member before it, [K], which the next step may overwrite."""


def build_program(compute: Compute, device: torch.device) -> Program:
    """The program of a step on a device: a CUDA graph on a GPU; on a CPU, where it gains nothing, plain operations."""
    return GraphProgram(compute, device) if device.type == "cuda" else EagerProgram(compute)


BuildProgram = Callable[[Compute, torch.device], Program]


class EagerProgram(Program):
    """Operation by operation."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self._compute = compute

    def run(self, batch: Batch) -> Tensor:
        return self._compute(batch)


class GraphProgram(Program):
    """One CUDA graph, captured after the first steps.

    A batch of another shape than the captured one is run operation by operation, on the same parameters. So is every
    batch if the step cannot be captured, for instance because a mixer waits for the device; `remark` then says why.
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
        """A step on a stream of its own, as a capture asks for."""
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            loss = self._compute(batch)
        current.wait_stream(stream)
        return loss

    def _capture(self, batch: Batch) -> None:
        """Record a step without running it."""
        self._inputs = {name: values.clone() for name, values in batch.items()}
        graph = torch.cuda.CUDAGraph()
        try:
            # Another thread may prepare batches meanwhile.
            with torch.cuda.device(self._device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._loss = self._compute(self._inputs)
        except RuntimeError as error:
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            self._inputs = {}
            self.remark = f"its steps cannot be a CUDA graph, and run one operation at a time: {_sentence(error)}"
            return
        self._graph = graph

    def _fits(self, batch: Batch) -> bool:
        return batch.keys() == self._inputs.keys() and all(
            values.shape == self._inputs[name].shape and values.dtype == self._inputs[name].dtype
            for name, values in batch.items()
        )


def _sentence(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

"""How the arithmetic of a step runs: its precision, compiled blocks, and on a GPU a step as one CUDA graph.

`torch.compile` compiles each block (regional compilation): blocks of equal code share one compiled program, so that a
deep model compiles as fast as a shallow one. What cannot be traced within a block runs eagerly, and so does all that
stands outside of blocks.

A step of a small model has hundreds of kernels of a few microseconds each, so that a GPU mostly waits for Python. A
CUDA graph launches all of them at once. `build_program` chooses between the two.
"""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ablate.nn.model.block import Block
from ablate.nn.model.encoder import DecoderBlock

if TYPE_CHECKING:
    from ablate.spec.task import Batch


def cast_to(precision: str, device: str) -> AbstractContextManager[object]:
    """Autocast for a forward pass in `bf16`; nothing for any other precision.

    Args:
        precision: As `training.precision`.
        device: `cpu` or `cuda`.
    """
    if precision != "bf16":
        return nullcontext()
    # A CUDA graph must repeat the casts at every replay.
    return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=device == "cpu")


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Let float32 matmuls on a GPU use TF32 in the body if the precision is `tf32`."""
    if precision != "tf32":
        yield
        return
    settings = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = "tf32"
    try:
        yield
    finally:
        for setting, earlier in zip(settings, before, strict=True):
            setting.fp32_precision = earlier


_PROGRAMS = 64
"""Programs for one piece of code, one for each number of members and each sort of block; then it runs eagerly."""


class CompileClock:
    """Measures the wall time of compilation in this process, which happens during the first steps."""

    def __init__(self) -> None:
        from torch._dynamo import callback

        self.seconds = 0.0
        self._begun: list[float] = []
        callback.on_compile_start(self._begin)
        callback.on_compile_end(self._end)

    def _begin(self, event: object) -> None:
        self._begun.append(time.perf_counter())

    def _end(self, event: object) -> None:
        begun = self._begun.pop()
        if not self._begun:  # a compilation within another one is part of it
            self.seconds += time.perf_counter() - begun


@cache
def compile_clock() -> CompileClock:
    """The clock of this process."""
    return CompileClock()


def compile_blocks(model: nn.Module) -> None:
    """Compile every block of a model when it first runs. Dropout draws the same noise as eager operations."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _PROGRAMS)
    compile_clock()
    for block in _blocks(model):
        block.compile(options={"fallback_random": True})


def run_eagerly(model: nn.Module) -> None:
    """Run the blocks of a model eagerly from now on."""
    for block in _blocks(model):
        block._compiled_call_impl = None


def eager_blocks() -> AbstractContextManager[Any]:
    """Context manager: compiled blocks run eagerly in the body, as an evaluation would need further programs."""
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def compiler_failures() -> tuple[type[Exception], ...]:
    """The exceptions of a compiler that cannot compile a block."""
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import InductorError

    return (TorchDynamoException, InductorError)


def missing_compiler(device: str) -> str:
    """What this machine lacks to compile for a device, `cpu` or `cuda`; empty if it can compile."""
    if device != "cpu":
        from torch.utils._triton import has_triton

        return "" if has_triton() else "Triton, for a GPU that it supports"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        compiler = shutil.which(get_cpp_compiler())
    except (InvalidCxxCompiler, RuntimeError):
        compiler = None
    return "" if compiler else "a C++ compiler: g++ or clang++, or the one that $CXX names"


def _blocks(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Block | DecoderBlock)]


Compute = Callable[["Batch"], Tensor]
"""Runs an optimizer step on a batch and returns the loss of each member, [K]."""

_WARM_UP_STEPS = 3
"""Eager steps before a capture, in which libraries choose kernels and allocate workspaces."""
_COMPARED_STEPS = 2
"""Steps after a capture that are run eagerly too, to compare."""
_NO_MEMORY = (
    "its steps run eagerly, because the GPU has no memory for a CUDA graph, which reserves that of a step again"
)
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
        warning: Why steps are not run as a CUDA graph; empty if they are, or on a CPU.
    """

    def __init__(self) -> None:
        self.warning = ""

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
    cannot be captured, for example because a mixer synchronises with the device, if the device has no memory for a
    graph, which reserves that of a step again, or if a replay differs from an eager step (see `compare`); `warning`
    then gives the reason.
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
        if self._graph is None and not self.warning:
            self._capture(batch)
        if self._graph is None or not self._fits(batch):
            return self._compute(batch)
        for name, values in batch.items():
            self._inputs[name].copy_(values)
        if self._changed is not None and self._compared < _COMPARED_STEPS:
            self._compared += 1
            return self._replay_and_compare(self._changed())
        self._graph.replay()
        return self._loss

    @torch.no_grad()
    def _replay_and_compare(self, changed: Changed) -> Tensor:
        """Run a step both ways from the same state; if they differ, keep the eager one and drop the graph.

        Copies are on the CPU, so that the GPU needs no more memory.
        """
        tensors = [*changed.weights, *changed.others]
        before, states = _copy(tensors), [generator.get_state() for generator in changed.random]
        batch, loss = self._inputs, self._eager_beside_the_graph()
        if loss is None:
            _put(tensors, before, changed.random, states)
            self._drop(_NO_MEMORY)
            with torch.enable_grad():
                return self._compute(batch)
        after, drawn = _copy(tensors), [generator.get_state() for generator in changed.random]
        _put(tensors, before, changed.random, states)
        assert self._graph is not None, "a step was captured"
        self._graph.replay()
        if not (difference := _difference(changed.weights, before, after, self._loss, loss)):
            return self._loss
        _put(tensors, after, changed.random, drawn)
        self._drop(f"its steps run eagerly, because a CUDA graph gave another result: {difference}")
        return loss

    def _eager_beside_the_graph(self) -> Tensor | None:
        """The losses of an eager step; None, and a step that was run in part, if there is no memory for it."""
        try:
            with torch.enable_grad():
                return self._compute(self._inputs).clone()
        except torch.OutOfMemoryError:
            return None

    def _drop(self, warning: str) -> None:
        """Run all further steps eagerly, and return the memory of the graph to the device."""
        self._graph, self._inputs, self.warning = None, {}, warning
        self._loss = torch.empty(0)
        torch.cuda.empty_cache()
        # After a capture that failed the generators may still count as captured, and eager dropout would fail.
        for generator in torch.cuda.default_generators:
            generator.graphsafe_set_state(generator.clone_state())

    def _warm_up(self, batch: Batch) -> Tensor:
        """Run a step on a separate stream, as capturing requires."""
        stream = _side_stream(self._device)
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
        except torch.OutOfMemoryError:
            del graph
            self._drop(_NO_MEMORY)
        except RuntimeError as error:
            self._drop(f"its steps cannot be captured as a CUDA graph and run eagerly: {first_sentence(error)}")
        else:
            self._graph = graph

    def _fits(self, batch: Batch) -> bool:
        return batch.keys() == self._inputs.keys() and all(
            values.shape == self._inputs[name].shape and values.dtype == self._inputs[name].dtype
            for name, values in batch.items()
        )


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of eager steps before a capture: one for a process, as cuBLAS keeps a workspace for each stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _copy(tensors: Sequence[Tensor]) -> list[Tensor]:
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

"""How the arithmetic of a step runs: its precision, and `torch.compile` of each block (regional compilation).

Blocks of equal code share one compiled program, so that a deep model compiles as fast as a shallow one. What cannot be
traced within a block runs eagerly, and so does all that stands outside of blocks.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import nn

from ablate.nn.model.block import Block
from ablate.nn.model.encoder_decoder import DecoderBlock


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

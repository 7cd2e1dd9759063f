"""Time blocks side by side at several lengths: seconds, tokens a second, peak memory, FLOP/s, growth with length.

Shapes: K pack (1), B batch, T tokens, D width.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ablate.errors import AblateError, EngineError
from ablate.machine import available_memory
from ablate.nn.kernels.product import product
from ablate.nn.model.block import block_cost, build_block, build_part
from ablate.nn.pack import initialise
from ablate.spec.cost import Cost
from ablate.spec.lookup import block_error, find_block
from ablate.spec.model import ModelSpec

Call = Callable[[], object]

_LEAST_ROUNDS = 3
_MOST_ROUNDS = 50
_BYTES = 4
_STEP = 3
"""The arithmetic of a training step (forward and backward) as a multiple of the forward pass."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured.

    Attributes:
        width: D.
        heads: H.
        batch: B.
        device: `cpu` or `cuda`.
        whole: Whether the whole block is measured, or its mixer alone.
    """

    width: int
    heads: int
    batch: int
    device: str
    whole: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """One block at one length. The numbers are NaN where it could not be measured.

    Attributes:
        block: Its name.
        length: T.
        causal: Whether the mixer is causal; blocks without a causal form are measured in their bidirectional form.
        seconds: Median time of a step, forward and backward.
        spread: Half the interquartile range, relative to the median.
        tokens: Tokens a second.
        peak: Peak memory of a step in bytes, including the gradients of the parameters.
        flops: Floating-point operations a second, counted as `ablate cost` does.
        share: `flops` relative to the peak of the machine.
        ratio: Time of the first block divided by the time of this one; above 1, this block is faster.
        why: The reason why it could not be measured; empty otherwise.
    """

    block: str
    length: int
    causal: bool
    seconds: float = math.nan
    spread: float = math.nan
    tokens: float = math.nan
    peak: int = 0
    flops: float = math.nan
    share: float = math.nan
    ratio: float = math.nan
    why: str = ""


def threads_used() -> int:
    """The number of CPU threads that torch uses; OMP_NUM_THREADS sets it."""
    return torch.get_num_threads()


def device_of(name: str) -> str:
    """Resolve `auto`, `cpu` or `cuda` to `cpu` or `cuda`.

    Raises:
        EngineError: The name is unknown, or this machine has no such device.
    """
    there = torch.cuda.is_available()
    if name == "auto":
        return "cuda" if there else "cpu"
    if name not in ("cpu", "cuda"):
        raise EngineError("there is no such device", where="--device", expected="auto, cpu or cuda", got=name)
    if name == "cuda" and not there:
        raise EngineError("this machine has no GPU that torch can use", where="--device", remedy="Use --device cpu.")
    return name


def measure(names: Sequence[str], lengths: Sequence[int], setting: Setting) -> Iterator[Timing]:
    """Measure blocks. The timings are ordered by length, then by block.

    Raises:
        SpaceError: There is no such block, or it refuses the width or the number of heads.
    """
    models = {name: find_block(name).model(width=setting.width, heads=setting.heads, depth=None) for name in names}
    return _rows(models, lengths, setting)


def _rows(models: dict[str, ModelSpec], lengths: Sequence[int], setting: Setting) -> Iterator[Timing]:
    most = machine_flops(setting.device)
    for length in lengths:
        yield from _at(models, length, setting, most)


def _at(models: dict[str, ModelSpec], length: int, setting: Setting, most: float) -> Iterator[Timing]:
    steps: dict[str, Callable[[], object]] = {}
    refusals: dict[str, str] = {}
    peaks: dict[str, int] = {}
    for name, model in models.items():
        try:
            step = step_of(name, model, length, setting)
            step()  # allocate the gradients and everything else that is allocated once
            peaks[name] = peak_bytes(step, setting.device)
            steps[name] = step
        except (AblateError, MemoryError, RuntimeError) as error:
            refusals[name] = _reason(error)
    times = dict(zip(steps, side_by_side(list(steps.values()), setting.device), strict=True)) if steps else {}
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    first = medians.get(next(iter(models)), math.nan)
    for name, model in models.items():
        if name in refusals:
            yield Timing(name, length, model.causal, why=refusals[name])
            continue
        taken = medians[name]
        quarters = statistics.quantiles(times[name], n=4)
        flops = setting.batch * _STEP * _cost(model, length, whole=setting.whole).flops / taken
        yield Timing(
            name,
            length,
            model.causal,
            seconds=taken,
            spread=(quarters[2] - quarters[0]) / 2 / taken,
            tokens=setting.batch * length / taken,
            peak=peaks[name],
            flops=flops,
            share=flops / most,
            ratio=first / taken,
        )


def step_of(name: str, spec: ModelSpec, length: int, setting: Setting) -> Callable[[], list[Tensor]]:
    """A function that runs one block forward and backward and returns its output and all gradients.

    Raises:
        SpaceError: The block refuses this length.
        EngineError: The prediction of its memory exceeds the free memory.
    """
    try:
        spec.check_context(length)
    except ValidationError as error:
        raise block_error(name, error) from None
    context = spec.layer_context(length)
    cost = _cost(spec, length, whole=setting.whole)
    needed = _BYTES * (2 * cost.parameters + setting.batch * cost.activations)
    there = torch.cuda.mem_get_info()[0] if setting.device == "cuda" else available_memory()
    if needed > there:
        problem = f"out of memory: {needed / 2**30:.1f} GiB predicted, {there / 2**30:.1f} GiB are there"
        raise EngineError(problem, where=name)
    build: Callable[[], nn.Module] = (
        (lambda: build_block(spec.blocks[0], context))
        if setting.whole
        else (lambda: build_part(spec.blocks[0].mixer, context))
    )
    module = build()
    initialise(module, [0])
    module = module.to(setting.device).train()
    x = torch.randn(1, setting.batch, length, setting.width, device=setting.device, requires_grad=True)
    direction = torch.randn_like(x)

    def step() -> list[Tensor]:
        for tensor in (x, *module.parameters()):
            tensor.grad = None
        y: Tensor = module(x)
        y.backward(direction)  # type: ignore[no-untyped-call]
        return [y.detach(), *(tensor.grad for tensor in (x, *module.parameters()) if tensor.grad is not None)]

    return step


def _cost(model: ModelSpec, length: int, *, whole: bool) -> Cost:
    parts = block_cost(model.blocks[0], model.layer_context(length), length)
    return sum((part for name, part in parts.items() if whole or name == "mixer"), Cost())


def _reason(error: Exception) -> str:
    """The reason in one sentence. An error that is neither out of memory nor invalid is shown as it is."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
        return "out of memory"
    return error.problem if isinstance(error, AblateError) else text


def growth(rows: Sequence[Timing]) -> dict[str, float]:
    """The least-squares slope of log time over log length for each block; NaN with fewer than two lengths."""
    slopes = {}
    for name in dict.fromkeys(row.block for row in rows):
        points = [(math.log(row.length), math.log(row.seconds)) for row in rows if row.block == name and not row.why]
        enough = len({x for x, _ in points}) > 1
        slopes[name] = statistics.linear_regression(*zip(*points, strict=True)).slope if enough else math.nan
    return slopes


def side_by_side(steps: Sequence[Call], device: str, seconds: float = 1.0) -> list[list[float]]:
    """Time calls in turns, so that other load on the machine affects all of them alike.

    Args:
        steps: The calls; each runs once before it is timed.
        device: `cpu` or `cuda`.
        seconds: Approximate time for each call; at least three rounds are timed.

    Returns:
        The seconds of every round, for each call.
    """
    times: list[list[float]] = [[] for _ in steps]
    for step in steps:
        step()
    begin = time.perf_counter()
    while len(times[0]) < _LEAST_ROUNDS or (
        time.perf_counter() - begin < seconds * len(steps) and len(times[0]) < _MOST_ROUNDS
    ):
        for step, taken in zip(steps, times, strict=True):
            taken.append(_seconds_of(step, device))
    return times


def _seconds_of(step: Call, device: str) -> float:
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1000
    # With one thread, processor time is measured: other processes affect it less than wall time.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    step()
    return clock() - begin


def peak_bytes(step: Call, device: str) -> int:
    """The peak of the memory that a call allocates, without what was allocated before it."""
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    # `profiled.events()` lists only allocations outside operators.
    results = profiled.profiler.kineto_results if profiled.profiler else None
    events = [event for event in results.events() if event.name() == "[memory]"] if results else []
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes), default=0)


def machine_flops(device: str) -> float:
    """Floating-point operations a second of a large matmul in single precision, as the peak of the machine."""
    size = 1024 if device == "cpu" else 8192
    x = torch.randn(1, size, size, device=device)
    (times,) = side_by_side([lambda: product(x, x)], device, 0.5)
    return 2 * size**3 / min(times)

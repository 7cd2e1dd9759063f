"""Blocks timed side by side at several lengths: time, tokens a second, peak memory, arithmetic, growth.

Shapes: K pack (1), B batch, T tokens, D width.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psutil
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.errors import AblateError, EngineError
from ablate.model.block import block_cost, build_block, build_mixer
from ablate.pack import initialise
from ablate.spec.cost import Cost
from ablate.spec.lookup import find_block, refused
from ablate.spec.model import ModelSpec
from ablate.timing.clock import machine_flops, peak_bytes, side_by_side

_BYTES = 4
_STEP = 3
"""Arithmetic of a step of training, forward and backward, in forward passes."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured.

    Attributes:
        width: D.
        heads: H.
        batch: B.
        device: `cpu` or `cuda`.
        whole: The whole block, or its mixer alone.
    """

    width: int
    heads: int
    batch: int
    device: str
    whole: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One block at one length; without numbers where `why` says why there are none.

    Attributes:
        block: Its name.
        length: T.
        causal: Whether it hides the future; blocks that cannot are measured as they are.
        seconds: Median of a step, forward and backward.
        spread: Half the distance of the quartiles, in parts of the median.
        tokens: Tokens a second.
        peak: Bytes at the peak of a step, the parameters' gradients among them.
        flops: Operations a second, as `ablate cost` counts them.
        share: Of what the machine can do.
        ratio: Time of the first block divided by that of this one: above 1 is faster.
        why: Why there are no numbers; empty where there are.
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
    """Threads that torch computes with on the CPU; OMP_NUM_THREADS sets them."""
    return torch.get_num_threads()


def device_of(name: str) -> str:
    """`cpu` or `cuda`.

    Raises:
        EngineError: It is neither, or there is no such device.
    """
    there = torch.cuda.is_available()
    if name == "auto":
        return "cuda" if there else "cpu"
    if name not in ("cpu", "cuda"):
        raise EngineError("there is no such device", where="--device", expected="auto, cpu or cuda", got=name)
    if name == "cuda" and not there:
        raise EngineError("this machine has no GPU that torch can use", where="--device", remedy="Use --device cpu.")
    return name


def measure(names: Sequence[str], lengths: Sequence[int], setting: Setting) -> Iterator[Row]:
    """Measure blocks; rows come length by length, the first block first.

    Raises:
        SpaceError: There is no such block, or the width and heads do not fit it.
    """
    models = {name: find_block(name).model(width=setting.width, heads=setting.heads, depth=None) for name in names}
    return _rows(models, lengths, setting)


def _rows(models: dict[str, ModelSpec], lengths: Sequence[int], setting: Setting) -> Iterator[Row]:
    most = machine_flops(setting.device)
    for length in lengths:
        yield from _at(models, length, setting, most)


def _at(models: dict[str, ModelSpec], length: int, setting: Setting, most: float) -> Iterator[Row]:
    steps: dict[str, Callable[[], object]] = {}
    refusals: dict[str, str] = {}
    peaks: dict[str, int] = {}
    for name, model in models.items():
        try:
            step = step_of(name, model, length, setting)
            step()  # gradients, and what is made once, are there from here on
            peaks[name] = peak_bytes(step, setting.device)
            steps[name] = step
        except (AblateError, MemoryError, RuntimeError) as error:
            refusals[name] = _reason(error)
    times = dict(zip(steps, side_by_side(list(steps.values()), setting.device), strict=True)) if steps else {}
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    first = medians.get(next(iter(models)), math.nan)
    for name, model in models.items():
        if name in refusals:
            yield Row(name, length, model.causal, why=refusals[name])
            continue
        taken = medians[name]
        quarters = statistics.quantiles(times[name], n=4)
        flops = setting.batch * _STEP * _cost(model, length, whole=setting.whole).flops / taken
        yield Row(
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
    """Forward and backward of one block: what gives its output and the gradients of its input and its parameters.

    Raises:
        SpaceError: The block refuses this length.
        EngineError: It is predicted not to fit into memory.
    """
    try:
        spec.check_context(length)
    except ValidationError as error:
        raise refused(name, error) from None
    context = spec.mixer_context(length)
    cost = _cost(spec, length, whole=setting.whole)
    needed = _BYTES * (2 * cost.parameters + setting.batch * cost.activations)
    there = torch.cuda.mem_get_info()[0] if setting.device == "cuda" else psutil.virtual_memory().available
    if needed > there:
        raise EngineError(f"out of memory: {needed / 2**30:.1f} GiB predicted, {there / 2**30:.1f} GiB are there")
    build: Callable[[], nn.Module] = (
        (lambda: build_block(spec.blocks[0], context))
        if setting.whole
        else (lambda: build_mixer(spec.blocks[0].mixer, context))
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
    parts = block_cost(model.blocks[0], model.mixer_context(length), length)
    return sum((part for name, part in parts.items() if whole or name == "mixer"), Cost())


def _reason(error: Exception) -> str:
    """In one sentence; what is no lack of memory and no refusal is a fault of the block and is told as it is."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
        return "out of memory"
    return error.problem if isinstance(error, AblateError) else text


def growth(rows: Sequence[Row]) -> dict[str, float]:
    """For each block the slope of log time over log length, by least squares; nan where fewer than two lengths ran."""
    slopes = {}
    for name in dict.fromkeys(row.block for row in rows):
        points = [(math.log(row.length), math.log(row.seconds)) for row in rows if row.block == name and not row.why]
        enough = len({x for x, _ in points}) > 1
        slopes[name] = statistics.linear_regression(*zip(*points, strict=True)).slope if enough else math.nan
    return slopes

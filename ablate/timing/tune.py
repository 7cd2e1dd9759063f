"""Which way of each kernel is the fastest on this machine, measured and written to the table of choices."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.errors import EngineError
from ablate.kernels import convolution, linear_attention
from ablate.kernels.choice import key, remember, table_file
from ablate.timing.clock import side_by_side
from ablate.timing.measure import Setting

_CLOSE = 1e-3
"""Largest relative difference from the first way; none may differ by more, outputs and gradients."""
_MOST_DIRECT = 512
"""The longest text for which ways whose memory grows faster than T are tried."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was chosen.

    Attributes:
        key: Under what it stands in the table.
        way: The fastest.
        seconds: Median of each way that was tried, by name.
    """

    key: str
    way: str
    seconds: dict[str, float]


def tune(lengths: Sequence[int], setting: Setting) -> Iterator[Tuned]:
    """Measure every way of every kernel at these sizes and keep the fastest ones.

    Raises:
        EngineError: The table cannot be written, or a way is not equal to the others.
    """
    choices = {}
    for length in lengths:
        for tuned in _at(length, setting):
            choices[tuned.key] = tuned.way
            yield tuned
    try:
        remember(choices)
    except OSError as error:
        raise EngineError(f"the table cannot be written ({error.strerror})", where=str(table_file())) from error


def _at(length: int, setting: Setting) -> Iterator[Tuned]:
    d, batch = setting.width, setting.batch
    d_h = max(1, d // setting.heads)
    heads = (1, batch, setting.heads, length, d_h)
    chunks = {
        name: lambda q, k, v, chunk=chunk: linear_attention.causal(q, k, v, chunk=chunk)
        for name, chunk in linear_attention.CHUNKS.items()
    }
    yield _fastest("causal", chunks, [heads] * 3, (length, d_h, d_h), setting)
    text = (1, batch, length, d)
    depthwise = {name: way for name, way in convolution.DEPTHWISE.items() if name != "pairs" or batch % 2 == 0}
    yield _fastest("depthwise", _short(depthwise, length), [text, (1, length, d)], (length, length), setting)
    yield _fastest("shared", _short(convolution.SHARED, length), [text, (1, length)], (length,), setting)
    if length <= _MOST_DIRECT:
        yield _fastest("full", _short(convolution.FULL, length), [text, (1, length, d, d)], (length, d), setting)


def _short(ways: dict[str, Callable[..., Tensor]], length: int) -> dict[str, Callable[..., Tensor]]:
    return {name: way for name, way in ways.items() if name != "direct" or length <= _MOST_DIRECT}


def _fastest(
    operation: str,
    ways: dict[str, Callable[..., Tensor]],
    shapes: Sequence[tuple[int, ...]],
    sizes: tuple[int, ...],
    setting: Setting,
) -> Tuned:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator).to(setting.device).requires_grad_() for shape in shapes]
    direction = torch.randn_like(inputs[0])

    def step(way: Callable[..., Tensor]) -> list[Tensor]:
        y = way(*inputs)
        return [y.detach(), *torch.autograd.grad(y, inputs, direction)]

    reference, *others = (step(way) for way in ways.values())
    for name, found in zip(list(ways)[1:], others, strict=True):
        if any((ours - theirs).norm() > _CLOSE * theirs.norm() for ours, theirs in zip(found, reference, strict=True)):
            raise EngineError(f"`{name}` is not equal to the other ways", where=operation)
    times = side_by_side([lambda way=way: step(way) for way in ways.values()], setting.device, 0.3)  # type: ignore[misc]
    seconds = {name: statistics.median(taken) for name, taken in zip(ways, times, strict=True)}
    return Tuned(key(operation, setting.device, *sizes), min(seconds, key=seconds.__getitem__), seconds)

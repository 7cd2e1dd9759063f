"""Which way of each kernel is the fastest on this machine, measured and written to the table of choices."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_WON = 0.75
"""Share of rounds that a way must win against the rule."""
_MOST_DIRECT = 512
"""The longest text for which ways whose memory grows faster than T are tried."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was chosen.

    Attributes:
        key: Under what it stands in the table.
        way: The fastest.
        rule: What is taken where nothing was measured.
        seconds: Median of each way that was tried, by name.
    """

    key: str
    way: str
    rule: str
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
    yield _fastest("causal", chunks, linear_attention.chunk_rule(d_h, d_h), [heads] * 3, (length, d_h, d_h), setting)
    text = (1, batch, length, d)
    depthwise = {name: way for name, way in convolution.DEPTHWISE.items() if name != "pairs" or batch % 2 == 0}
    rule = convolution.depthwise_rule(length, batch)
    yield _fastest("depthwise", _short(depthwise, length), rule, [text, (1, length, d)], (length, length), setting)
    rule = convolution.shared_rule(length)
    yield _fastest("shared", _short(convolution.SHARED, length), rule, [text, (1, length)], (length,), setting)
    if length <= _MOST_DIRECT:
        rule, shapes = convolution.full_rule(length), [text, (1, length, d, d)]
        yield _fastest("full", _short(convolution.FULL, length), rule, shapes, (length, d), setting)


def _short(ways: dict[str, Callable[..., Tensor]], length: int) -> dict[str, Callable[..., Tensor]]:
    return {name: way for name, way in ways.items() if name != "direct" or length <= _MOST_DIRECT}


def _fastest(
    operation: str,
    ways: dict[str, Callable[..., Tensor]],
    rule: str,
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
    taken = dict(zip(ways, times, strict=True))
    seconds = {name: statistics.median(rounds) for name, rounds in taken.items()}
    return Tuned(key(operation, setting.device, *sizes), fastest(taken, rule), rule, seconds)


def fastest(taken: Mapping[str, Sequence[float]], rule: str) -> str:
    """The way with the least median; but that of the rule, unless the other beat it in three rounds of four.

    So what was tuned is never slower than the rule by more than the noise of the machine.

    Args:
        taken: Way to seconds, timed in turns.
        rule: A way, which need not have been timed.
    """
    best = min(taken, key=lambda way: statistics.median(taken[way]))
    if rule not in taken:
        return best
    won = [ours < theirs for ours, theirs in zip(taken[best], taken[rule], strict=True)]
    return best if sum(won) >= _WON * len(won) else rule

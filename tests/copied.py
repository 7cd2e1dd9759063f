"""Copies weights into modules of other libraries, and compares outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Pair:
    """Parameters of a pack of one that, arranged, are one parameter of theirs; `arrange` is linear."""

    ours: tuple[Tensor, ...]
    theirs: Tensor
    arrange: Callable[..., Tensor] = lambda one: one

    def copy(self) -> None:
        with torch.no_grad():
            self.theirs.copy_(self.arrange(*(tensor[0] for tensor in self.ours)))

    def compare_gradients(self, rtol: float, atol: float) -> None:
        gradients = [tensor.grad for tensor in self.ours]
        assert all(gradient is not None for gradient in gradients)
        arranged = self.arrange(*(gradient[0] for gradient in gradients))
        torch.testing.assert_close(arranged, self.theirs.grad, rtol=rtol, atol=atol)


def turned(*matrices: Tensor) -> Tensor:
    """Ours are [in, out], those of nn.Linear [out, in]; several are stacked vertically."""
    return torch.cat([matrix.mT for matrix in matrices])


def linear(ours: Any, theirs: nn.Linear) -> Iterable[Pair]:
    """The pairs of a linear map, with its bias if there is one."""
    yield Pair((ours.weight,), theirs.weight, turned)
    if ours.bias is not None:
        yield Pair((ours.bias,), theirs.bias)


def norm(ours: Any, theirs: Any) -> Iterable[Pair]:
    """The pairs of a norm of the same kind."""
    yield Pair((ours.weight,), theirs.weight)
    if hasattr(ours, "bias"):
        yield Pair((ours.bias,), theirs.bias)


def multi_head(ours: Any, theirs: nn.MultiheadAttention) -> Iterable[Pair]:
    """The pairs of torch's attention, whose three input maps are one matrix."""
    maps = (ours.query, ours.key, ours.value)
    yield Pair(tuple(m.weight for m in maps), theirs.in_proj_weight, turned)
    yield Pair(tuple(m.bias for m in maps), theirs.in_proj_bias, lambda *biases: torch.cat(biases))
    yield from linear(ours.output, theirs.out_proj)


def compare(
    pairs: Iterable[Pair], ours: Tensor, theirs: Tensor, real: Tensor | None = None, *, rtol: float, atol: float
) -> None:
    """Outputs [1, B, T, n] of ours and [B, T, n] of theirs at the real tokens, and the gradients of every pair."""
    where = slice(None) if real is None else real
    left, right = ours[0][where], theirs[where]
    torch.testing.assert_close(left, right, rtol=rtol, atol=atol)
    direction = torch.randn(left.shape, generator=torch.Generator().manual_seed(0), dtype=left.dtype)
    (left * direction).sum().backward()
    (right * direction).sum().backward()
    for pair in pairs:
        pair.compare_gradients(rtol, atol)

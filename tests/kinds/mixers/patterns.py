"""For the tests of attention patterns: mixers with random values, and softmax attention with the whole matrix made.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from slow_forms import assert_equal_forms, perturbed
from torch import Tensor, nn

from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

K, B, D, H = 2, 2, 15, 3
LENGTHS = (1, 13, 33)

Sees = Callable[[int, int, int], bool]
"""(head, i, j): whether token i sees token j."""
Slow = Callable[[int, Tensor, list[bool]], Tensor]
"""(member, x [T, D], which tokens are real) to y [T, D]."""


def mixer_of(spec: MixerSpec, length: int, causal: bool = False, pack: int = K) -> nn.Module:
    """A mixer in float64 whose every parameter is random, so that no term hides behind an initial 0 or 1."""
    mixer: nn.Module = perturbed(spec, LayerContext(pack, D, H, 5, length, causal, init_std=0.5))
    return mixer


def text(length: int, seed: int = 0) -> Tensor:
    return torch.randn(K, B, length, D, generator=stream(seed, "x"), dtype=torch.float64)


def heads_of(mixer: nn.Module, name: str, k: int, x: Tensor) -> Tensor:
    """x [T, D] through the map `name` of member k, by heads: [H, T, d_h]."""
    return (x @ getattr(mixer, name).weight[k]).view(len(x), H, -1).transpose(0, 1)


def by_matrix(mixer: nn.Module, sees: Sees) -> Slow:
    """Softmax attention where token i of head h sees what `sees` says and is real, and always itself."""

    def slow(k: int, x: Tensor, real: list[bool]) -> Tensor:
        q, key, v = (heads_of(mixer, name, k, x) for name in ("query", "key", "value"))
        joined = []
        for h in range(H):
            seen = [[j == i or (sees(h, i, j) and real[j]) for j in range(len(x))] for i in range(len(x))]
            joined.append(matrix(q[h], key[h], seen) @ v[h])
        return torch.cat(joined, 1) @ mixer.output.weight[k]

    return slow


def matrix(q: Tensor, k: Tensor, seen: list[list[bool]]) -> Tensor:
    """softmax(Q·Kᵀ/√d_h) over the visible positions, [T, T]."""
    weights = torch.exp(q @ k.mT / math.sqrt(q.shape[-1])) * torch.tensor(seen)
    return weights / weights.sum(-1, keepdim=True)


def assert_is(mixer: nn.Module, slow: Slow, length: int, padded: bool) -> None:
    """Outputs at real tokens, and the gradients of the input and of every parameter, are those of `slow`."""
    assert_equal_forms(mixer, lambda _, k, row, seen: slow(k, row, seen), length, D, padded)

"""φ-attention written slowly and plainly for one sequence.

y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ) over the real s, causal over s ≤ t. φ takes one vector at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from slow_forms import perturbed
from torch import Tensor, nn

from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

K, B, D, H = 2, 2, 12, 3
LENGTHS = [1, 13, 33]

Phi = Callable[[Tensor, int], Tensor]
"""Features [m] of one vector [d_h] in a head."""


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(0, name), dtype=torch.float64)


def trained(spec: MixerSpec, causal: bool, length: int, pack: int = K) -> nn.Module:
    """A mixer in float64 whose every parameter is away from its initial value."""
    context = LayerContext(pack, D, H, depth=5, context=max(length, 16), causal=causal, init_std=0.4)
    mixer: nn.Module = perturbed(spec, context)
    return mixer


def attend(mixer: nn.Module, member: int, phi: Phi, causal: bool, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence [T, D] to the same, as the docstring of this file says."""
    length = len(x)
    Q, K_, V = (x @ getattr(mixer, name).weight[member] for name in ("query", "key", "value"))
    joined = []
    for h in range(H):
        columns = slice(h * D // H, (h + 1) * D // H)
        q, k = (torch.stack([phi(row[columns], h) for row in rows]) for rows in (Q, K_))
        rows = []
        for t in range(length):
            seen = [s for s in range(length) if real[s] and (s <= t or not causal)]
            weights = k[seen] @ q[t]
            top, bottom = weights @ V[seen, columns], weights.sum()
            rows.append(top / bottom if bottom != 0 else top)
        joined.append(torch.stack(rows))
    return torch.cat(joined, 1) @ mixer.output.weight[member]

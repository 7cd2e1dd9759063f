"""The equations of the papers, written slowly and plainly for one sequence; the tests compare the package with them.

Shapes: T tokens, D width, H heads, d_h = D/H. Matrices multiply rows from the right, y = x·W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Attention:
    """An attention sub-layer of arXiv:2311.01906 eqs 2, 4, 5 and of arXiv:2111.15588, the whole matrix made."""

    heads: int
    causal: bool
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_P: Tensor
    q: Tensor | float = 0.0
    k: Tensor | float = 0.0
    v: Tensor | float = 0.0
    p: Tensor | float = 0.0
    softmax: bool = True
    scale: str = "head_width"
    alpha: Tensor | None = None
    beta: Tensor | None = None
    gamma: Tensor | None = None

    def __call__(self, x: Tensor, real: list[bool] | None = None) -> Tensor:
        """[T, D] to the same; `real` says which tokens are not padding."""
        return self.of(x @ self.W_Q + self.q, x @ self.W_K + self.k, x @ self.W_V + self.v, real)

    def of(self, Q: Tensor, K: Tensor, V: Tensor, real: list[bool] | None = None) -> Tensor:
        """Queries, keys and values [T, D] of all heads to [T, D]."""
        T, D = Q.shape
        real = [True] * T if real is None else real
        d_h = D // self.heads
        joined = []
        for h in range(self.heads):
            columns = slice(h * d_h, (h + 1) * d_h)
            A = self.matrix(Q[:, columns], K[:, columns], real)
            if self.beta is not None:
                A = self.beta[h] * A
            if self.alpha is not None:
                A = A + self.alpha[h] * torch.eye(T, dtype=Q.dtype)
            if self.gamma is not None:
                A = A - self.gamma[h] * self.centre(T, real).to(Q.dtype)
            joined.append(A @ V[:, columns])
        return torch.cat(joined, 1) @ self.W_P + self.p

    def visible(self, i: int, T: int, real: list[bool]) -> list[int]:
        """The tokens that token i may see; with softmax always itself, since a row cannot be empty."""
        return [j for j in range(T) if (j <= i or not self.causal) and (real[j] or (self.softmax and j == i))]

    def matrix(self, Q: Tensor, K: Tensor, real: list[bool]) -> Tensor:
        """A of one head before shaping."""
        T = len(Q)
        rows = []
        for i in range(T):
            seen = self.visible(i, T, real)
            logits = {j: (Q[i] * K[j]).sum() * self.factor(i, Q.shape[1], real) for j in seen}
            total = sum(torch.exp(logit) for logit in logits.values())
            weights = {j: torch.exp(logit) / total if self.softmax else logit for j, logit in logits.items()}
            rows.append(torch.stack([weights.get(j, Q.new_zeros(())) for j in range(T)]))
        return torch.stack(rows)

    def factor(self, i: int, d_h: int, real: list[bool]) -> float:
        """What the logits of row i are multiplied by."""
        counted = sum(real[: i + 1]) if self.causal else sum(real)
        along, across = 1 / math.sqrt(max(1, counted)), 1 / math.sqrt(d_h)
        named = {"none": 1.0, "head_width": across, "length": along, "length_and_head_width": along * across}
        return named[self.scale]

    def centre(self, T: int, real: list[bool]) -> Tensor:
        """C: the value of A when all logits are 0."""
        C = torch.zeros(T, T, dtype=torch.float64)
        for i in range(T):
            seen = self.visible(i, T, real)
            for j in seen:
                C[i, j] = 1 / len(seen)
        return C


def rms_norm(x: Tensor, g: Tensor, eps: float) -> Tensor:
    """x·g / √(mean x² + ε)."""
    return x * g / torch.sqrt((x**2).mean(-1, keepdim=True) + eps)


def rms_norm_outside(x: Tensor, g: Tensor, eps: float) -> Tensor:
    """x·g / (‖x‖/√d + ε), the RMSNorm of the released code of arXiv:2311.01906."""
    return x * g / ((x**2).sum(-1, keepdim=True).sqrt() / math.sqrt(x.shape[-1]) + eps)


def layer_norm(x: Tensor, g: Tensor, b: Tensor, eps: float) -> Tensor:
    """(x - mean x)·g / √(var x + ε) + b."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * g / torch.sqrt((centred**2).mean(-1, keepdim=True) + eps) + b


def mlp(x: Tensor, W_1: Tensor, W_2: Tensor) -> Tensor:
    """ReLU(x·W_1)·W_2."""
    return torch.clamp(x @ W_1, min=0) @ W_2

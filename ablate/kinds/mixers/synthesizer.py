"""Synthesizer: attention whose logits are not products of pairs of tokens.

Y = softmax(S)·V, where for each head
- `random`: S = R, a free L x L matrix, trainable or fixed;
- `factorised`: S = R_1·R_2ᵀ, both L x k;
- `dense`: row i of S is W_2·ReLU(W_1·x_i + b_1) + b_2, with W_1 d_h x D and W_2 L x d_h;
- with `dot_product` (a mixture): S = α_1·S_1 + α_2·Q·Kᵀ/√d_h, where (α_1, α_2) is the softmax of two weights, ½ each at
  the start.

- Synthesizer (arXiv:2005.00743), sections 3.1 and 3.2, table 1; https://arxiv.org/abs/2005.00743
- The code of Long Range Arena is the mixture of random and dot product, but adds the two with no α.
- S is for one length; a shorter text uses its first rows and columns. Causal: logits of later tokens are masked.

Shapes: K pack, B batch, T tokens, L the longest text, D width, H heads, d_h head width, k `rank`.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from ablate.nn.kernels.block_attention import real_tokens
from ablate.nn.kernels.softmax_attention import observed_attention
from ablate.nn.pack import Linear, Packed, join_heads, linear, normal, split_heads, zeros
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class SynthesizerSpec(MixerSpec):
    """Softmax attention with synthetic logits."""

    source = "arXiv:2005.00743 sec. 3"
    complexity = "L²d"
    uses_heads = True
    length_field = "length"

    code_revision = 2

    kind: Literal["synthesizer"] = "synthesizer"
    type: Literal["random", "factorised", "dense"] = "random"
    """How the synthetic logits are computed."""
    dot_product: bool = False
    """Whether they are mixed with those of dot-product attention."""
    trainable: bool = True
    """Whether the logits of `random` are trained; fixed ones are drawn from the trial's seed."""
    rank: int | None = Field(default=None, ge=1)
    """k of `factorised`; unless set, 8, as in the paper."""
    length: int | None = Field(default=None, ge=1)
    """L, the longest text in tokens that the logits are made for; unless set, the model's context."""

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type != "random" and not self.trainable:
            raise refusal(
                ("trainable",),
                self.trainable,
                f"only logits of type `random` can be fixed, and these are `{self.type}`",
                "Set `type: random`, or leave `trainable` out.",
            )
        if self.type != "factorised" and self.rank is not None:
            raise refusal(
                ("rank",),
                self.rank,
                f"only logits of type `factorised` have a rank, and these are `{self.type}`",
                "Set `type: factorised`, or leave `rank` out.",
            )
        return self

    def longest_input(self, context: LayerContext) -> int:
        return self.length or context.context

    def build(self, context: LayerContext) -> Synthesizer:
        return Synthesizer(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """Values, and keys where there are any."""
        return (2 if self.dot_product else 1) * length * context.width

    def cost(self, context: LayerContext, length: int) -> Cost:
        d, h = context.width, context.heads
        pairs = length * length
        return (
            linear_cost(length, d, d) * 2
            + self._logits_cost(context, length)
            + (self._mixture_cost(context, length) if self.dot_product else Cost())
            + Cost(
                multiplications=pairs * d,
                additions=(pairs - length) * (d + h),
                divisions=pairs * h,
                exponentiations=pairs * h,
                activations=length * d + pairs * h,
            )
        )

    def _logits_cost(self, context: LayerContext, length: int) -> Cost:
        d, h, longest = context.width, context.heads, self.longest_input(context)
        if self.type == "random":
            return Cost(parameters=h * longest * longest * self.trainable)
        if self.type == "factorised":
            k = self.rank or 8
            products = Cost(multiplications=length * length * k * h, additions=length * length * (k - 1) * h)
            return products + Cost(parameters=2 * h * longest * k)
        second = Cost(
            parameters=longest * (d + h),
            multiplications=length * length * d,
            additions=length * length * d,
            activations=length * d,
        )
        return linear_cost(length, d, d, bias=True) + second

    def _mixture_cost(self, context: LayerContext, length: int) -> Cost:
        d, h, pairs = context.width, context.heads, length * length
        products = Cost(
            multiplications=pairs * d, additions=pairs * (d - h), divisions=pairs * h, activations=2 * length * d
        )
        weights = Cost(
            parameters=2,
            multiplications=2 * pairs * h,
            additions=pairs * h,
            activations=pairs * h * (2 if self.type == "dense" else 1),  # the others are the same for every text
        )
        return linear_cost(length, d, d) * 2 + products + weights


class Synthesizer(nn.Module):
    """The module of `SynthesizerSpec`."""

    def __init__(self, spec: SynthesizerSpec, context: LayerContext) -> None:
        super().__init__()
        d, pack, std = context.width, context.pack, context.init_std
        self.heads = context.heads
        self.causal = context.causal
        self.value = linear(context, d, d)
        self.output = linear(context, d, d, role="output")
        longest = spec.longest_input(context)
        self.logits: nn.Module
        if spec.type == "random":
            self.logits = RandomLogits(pack, context.heads, longest, std, trainable=spec.trainable)
        elif spec.type == "factorised":
            self.logits = FactorisedLogits(pack, context.heads, longest, spec.rank or 8, std)
        else:
            self.logits = DenseLogits(pack, context.heads, d, longest, std)
        self.mixture = Mixture(pack) if spec.dot_product else None
        if spec.dot_product:
            self.query = linear(context, d, d)
            self.key = linear(context, d, d)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        length = x.shape[-2]
        logits = self.logits(x)  # [K, B or 1, H, T, T]
        if self.mixture is not None:
            q, k = (split_heads(project(x), self.heads) for project in (self.query, self.key))
            logits = self.mixture(logits, q @ k.mT / math.sqrt(q.shape[-1]))
        # A token always sees itself, so that no row is empty.
        eye = torch.eye(length, dtype=torch.bool, device=x.device)
        seen = real_tokens(x, padding).mT | eye
        seen = (seen.tril() if self.causal else seen).view(-1, 1 if padding is None else x.shape[1], 1, length, length)
        logits = logits.masked_fill(~seen, -math.inf)
        a = logits.softmax(-1)
        observed_attention(logits, a)
        y: Tensor = self.output(join_heads(a @ split_heads(self.value(x), self.heads)))
        return y


class RandomLogits(Packed):
    """R, for each head."""

    weight: Tensor

    def __init__(self, pack: int, heads: int, length: int, std: float, *, trainable: bool) -> None:
        super().__init__(pack)
        shape = (heads, length, length)
        self.declare("weight", shape, normal(std), decay=trainable, trainable=trainable, outputs_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [K, 1, H, T, T]; of x [K, B, T, D] only the length T matters."""
        return self.weight[:, None, :, : x.shape[2], : x.shape[2]]


class FactorisedLogits(Packed):
    """R_1·R_2ᵀ, for each head."""

    rows: Tensor
    columns: Tensor

    def __init__(self, pack: int, heads: int, length: int, rank: int, std: float) -> None:
        super().__init__(pack)
        self.declare("rows", (heads, length, rank), normal(std), decay=True, outputs_first=True)
        self.declare("columns", (heads, length, rank), normal(std), decay=True)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [K, 1, H, T, T]; of x [K, B, T, D] only the length T matters."""
        return (self.rows[:, :, : x.shape[2]] @ self.columns[:, :, : x.shape[2]].mT)[:, None]


class DenseLogits(Packed):
    """W_2·ReLU(W_1·x_i + b_1) + b_2, for each head."""

    weight: Tensor
    bias: Tensor

    def __init__(self, pack: int, heads: int, width: int, length: int, std: float) -> None:
        super().__init__(pack)
        self.heads = heads
        self.hidden = Linear(pack, width, width, bias=True, initial=normal(std))
        self.declare("weight", (heads, width // heads, length), normal(std), decay=True)
        self.declare("bias", (heads, length), zeros)

    def forward(self, x: Tensor) -> Tensor:
        """x [K, B, T, D] to logits [K, B, H, T, T]."""
        hidden = F.relu(self.hidden(x)).view(*x.shape[:-1], self.heads, -1).transpose(2, 3)  # [K, B, H, T, d_h]
        length = x.shape[2]
        return hidden @ self.weight[:, None, :, :, :length] + self.bias[:, None, :, None, :length]


class Mixture(Packed):
    """α_1·S_1 + α_2·S_2, the α a softmax of two weights."""

    weight: Tensor

    def __init__(self, pack: int) -> None:
        super().__init__(pack)
        self.declare("weight", (2,), zeros)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """[K, ...] each to [K, ...]."""
        alpha = self.weight.softmax(-1).view(self.pack, 2, *[1] * (second.dim() - 1))
        mixed: Tensor = alpha[:, 0] * first + alpha[:, 1] * second
        return mixed

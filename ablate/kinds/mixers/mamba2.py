"""Mamba-2: a selective state space model, computed in its dual form as linear attention with decay.

For each head: S_t = e^(Δ_t·A)·S_{t-1} + Δ_t·x_t·B_tᵀ; y_t = S_t·C_t + D·x_t, where Δ_t = softplus(u_t·W_Δ + b) and
A = -e^a is one number for each head. x, B and C pass a short causal convolution with bias and SiLU; the heads of a
group share B and C. Output: W_O·RMSNorm(y ∘ SiLU(u·W_z)), the norm over the channels of a group.

- Transformers are SSMs (arXiv:2405.21060), eqs 1 and 16, section 7; https://arxiv.org/abs/2405.21060
- `transformers`, `models/mamba2`

a starts as ln 1, ln 2 ... ln H, D as 1, and softplus(b) as log-uniform in 0.001 to 0.1. As in `transformers`, inputs of
padded tokens are replaced by 0: they write nothing, but the state decays over them. On a GPU where
flash-linear-attention is installed its kernel is used (`ablate.nn.kernels.flash_linear`).

Shapes: K pack, B batch, T tokens, D width, E = expansion·D, H heads of P = E/H channels, N state, G groups.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.nn.kernels import flash_linear, linear_attention
from ablate.nn.pack import (
    Packed,
    RMSNorm,
    ShortConvolution,
    State,
    constant,
    join_heads,
    linear,
    short_convolution_cost,
    split_heads,
    step_bias,
)
from ablate.spec.base import largest_divisor, refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec, check_groups

_USUAL_HEAD = 64


class StateSpaceSpec(MixerSpec, ABC):
    """The sizes of a selective state space model with heads. A subclass adds `kind` and the recurrence."""

    complexity = "LdN"
    bidirectional_form = False

    expansion: int = Field(default=2, ge=1, le=64)
    """E/D, the inner width divided by the model's width."""
    head_width: int | None = Field(default=None, ge=1)
    """P, the head width; unless set, the largest divisor of E up to 64."""
    state: int = Field(default=128, ge=1)
    """N, size of the state."""
    groups: int = Field(default=1, ge=1)
    """G: heads of one group share B and C."""

    def sizes(self, context: LayerContext) -> tuple[int, int, int]:
        """E, H and P."""
        wide = self.expansion * context.width
        width = self.head_width or largest_divisor(wide, _USUAL_HEAD)
        return wide, wide // width, width

    def check(self, context: LayerContext) -> None:
        """Refuse a head width that does not divide the inner width, and groups that do not divide the heads."""
        wide, heads, width = self.sizes(context)
        if wide % width:
            near = largest_divisor(wide, width)
            raise refusal(
                ("head_width",),
                width,
                f"the head width must divide the {wide} inner channels",
                f"Set `head_width: {near}`, or leave it out.",
            )
        check_groups("groups", self.groups, heads, "the groups must divide the {} heads")


class Mamba2Spec(StateSpaceSpec):
    """Mamba-2: a selective state space model in the form of linear attention with decay."""

    source = "arXiv:2405.21060 eqs 1, 16"

    kind: Literal["mamba2"] = "mamba2"
    taps: int = Field(default=4, ge=0, le=64)
    """Kernel size of the short convolution, in tokens; 0: neither it nor its bias, and SiLU stays."""
    eps: float = Field(default=1e-5, gt=0)
    """ε of the norm."""

    def build(self, context: LayerContext) -> Mamba2:
        return Mamba2(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("inputs", "x, B, C = W u"), ("step", "Δ = softplus(W u)")),
            (("convolution", f"SiLU(conv {self.taps})" if self.taps else "SiLU"),),
            (("state", f"S ← e^(ΔA) S + Δ x Bᵀ, N = {self.state}"),),
            (("norm", "RMSNorm((S C + D x) × SiLU(W_z u))"),),
            (("output", "W_O"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """The state, and the last inputs of the convolution."""
        wide, _, _ = self.sizes(context)
        return wide * self.state + max(0, self.taps - 1) * (wide + 2 * self.groups * self.state)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form: each token decays the state, writes it once and reads it once."""
        d = context.width
        wide, heads, width = self.sizes(context)
        keys, rows = self.groups * self.state, length * heads
        maps = linear_cost(length, d, 2 * wide + 2 * keys) + linear_cost(length, d, heads)
        maps = replace(maps, activations=length * d) + linear_cost(length, wide, d)
        elements = length * wide
        core = Cost(
            parameters=3 * heads,  # a, b and D
            multiplications=rows * 3 * width * self.state + 2 * elements + rows,
            additions=rows * (width * self.state + width * (self.state - 1)) + elements + 2 * rows,
            exponentiations=4 * rows,
            activations=heads * linear_attention.kept_activations(length, self.state, width, "trained_head")
            + 2 * elements
            + 4 * rows,
        )
        norm = Cost(
            parameters=wide,
            multiplications=4 * elements,
            additions=2 * elements,
            divisions=2 * elements,
            exponentiations=elements,
            activations=5 * elements + length * self.groups,
        )
        return maps + short_convolution_cost(length, wide + 2 * keys, self.taps, bias=True) + core + norm


class Mamba2(nn.Module):
    """The module of `Mamba2Spec`."""

    def __init__(self, spec: Mamba2Spec, context: LayerContext) -> None:
        super().__init__()
        d, pack = context.width, context.pack
        self.spec = spec
        self.wide, self.heads, _ = spec.sizes(context)
        self.keys = spec.groups * spec.state
        self.gate = linear(context, d, self.wide)
        self.inputs = linear(context, d, self.wide + 2 * self.keys)
        self.step_size = linear(context, d, self.heads)
        self.convolution = ShortConvolution(pack, self.wide + 2 * self.keys, spec.taps, bias=True)
        self.space = StateSpace(pack, self.heads)
        self.norm = RMSNorm(pack, self.wide, spec.eps) if spec.groups == 1 else GroupedRMSNorm(pack, self.wide, spec)
        self.output = linear(context, self.wide, d, role="output")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        if padding is not None:
            x = x * padding.unsqueeze(-1)
        made = self.convolution(self.inputs(x))
        if padding is not None:
            made = made * padding.unsqueeze(-1)  # remove the bias of the convolution at padded tokens
        values, keys, queries, delta, fade = self._heads(x, made)
        return self._project_output(x, flash_linear.fading(queries, keys, values * delta, fade), values)

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: the matrix S, and the last inputs of the convolution."""
        made, before = self.convolution.step(self.inputs(x), state[1] if state else None)
        values, keys, queries, delta, fade = self._heads(x, made)
        y, matrix = linear_attention.recur(queries, keys, values * delta, state[0] if state else None, fade)
        return self._project_output(x, y, values), (matrix, before)

    def _heads(self, x: Tensor, made: Tensor) -> tuple[Tensor, ...]:
        """x [K, B, H, T, P], B and C [K, B, H, T, N], Δ and ΔA [K, B, H, T, 1]."""
        values, keys, queries = torch.split(made, [self.wide, self.keys, self.keys], -1)
        many = self.heads // self.spec.groups
        keys, queries = (split_heads(part, self.spec.groups).repeat_interleave(many, 2) for part in (keys, queries))
        delta, fade = (part.transpose(2, 3).unsqueeze(-1) for part in self.space(self.step_size(x)))
        values = split_heads(values, self.heads)
        return values, keys, queries, delta.to(values.dtype), fade

    def _project_output(self, x: Tensor, y: Tensor, values: Tensor) -> Tensor:
        """Skip, gate, norm and output projection: [K, B, H, T, P] to [K, B, T, D]."""
        y = y + self.space.skip[:, None, :, None, None] * values
        mixed: Tensor = self.output(self.norm(join_heads(y) * F.silu(self.gate(x))))
        return mixed


class StateSpace(Packed):
    """The parameters of each head: a, b and D."""

    rate: Tensor
    bias: Tensor
    skip: Tensor

    def __init__(self, pack: int, heads: int) -> None:
        super().__init__(pack)
        self.declare("rate", (heads,), _logarithms)
        self.declare("bias", (heads,), step_bias(0.001, 0.1))
        self.declare("skip", (heads,), constant(1.0))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """[K, B, T, H] to Δ and the log decay Δ·A, in single precision at least."""
        exact = torch.promote_types(z.dtype, torch.float32)
        delta = F.softplus(z.to(exact) + self.bias[:, None, None])
        return delta, -delta * self.rate.to(exact).exp()[:, None, None]


class GroupedRMSNorm(Packed):
    """RMSNorm over the channels of each group, with a gain for each channel."""

    weight: Tensor

    def __init__(self, pack: int, width: int, spec: Mamba2Spec) -> None:
        super().__init__(pack)
        self.groups, self.eps = spec.groups, spec.eps
        self.declare("weight", (width,), constant(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, E] to the same."""
        parts = torch.unflatten(x, -1, (self.groups, -1))
        return F.rms_norm(parts, parts.shape[-1:], eps=self.eps).flatten(-2) * self.weight[:, None, None]


def _logarithms(values: Tensor, generator: torch.Generator) -> Tensor:
    """ln 1, ln 2 ... ln H."""
    return values.copy_(torch.arange(1, len(values) + 1).log())

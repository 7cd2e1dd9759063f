"""Mamba-3: a state space model with a trapezoidal step, a rotating state, and several inputs and outputs of a state.

S_t = e^(Δ_t·A_t)·(S_{t-1} + (1 - λ_t)·Δ_t·Σ_r x_{t-1,r}·k_{t-1,r}ᵀ) + λ_t·Δ_t·Σ_r x_{t,r}·k_{t,r}ᵀ;
y_{t,r} = S_t·q_{t,r} + D·x_{t,r}, where Δ_t = softplus(u_t·W_Δ + b), A_t = -max(softplus(u_t·W_A), 10⁻⁴) and
λ_t = σ(u_t·W_λ) are numbers for each head. k and q are B = u·W_B and C = u·W_C, each normed, with a bias for each head,
and their first pairs of channels rotated by the angles φ_t = φ_{t-1} + π·tanh(u_t·W_φ)·Δ_t. x_{t,r} = m^x_r ∘ x_t, and
the output is W_O·Σ_r m^o_r ∘ y_{t,r} ∘ SiLU(m^z_r ∘ z_t), z = u·W_z. With one rank there is no m.

- Mamba-3 (arXiv:2603.15569), section 3 and Table 5; https://arxiv.org/abs/2603.15569
- https://github.com/fla-org/flash-linear-attention at bc3b101 (`layers/mamba3.py`, whose A this is) with the references
  of https://github.com/state-spaces/mamba at e9594ce (`tests/ops`), run beside it in double precision with one and with
  several ranks: outputs and gradients differ by 6e-15

The angles π·tanh are those of the code; the paper writes θ_t. With several ranks the kernel of state-spaces rotates the
pairs (i, i + N/2), here (2i, 2i + 1) as with one: the same model with its N channels in another order.

What x_j·k_jᵀ adds to a later token is (λ_j·Δ_j + (1 - λ_{j+1})·Δ_{j+1}) times the decays between them, so that all
tokens but the current one are linear attention with decay over the tokens before. The ranks of a token follow each
other as tokens without decay between them. Inputs of padded tokens are replaced by 0, as in Mamba-2.

Biases start as 1, D as 1, m^x and m^o as 1/R, m^z as 1, and softplus(b) as log-uniform in 0.001 to 0.1. On a GPU where
flash-linear-attention is installed its kernel is used (`ablate.nn.kernels.flash_linear`).

Shapes: K pack, B batch, T tokens, D width, E = expansion·D, H heads of P = E/H channels, N state, G groups, R ranks,
A angles.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from ablate.kinds.mixers.mamba2 import StateSpaceSpec
from ablate.nn.kernels import flash_linear
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
    uniform,
    zeros,
)
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import Initial, LayerContext

_LEAST_RATE = 1e-4
"""The least -A."""
_STARTS: dict[str, Initial] = {
    "one": constant(1.0),
    "zero": zeros,
    "uniform": lambda values, generator: values.uniform_(0.0, 1.0, generator=generator),
    "symmetric": uniform(1.0),
}


class Mamba3Spec(StateSpaceSpec):
    """Mamba-3: a selective state space model with a trapezoidal step and a rotating state."""

    source = "arXiv:2603.15569 section 3"

    kind: Literal["mamba3"] = "mamba3"
    ranks: int = Field(default=1, ge=1, le=16)
    """R, inputs and outputs of a state for each token; 1: SISO, 4: the MIMO form of the paper."""
    trapezoid: bool = True
    """Whether a step weights the inputs of two tokens; otherwise λ = 1, the step of Mamba-2."""
    bias: Literal["trained", "fixed", "none"] = "trained"
    """Whether B and C have a bias for each head, and whether it is trained."""
    bias_start: Literal["one", "zero", "uniform", "symmetric"] = "one"
    """Initial values of the biases: 1, 0, uniform in 0 to 1, or uniform in -1 to 1."""
    rotary_fraction: float = Field(default=0.5, ge=0, le=1)
    """Share of the N channels of B and C that are rotated; 0: none, and the state is real."""
    taps: int = Field(default=0, ge=0, le=64)
    """Kernel size of a short convolution with bias and SiLU on x, B and C, as in Mamba-2; 0: none, and no SiLU."""
    eps: float = Field(default=1e-5, gt=0)
    """ε of the norms of B and C."""

    @model_validator(mode="after")
    def _has_the_bias_of_its_start(self) -> Self:
        if self.bias == "none" and self.bias_start != "one":
            raise refusal(
                ("bias_start",),
                self.bias_start,
                "B and C have no bias",
                "Leave it out.",
            )
        return self

    def angles(self) -> int:
        """A, pairs of channels that are rotated."""
        return int(self.rotary_fraction * self.state) // 2

    def build(self, context: LayerContext) -> Mamba3:
        return Mamba3(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        step = "λΔ x Bᵀ + (1 - λ)Δ e^(ΔA) x' B'ᵀ" if self.trapezoid else "Δ x Bᵀ"
        shape = f"N = {self.state}" + (f", {self.ranks} ranks" if self.ranks > 1 else "")
        keys = "RMSNorm(B), RMSNorm(C)" + ("" if self.bias == "none" else " + bias")
        return (
            (("inputs", "x, B, C = W u"), ("step", "Δ, A" + (", λ" if self.trapezoid else "") + " of W u")),
            *(((("convolution", f"SiLU(conv {self.taps})"),),) if self.taps else ()),
            (("norm", keys),),
            *(((("rotation", f"{self.angles()} angles"),),) if self.angles() else ()),
            (("state", f"S ← e^(ΔA) S + {step}, {shape}"),),
            (("gate", "(S C + D x) × SiLU(W_z u)"),),
            (("output", "W_O"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """The state, the angles, the last x and B of each rank (`trapezoid`), the last inputs of the convolution."""
        wide, heads, _ = self.sizes(context)
        keys = self.groups * self.ranks * self.state
        last = self.ranks * (wide + heads * self.state) * self.trapezoid
        return wide * self.state + heads * self.angles() + last + max(0, self.taps - 1) * (wide + 2 * keys)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form: each token decays the state, adds R inputs, two with `trapezoid`, and reads R outputs."""
        d, ranks, state = context.width, self.ranks, self.state
        wide, heads, width = self.sizes(context)
        keys, numbers, angles = self.groups * ranks * state, 2 + self.trapezoid, self.angles()
        maps = linear_cost(length, d, 2 * wide + 2 * keys + numbers * heads + angles)
        maps = replace(maps, activations=length * d) + linear_cost(length, wide, d)
        rows, written, several = length * heads, length * 2 * keys, ranks > 1
        inner = rows * ranks  # vectors of N or P channels, for each head and rank
        norms = Cost(
            parameters=2 * state,
            multiplications=2 * written,
            additions=written,
            divisions=written,
            activations=written + written // state,
        )
        rotations = Cost(
            multiplications=8 * inner * angles + 2 * rows * angles,
            additions=4 * inner * angles + rows * angles,
            exponentiations=2 * rows * angles + length * angles,
            activations=2 * inner * state + 2 * rows * angles,
        )
        terms = 1 + self.trapezoid
        core = Cost(
            parameters=2 * heads + 2 * heads * ranks * state * (self.bias == "trained") + 3 * wide * ranks * several,
            multiplications=rows * width * state
            + inner * width * state * (terms + 1)
            + inner * width * (terms + 2 + 3 * several)
            + rows * (1 + 2 * self.trapezoid),
            additions=inner * width * state * terms
            + inner * width * (state - 1)
            + inner * width
            + 2 * inner * state * (self.bias != "none")
            + (inner - rows) * width
            + rows * (2 + self.trapezoid),
            divisions=rows * self.trapezoid + inner * width,
            exponentiations=rows * (5 + self.trapezoid) + inner * width,
            activations=inner * (3 * state + 7 * width) + 8 * rows,
        )
        convolved = short_convolution_cost(length, wide + 2 * keys, self.taps, bias=True) if self.taps else Cost()
        return maps + norms + (rotations if angles else Cost()) + core + convolved


class Mamba3(Packed):
    """The module of `Mamba3Spec`."""

    step_bias: Tensor
    skip: Tensor
    key_bias: Tensor
    query_bias: Tensor
    input_gain: Tensor
    output_gain: Tensor
    gate_gain: Tensor

    def __init__(self, spec: Mamba3Spec, context: LayerContext) -> None:
        super().__init__(context.pack)
        d, pack = context.width, context.pack
        self.spec = spec
        self.wide, self.heads, width = spec.sizes(context)
        self.keys, self.angles = spec.groups * spec.ranks * spec.state, spec.angles()
        self.gate = linear(context, d, self.wide)
        self.inputs = linear(context, d, self.wide + 2 * self.keys)
        self.numbers = linear(context, d, self.heads * (2 + spec.trapezoid))
        self.turn = linear(context, d, self.angles) if self.angles else None
        self.convolution = (
            ShortConvolution(pack, self.wide + 2 * self.keys, spec.taps, bias=True) if spec.taps else None
        )
        self.key_norm = RMSNorm(pack, spec.state, spec.eps)
        self.query_norm = RMSNorm(pack, spec.state, spec.eps)
        self.declare("step_bias", (self.heads,), step_bias(0.001, 0.1))
        self.declare("skip", (self.heads,), constant(1.0))
        for name in ("key_bias", "query_bias") if spec.bias != "none" else ():
            shape = (self.heads, spec.ranks, spec.state)
            self.declare(name, shape, _STARTS[spec.bias_start], trainable=spec.bias == "trained")
        if spec.ranks > 1:
            self.declare("input_gain", (self.heads, spec.ranks, width), constant(1 / spec.ranks))
            self.declare("output_gain", (self.heads, spec.ranks, width), constant(1 / spec.ranks))
            self.declare("gate_gain", (self.heads, spec.ranks, width), constant(1.0))
        self.output = linear(context, self.wide, d, role="output")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        if padding is not None:
            x = x * padding.unsqueeze(-1)
        made = self.inputs(x)
        if self.convolution is not None:
            made = self.convolution(made)
            made = made if padding is None else made * padding.unsqueeze(-1)  # the bias of the convolution
        delta, rate, share = self._numbers(x)
        values, keys, queries = self._vectors(made, self._rotation(x, delta).cumsum(3))
        log_decay, own = -rate * delta, share * delta
        # The input of the token before: the λΔ of its own step and the (1 - λ)Δ of this one, decayed by this one.
        strength = log_decay.exp() * (_before(own) + (1 - share) * delta)
        keys_before = _before(keys)
        values_before = _before(values) * strength.unsqueeze(-1).to(values.dtype)
        mixed = self._over_tokens(queries, keys_before, values_before, log_decay)
        mixed = mixed + (own.unsqueeze(-1) * (queries @ keys.mT)).to(values.dtype) @ values
        if self.spec.ranks > 1:  # the ranks that the linear attention has not written yet
            mixed = mixed + (queries @ keys_before.mT).triu(1) @ values_before
        return self._project_output(x, mixed, values)

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: S, the angles, with `trapezoid` the last keys and inputs, and the inputs of the convolution."""
        made, kept = self.inputs(x), tuple(state)
        before: State = ()
        if self.convolution is not None:
            made, last = self.convolution.step(made, kept[-1] if kept else None)
            before, kept = (last,), kept[:-1]
        delta, rate, share = self._numbers(x)
        angles = self._rotation(x, delta) + (kept[1] if kept else 0)
        values, keys, queries = self._vectors(made, angles)
        matrix = (share * delta).unsqueeze(-1) * (keys.mT @ values)
        if kept:
            fade = (-rate * delta).exp().unsqueeze(-1)
            matrix = matrix + fade * kept[0]
            if self.spec.trapezoid:
                matrix = matrix + fade * ((1 - share) * delta).unsqueeze(-1) * (kept[2].mT @ kept[3])
        y = self._project_output(x, (queries @ matrix.to(queries.dtype)), values)
        trapezoid = (keys, values) if self.spec.trapezoid else ()
        return y, (matrix, angles, *trapezoid, *before)

    def _numbers(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Δ, -A and λ of each head, [K, B, H, T, 1], in single precision at least."""
        made = self.numbers(x)
        exact = torch.promote_types(made.dtype, torch.float32)
        parts = [part.transpose(2, 3).unsqueeze(-1) for part in torch.split(made.to(exact), self.heads, -1)]
        delta = F.softplus(parts[0] + self.step_bias[:, None, :, None, None])
        share = parts[2].sigmoid() if self.spec.trapezoid else torch.ones_like(delta)
        return delta, F.softplus(parts[1]).clamp(min=_LEAST_RATE), share

    def _rotation(self, x: Tensor, delta: Tensor) -> Tensor:
        """The angles by which each token rotates the state, [K, B, H, T, A]."""
        if self.turn is None:
            return delta[..., :0]
        turn: Tensor = self.turn(x).to(delta.dtype)
        return math.pi * turn.tanh().unsqueeze(2) * delta

    def _vectors(self, made: Tensor, angles: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [K, B, H, T, R, P], and keys and queries [K, B, H, T, R, N] at their angles."""
        spec = self.spec
        values, keys, queries = torch.split(made, [self.wide, self.keys, self.keys], -1)
        shape = (spec.ranks, spec.groups, spec.state)
        keys, queries = (
            norm(part.view(*part.shape[:3], *shape)).movedim(4, 2).repeat_interleave(self.heads // spec.groups, 2)
            for norm, part in ((self.key_norm, keys), (self.query_norm, queries))
        )
        if spec.bias != "none":
            keys = keys + self.key_bias[:, None, :, None].to(keys.dtype)
            queries = queries + self.query_bias[:, None, :, None].to(queries.dtype)
        inputs = split_heads(values, self.heads).unsqueeze(-2)
        if spec.ranks > 1:
            inputs = inputs * self.input_gain[:, None, :, None].to(inputs.dtype)
        return inputs, self._rotated(keys, angles), self._rotated(queries, angles)

    def _rotated(self, x: Tensor, angles: Tensor) -> Tensor:
        """Pairs (2i, 2i + 1) of the first channels of [K, B, H, T, R, N], rotated."""
        if not self.angles:
            return x
        pairs, rest = x[..., : 2 * self.angles], x[..., 2 * self.angles :]
        cos, sin = (part.unsqueeze(-2).to(x.dtype) for part in (angles.cos(), angles.sin()))
        even, odd = pairs[..., ::2], pairs[..., 1::2]
        both = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return torch.cat([both.flatten(-2), rest], -1)

    def _over_tokens(self, queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor) -> Tensor:
        """Linear attention with decay over tokens and ranks: rank r of a token sees the ranks up to r."""
        fades = F.pad(log_decay.unsqueeze(-2), (0, 0, 0, self.spec.ranks - 1))
        q, k, v, g = (part.flatten(3, 4) for part in (queries, keys, values, fades))
        mixed = flash_linear.fading(q, k, v, g)
        return mixed.reshape(values.shape)

    def _project_output(self, x: Tensor, y: Tensor, values: Tensor) -> Tensor:
        """Skip, gate, the sum over ranks and the output projection: [K, B, H, T, R, P] to [K, B, T, D]."""
        y = y + self.skip[:, None, :, None, None, None].to(values.dtype) * values
        gate = split_heads(self.gate(x), self.heads).unsqueeze(-2)
        if self.spec.ranks > 1:
            gate = gate * self.gate_gain[:, None, :, None].to(gate.dtype)
            y = y * self.output_gain[:, None, :, None].to(y.dtype)
        mixed: Tensor = self.output(join_heads((y * F.silu(gate)).sum(-2)))
        return mixed


def _before(x: Tensor) -> Tensor:
    """[K, B, H, T, ...] of the token before; 0 at the first."""
    return F.pad(x, (0, 0) * (x.dim() - 4) + (1, 0))[:, :, :, :-1]

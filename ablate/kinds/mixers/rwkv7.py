"""RWKV-7 time mixing: a state with a decay for each channel, whose entries each token removes and replaces.

With x_{t-1} the previous token, x_* = x_t + (x_{t-1} - x_t) ∘ μ_* for each of r, w, k, v, a and g:
r = x_r·W_r; v = x_v·W_v; k = x_k·W_k; g_t = -e^(-1/2)·σ(tanh(x_w·A_w)·B_w + b_w); a = σ(x_a·A_a·B_a + b_a);
κ = unit(k ∘ ξ) for each head; k ← k ∘ (1 + (a - 1) ∘ α); v ← v + (v_first - v) ∘ σ(x_v·A_v·B_v + b_v) with v_first the
values of the first layer; S_t = diag(e^(g_t))·S_{t-1} - (κ ∘ a)·(κᵀ·S_{t-1}) + k·vᵀ; o = Sᵀ·r;
y = W_O·((GroupNorm(o) + Σ(r ∘ k ∘ ρ)·v) ∘ (σ(x_g·A_g)·B_g)), norm and sum over each head.

- RWKV-7 "Goose" (arXiv:2503.14456), eqs 3 to 18; https://arxiv.org/abs/2503.14456
- Ranks and initial values as in flash-linear-attention (`fla/layers/rwkv7.py`), which follows the authors' code

As there, inputs and values of padded tokens are replaced by 0. The authors' channel mixing is the kind
`channel_mixing`. On a GPU where flash-linear-attention is installed its kernel is used
(`ablate.nn.kernels.flash_linear`).

Shapes: K pack, B batch, T tokens, D width, H heads, d = D/H.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.mixers.gated_deltanet import delta_cost
from ablate.nn.kernels import delta_rule, flash_linear
from ablate.nn.pack import Linear, Packed, State, constant, join_heads, linear, orthogonal, split_heads, zeros
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import Initial, LayerContext, SharedTensor
from ablate.spec.sublayers import MixerSpec

_FASTEST = math.exp(-0.5)
"""Largest decay rate of a token: at least e^(-0.607) = 0.545 of a channel remains."""
_NAMES = ("r", "w", "k", "v", "a", "g")
_POWERS = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}
"""c of the initial μ, which is 1 - (n/D)^(c·(1 - l/L)) in channel n of layer l."""


class RWKV7Spec(MixerSpec):
    """RWKV-7 time mixing: a state with decay, whose entries each token removes and replaces."""

    source = "arXiv:2503.14456 eqs 3-18"
    complexity = "Ld²/H"
    bidirectional_form = False
    uses_heads = True

    kind: Literal["rwkv7"] = "rwkv7"
    from_layer: int = Field(default=0, ge=0)
    """The layer that publishes v_first; every later layer of this kind reads it."""
    decay_rank: int | None = Field(default=None, ge=1)
    """Width between A_w and B_w, and between A_a and B_a; unless set, the multiple of 32 near
    2.5·√D·d/64."""
    value_rank: int | None = Field(default=None, ge=1)
    """Width between A_v and B_v; unless set, the multiple of 32 near 1.7·√D·d/64."""
    gate_rank: int | None = Field(default=None, ge=1)
    """Width between A_g and B_g; unless set, the multiple of 32 near 5·√D."""

    def ranks(self, context: LayerContext) -> tuple[int, int, int]:
        """The ranks of decay and removal, of values, and of the gate."""
        root, factor = math.sqrt(context.width), context.head_width / 64
        return (
            self.decay_rank or _rounded(2.5 * root * factor),
            self.value_rank or _rounded(1.7 * root * factor),
            self.gate_rank or _rounded(5 * root),
        )

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        return () if context.layer == self.from_layer else (SharedTensor("values", self.from_layer, (context.width,)),)

    def publishes(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        return (context.shared("values", context.width),) if context.layer == self.from_layer else ()

    def check(self, context: LayerContext) -> None:
        if context.head_width < 2:
            raise refusal(
                (),
                context.heads,
                "the GroupNorm of a head with one channel is always 0",
                "Set fewer `model.heads`.",
            )

    def build(self, context: LayerContext) -> RWKV7:
        return RWKV7(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("shift", "x + (x₋₁ - x) μ"),),
            (("query", "W_r"), ("key", "W_k"), ("value", f"W_v, V of layer {self.from_layer}")),
            (("state", "S ← (e^g - (κa) κᵀ) S + k vᵀ"),),
            (("norm", "(GroupNorm + r·k v) × gate"),),
            (("output", "W_O"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """The state, and the last input."""
        return context.width * (context.head_width + 1)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form."""
        d, h, d_h = context.width, context.heads, context.head_width
        decay, value, gate = self.ranks(context)
        elements = length * d
        reads = bool(self.reads(context))
        low = linear_cost(length, d, decay) * 2 + linear_cost(length, decay, d, bias=True) * 2
        low += linear_cost(length, d, gate) + linear_cost(length, gate, d)
        if reads:
            low += linear_cost(length, d, value) + linear_cost(length, value, d, bias=True)
        maps = linear_cost(length, d, d) * 4 + low
        # Six mixtures of two tokens, two sigmoids of D (three where values are read), and one of the gate's rank.
        sigmoids = (2 + reads) * elements + length * (gate + decay)
        around = Cost(
            parameters=6 * d + 3 * d + 2 * d,  # μ; ξ, α and ρ; the norm
            multiplications=6 * elements + 14 * elements + reads * elements,
            additions=7 * elements + 12 * elements + 2 * reads * elements + sigmoids,
            divisions=sigmoids + 2 * elements,
            exponentiations=sigmoids,
            activations=elements * (16 + 3 * reads) + length * 2 * (gate + decay),
        )
        state = delta_cost(length, h, d_h, d_h, by_channel=True, with_values=True)
        written = Cost(multiplications=elements * d_h, additions=elements * d_h)
        return maps + around + state + written


def _rounded(rank: float) -> int:
    return max(32, round(rank / 32) * 32)


class RWKV7(nn.Module):
    """The module of `RWKV7Spec`."""

    def __init__(self, spec: RWKV7Spec, context: LayerContext) -> None:
        super().__init__()
        d, self.heads = context.width, context.heads
        decay, value, gate = spec.ranks(context)
        self.publishes = bool(spec.publishes(context))
        self.shift = TokenShift(context)
        self.receptance = linear(context, d, d)
        self.key = linear(context, d, d)
        self.value = linear(context, d, d)
        self.output = Linear(context.pack, d, d, initial=zeros)
        self.decay = LowRank(context, decay, torch.tanh, _decay_bias(context))
        self.removal = LowRank(context, decay, None, _removal_bias(context))
        self.value_share = LowRank(context, value, None, _value_bias) if spec.reads(context) else None
        self.gate = LowRank(context, gate, torch.sigmoid, None)
        self.channels = Channels(context)

    def forward(self, x: Tensor, padding: Tensor | None = None, *, shared: tuple[Tensor, ...] = ()) -> Any:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        if padding is not None:
            x = x * padding.unsqueeze(-1)
        before = F.pad(x, (0, 0, 1, 0))[:, :, :-1]
        r, k, v, read, removal, fade, gate, first = self._heads(x, before, shared)
        if padding is not None:
            v = v * padding[:, :, None, :, None]
        o = flash_linear.rwkv7(r, k, v, read, removal, fade)
        y = self._project_output(o, r, k, v, gate)
        return (y, (first,)) if self.publishes else y

    def step(self, x: Tensor, position: int, state: State, *, shared: tuple[Tensor, ...] = ()) -> Any:
        """The state: S, and the last input."""
        before = state[1] if state else torch.zeros_like(x)
        r, k, v, read, removal, fade, gate, first = self._heads(x, before, shared)
        matrix = state[0] if state else r.new_zeros(*r.shape[:3], r.shape[-1], v.shape[-1])
        written = delta_rule.Written(read, read * removal, key=k, value=v, decayed_first=False)
        o, matrix = delta_rule.recur(r, written, fade, matrix)
        y, kept = self._project_output(o, r, k, v, gate), (matrix, x)
        return (y, kept, (first,)) if self.publishes else (y, kept)

    def _heads(self, x: Tensor, before: Tensor, shared: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """r, k, v, κ, a and g, [K, B, H, T, d]; the gate and the values as published, [K, B, T, D]."""
        mixed = self.shift(x, before)
        k, v = self.key(mixed["k"]), self.value(mixed["v"])
        first = v
        if self.value_share is not None:
            v = v + (shared[0] - v) * torch.sigmoid(self.value_share(mixed["v"]))
        removal = torch.sigmoid(self.removal(mixed["a"]))
        exact = torch.promote_types(x.dtype, torch.float32)
        fade = -_FASTEST * torch.sigmoid(self.decay(mixed["w"]).to(exact))
        read = F.normalize(split_heads(self.channels.along("read", k), self.heads), dim=-1)
        k = k + self.channels.along("replaced", k * (removal - 1))
        made = (split_heads(part, self.heads) for part in (self.receptance(mixed["r"]), k, v, removal, fade))
        r, k, v, removal, fade = made
        return r, k, v, read, removal, fade, self.gate(mixed["g"]), first

    def _project_output(self, o: Tensor, r: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
        """Norm, the term of the token itself, gate and output projection: [K, B, H, T, d] to [K, B, T, D]."""
        normed = self.channels.normed(o)
        own = self.channels.along("own", join_heads(r * k))
        own = split_heads(own, self.heads).sum(-1, keepdim=True) * v
        mixed: Tensor = self.output((normed + join_heads(own)) * gate)
        return mixed


class TokenShift(Packed):
    """x + (x₋₁ - x) ∘ μ for each of r, w, k, v, a, g."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context.pack)
        for name in _NAMES:
            power = _POWERS[name] * (1 - context.layer / context.depth)
            self.declare(f"share_{name}", (context.width,), shares(power))

    def forward(self, x: Tensor, before: Tensor) -> dict[str, Tensor]:
        """Tokens and the previous ones, [K, B, T, D], to the mixtures by name."""
        change = before - x
        return {name: x + change * getattr(self, f"share_{name}")[:, None, None] for name in _NAMES}


class LowRank(nn.Module):
    """act(x·A)·B + b; A starts at 0 and B orthogonal, times 0.1.

    Args:
        rank: Width between A and B.
        bias: Initial value of b; None for no b.
    """

    def __init__(
        self,
        context: LayerContext,
        rank: int,
        activation: Callable[[Tensor], Tensor] | None,
        bias: Initial | None,
    ) -> None:
        super().__init__()
        self.down = Linear(context.pack, context.width, rank, initial=zeros)
        self.activation = activation
        biased = bias is not None
        self.up = Linear(context.pack, rank, context.width, bias=biased, initial=_tenth, initial_bias=bias or zeros)

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to the same."""
        low = self.down(x)
        y: Tensor = self.up(low if self.activation is None else self.activation(low))
        return y


class Channels(Packed):
    """Gains for each channel: ξ (`read`), α (`replaced`) and ρ (`own`), and those of GroupNorm."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__(context.pack)
        d = context.width
        self.eps = context.head_width * 1e-5
        self.declare("read", (d,), _centred(lambda line, _: 0.71 - 0.1 * line, context))
        self.declare("replaced", (d,), constant(1.02))
        self.declare("own", (d,), constant(-0.04))
        self.declare("weight", (d,), constant(((context.layer + 1) / context.depth) ** 0.7))
        self.declare("bias", (d,), zeros)

    def along(self, name: str, x: Tensor) -> Tensor:
        """[K, B, T, D] times the gains of this name."""
        gain: Tensor = getattr(self, name)
        return x * gain[:, None, None]

    def normed(self, o: Tensor) -> Tensor:
        """[K, B, H, T, d] with each head normalised, to [K, B, T, D]."""
        y = join_heads(F.layer_norm(o, o.shape[-1:], eps=self.eps))
        bias: Tensor = self.bias  # type: ignore[assignment]
        return self.along("weight", y) + bias[:, None, None]


def _tenth(values: Tensor, generator: torch.Generator) -> Tensor:
    return orthogonal(values, generator).mul_(0.1)


def shares(power: float) -> Initial:
    """1 - (n/D)^power in channel n of D."""
    return lambda values, generator: values.copy_(1 - (torch.arange(len(values)) / len(values)) ** power)


def _centred(rule: Callable[[Tensor, Tensor], Tensor], context: LayerContext) -> Initial:
    """rule(n/(D - 1) - 1/2, z·|z|) in channel n of D, where z runs from -1 to 1 in each head."""
    d_h = context.head_width

    def fill(values: Tensor, generator: torch.Generator) -> Tensor:
        n = torch.arange(len(values))
        z = ((n % d_h) - (d_h - 1) / 2) / ((d_h - 1) / 2)
        return values.copy_(rule(n / (len(values) - 1) - 0.5, z * z.abs()))

    return fill


def _decay_bias(context: LayerContext) -> Initial:
    part = context.layer / max(1, context.depth - 1)
    power = 1 + part**0.3
    return _centred(lambda line, zigzag: -6 + 6 * (line + 0.5) ** power + 0.5 + 2.5 * zigzag, context)


def _removal_bias(context: LayerContext) -> Initial:
    return _centred(lambda line, zigzag: -0.19 + 0.3 * zigzag + 0.4 * line, context)


def _value_bias(values: Tensor, generator: torch.Generator) -> Tensor:
    return values.copy_(0.73 - 0.4 * (torch.arange(len(values)) / (len(values) - 1) - 0.5))

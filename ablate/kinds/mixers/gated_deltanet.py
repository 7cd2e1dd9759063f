"""Gated DeltaNet: a state with a gated decay for each head, corrected by the delta rule.

For each head: S ← e^(g_t)·S; S ← S + k_t·(β_t·(v_t - Sᵀ·k_t))ᵀ; o_t = Sᵀ·q_t/√d_k, where β_t = σ(x_t·W_b) and
g_t = -e^A·softplus(x_t·W_a + b_a). q, k and v pass a short causal convolution with SiLU; q and k have unit length.
y = W_O·(RMSNorm(o) ∘ SiLU(x·W_z)), the norm over one head. With `writes` n > 1 each token has n keys, values and β,
which correct the state one after the other; it decays once, and is read after the last (gated DeltaProduct, which has
n = 2 and, with `negative_eigenvalues`, β_t = 2σ).

- Gated Delta Networks (arXiv:2412.06464), eq. 10 and section 3.3; https://arxiv.org/abs/2412.06464
- DeltaProduct (arXiv:2502.10297), section 3; https://arxiv.org/abs/2502.10297
- https://github.com/fla-org/flash-linear-attention at bc3b101 (`gated_deltanet.py` and `gated_deltaproduct.py` of
  `layers` with the references of `ops/*/naive.py`), run beside it in float64: outputs and gradients differ by 2e-15
- Qwen3-Next (`transformers`, `models/qwen3_next`): more heads of values than of queries and keys

A starts as ln U(0.01, 16), and softplus(b_a) as log-uniform in 0.001 to 0.1, as in flash-linear-attention. (Qwen3-Next
starts b_a as 1: most heads then forget a token within one step, and short training does not change that.) As in
Qwen3-Next, inputs of padded tokens are replaced by 0: they write nothing, but the state decays over them. The state is
computed in single precision at least. On a GPU where flash-linear-attention is installed its kernel is used
(`ablate.nn.kernels.flash_linear`).

Shapes: K pack, B batch, T tokens, D width, H heads of values, G heads of queries and keys, d_k and d_v their widths.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.nn.kernels import delta_rule, flash_linear
from ablate.nn.pack import (
    ConvolutionSlot,
    Packed,
    RMSNorm,
    ShortConvolution,
    State,
    convolved_together,
    join_heads,
    linear,
    log_uniform,
    short_convolution_cost,
    split_heads,
    step_bias,
)
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec, check_groups

_UNIT_EPS = 1e-6
"""ε of the norm that gives queries and keys unit length, inside the root."""


class GatedDeltaNetSpec(MixerSpec):
    """Gated DeltaNet: the delta rule on a state with a decay that each token sets for each head."""

    source = "arXiv:2412.06464 eq. 10"
    complexity = "Ld²/H"
    bidirectional_form = False

    code_revision = 2

    kind: Literal["gated_deltanet"] = "gated_deltanet"
    heads: int | None = Field(default=None, ge=1)
    """H, heads of values; unless set, the model's."""
    key_heads: int | None = Field(default=None, ge=1)
    """G, heads of queries and keys, each for a group of heads of values; unless set, H."""
    key_width: int | None = Field(default=None, ge=1)
    """d_k; unless set, the model's head width."""
    value_width: int | None = Field(default=None, ge=1)
    """d_v; unless set, d_k."""
    taps: int = Field(default=4, ge=0, le=64)
    """Kernel size of the short convolution, in tokens; 0: none, and SiLU stays."""
    writes: int = Field(default=1, ge=1, le=16)
    """n, keys and values of a token, each of which corrects the state (DeltaProduct, arXiv:2502.10297)."""
    negative_eigenvalues: bool = False
    """Whether β is 2σ, so that the state transition can have negative eigenvalues (arXiv:2411.12537)."""
    eps: float = Field(default=1e-6, gt=0)
    """ε of the norm of each head."""

    def sizes(self, context: LayerContext) -> tuple[int, int, int, int]:
        """H, G, d_k and d_v."""
        heads = self.heads or context.heads
        key_width = self.key_width or max(1, context.head_width)
        return heads, self.key_heads or heads, key_width, self.value_width or key_width

    def convolved_width(self, context: LayerContext) -> int:
        heads, groups, key, value = self.sizes(context)
        return (1 + self.writes) * groups * key + self.writes * heads * value

    def check(self, context: LayerContext) -> None:
        heads, groups, _, _ = self.sizes(context)
        check_groups("key_heads", groups, heads, "the heads of queries and keys must divide the {} heads of values")

    def build(self, context: LayerContext) -> GatedDeltaNet:
        return GatedDeltaNet(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("query", "W_Q"), ("key", "W_K"), ("value", "W_V")),
            (("convolution", f"SiLU(conv {self.taps})" if self.taps else "SiLU"),),
            (("state", "S ← e^g S + k β(v - Sᵀk)ᵀ"),),
            (("norm", "RMSNorm by head × SiLU(W_z x)"),),
            (("output", "W_O"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """The state, and the last inputs of the convolutions."""
        heads, _, key, value = self.sizes(context)
        return heads * key * value + max(0, self.taps - 1) * self.convolved_width(context)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form: each token decays the state, reads it twice and writes it once."""
        d, n = context.width, self.writes
        heads, groups, key, value = self.sizes(context)
        keys, values = groups * key, heads * value
        maps = linear_cost(length, d, keys) * (1 + n) + linear_cost(length, d, values) * (1 + n)
        maps += linear_cost(length, d, heads) * (1 + n)
        maps = replace(maps, activations=length * d) + linear_cost(length, values, d)
        convolved = short_convolution_cost(length, self.convolved_width(context), self.taps)
        rows, units = length * heads, length * (1 + n) * keys
        once = Cost(  # further writes neither decay the state nor read it
            multiplications=-2 * (n - 1) * rows * key * value,
            additions=-(n - 1) * rows * (key - 1) * value,
            exponentiations=-(n - 1) * rows,
        )
        return (
            maps
            + convolved
            + Cost(multiplications=2 * units, additions=units, divisions=units, activations=2 * units)  # unit length
            + gates_cost(length, heads, n * heads)
            + delta_cost(n * length, heads, key, value)
            + once
            + gated_norm_cost(rows, value)
        )


def gates_cost(length: int, decays: int, strengths: int) -> Cost:
    """Cost of log decays -e^A·softplus(·) and of strengths σ(·) of one sequence; A and a bias are parameters."""
    made = length * (decays + strengths)
    return Cost(
        multiplications=length * decays,
        additions=made + length * decays,
        divisions=length * strengths,
        exponentiations=made + length * decays,
        parameters=2 * decays,
        activations=2 * length * decays + length * strengths,
    )


def delta_cost(
    length: int, heads: int, key: int, value: int, *, by_channel: bool = False, with_values: bool = False
) -> Cost:
    """Cost of the delta rule in recurrent form, for one sequence; arguments as of `delta_rule.kept_activations`."""
    rows = length * heads
    return Cost(
        multiplications=rows * (4 * key * value + key + value),
        additions=rows * (key * value + 2 * (key - 1) * value + value),
        exponentiations=rows * (key if by_channel else 1),
        activations=heads
        * delta_rule.kept_activations(length, key, value, by_channel=by_channel, with_values=with_values),
    )


def gated_norm_cost(rows: int, width: int, gate: Literal["sigmoid", "silu", "none"] = "silu") -> Cost:
    """Cost of the norm of `rows` vectors with one gain, and of its product with a gate."""
    elements = rows * width
    norm = Cost(
        parameters=width,
        multiplications=2 * elements + rows,
        additions=elements,
        divisions=elements,
        activations=2 * elements + rows,
    )
    product = Cost(
        multiplications=2 * elements,
        additions=elements,
        divisions=elements,
        exponentiations=elements,
        activations=3 * elements,
    )
    return norm if gate == "none" else norm + product


class DeltaNet(nn.Module, ABC):
    """Base of mixers with the delta rule and short convolutions of queries, keys and values.

    Subclasses add decay and gate.

    Args:
        heads: H, heads of values.
        keys: Width of all queries, and of all keys.
        taps: Kernel size of the short convolutions, in tokens.
        writes: n, keys and values of a token.
    """

    def __init__(self, context: LayerContext, heads: int, keys: int, values: int, taps: int, writes: int = 1) -> None:
        super().__init__()
        d, pack = context.width, context.pack
        self.heads, self.writes = heads, writes
        self.query = linear(context, d, keys)
        self.key = linear(context, d, writes * keys)
        self.value = linear(context, d, writes * values)
        self.query_convolution = ShortConvolution(pack, keys, taps)
        self.key_convolution = ShortConvolution(pack, writes * keys, taps)
        self.value_convolution = ShortConvolution(pack, writes * values, taps)
        self.strength = linear(context, d, writes * heads)
        self.output = linear(context, values, d, role="output")
        self.convolution = ConvolutionSlot.of(context, "on_qkv", keys + writes * (keys + values))

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of all heads, [K, B, T, ...] each, before their own convolutions."""
        made = tuple(project(x) for project in (self.query, self.key, self.value))
        return convolved_together(self.convolution, *made)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        if padding is not None:
            x = x * padding.unsqueeze(-1)
        q, k, v = self.project(x)
        convolved = (self.query_convolution(q), self.key_convolution(k), self.value_convolution(v))
        q, k, v, strength, fade = self.split(x, *convolved)
        n = self.writes
        if n > 1:  # the writes of a token are tokens: the first decays, the last reads
            fade = F.pad(fade.unsqueeze(4), (0, 0, 0, n - 1)).flatten(3, 4)
            q = F.pad(q.unsqueeze(4), (0, 0, n - 1, 0)).flatten(3, 4)
        return self.join(x, flash_linear.delta_rule(q, k, v, strength, fade)[:, :, :, n - 1 :: n])

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: the matrix S, and the last inputs of the convolutions."""
        convolutions = (self.query_convolution, self.key_convolution, self.value_convolution)
        before = state[1:] if state else (None,) * 3
        made = [c.step(y, kept) for c, y, kept in zip(convolutions, self.project(x), before, strict=True)]
        q, k, v, strength, fade = self.split(x, *(y for y, _ in made))
        matrix = state[0] if state else q.new_zeros(*q.shape[:3], q.shape[-1], v.shape[-1])
        for write in range(self.writes):
            key, value, beta = (part[:, :, :, write : write + 1] for part in (k, v, strength))
            faded = fade if write == 0 else torch.zeros_like(fade)
            o, matrix = delta_rule.recur(q, delta_rule.Written(key, beta * key, value), faded, matrix)
        return self.join(x, o), (matrix, *(kept for _, kept in made))

    @abstractmethod
    def split(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        """Queries and keys of unit length, values, β and g, [K, B, H, T, ...]; keys, values and β have T·n tokens."""

    @abstractmethod
    def join(self, x: Tensor, o: Tensor) -> Tensor:
        """Norm, gate and output projection: [K, B, H, T, d_v] to [K, B, T, D]."""


class GatedDeltaNet(DeltaNet):
    """The module of `GatedDeltaNetSpec`."""

    def __init__(self, spec: GatedDeltaNetSpec, context: LayerContext) -> None:
        heads, self.groups, key, value = spec.sizes(context)
        super().__init__(context, heads, self.groups * key, heads * value, spec.taps, spec.writes)
        self.spec = spec
        self.gate = linear(context, context.width, heads * value)
        self.fade = linear(context, context.width, heads)
        self.decay = Decay(context.pack, heads)
        self.norm = RMSNorm(context.pack, value, spec.eps)

    def split(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        many = self.heads // self.groups
        q = unit(split_heads(q, self.groups)).repeat_interleave(many, 2)
        k = unit(self._by_write(k, self.groups)).repeat_interleave(many, 2)
        strength = torch.sigmoid(self.strength(x)) * (2 if self.spec.negative_eigenvalues else 1)
        fade = self.decay(self.fade(x)).transpose(2, 3).unsqueeze(-1)
        beta = self._by_write(strength, self.heads)
        return q / math.sqrt(q.shape[-1]), k, self._by_write(v, self.heads), beta, fade

    def _by_write(self, x: Tensor, heads: int) -> Tensor:
        """[K, B, T, n·H·d] to [K, B, H, T·n, d]."""
        return split_heads(x.reshape(*x.shape[:2], -1, x.shape[-1] // self.writes), heads)

    def join(self, x: Tensor, o: Tensor) -> Tensor:
        mixed: Tensor = self.output(join_heads(self.norm(o)) * F.silu(self.gate(x)))
        return mixed


def unit(x: Tensor) -> Tensor:
    """Vectors of unit length, x/√(Σ x² + ε)."""
    return x * (x.square().sum(-1, keepdim=True) + _UNIT_EPS).rsqrt()


class Decay(Packed):
    """g = -e^A·softplus(z + b) for each head or channel, in single precision at least.

    Args:
        pack: K.
        heads: Number of entries of A.
        channels: Number of entries of b for each A.
    """

    rate: Tensor
    bias: Tensor

    def __init__(self, pack: int, heads: int, channels: int = 1) -> None:
        super().__init__(pack)
        self.channels = channels
        self.declare("rate", (heads,), log_uniform(0.01, 16.0))
        self.declare("bias", (heads * channels,), step_bias(0.001, 0.1))

    def forward(self, z: Tensor) -> Tensor:
        """[K, B, T, heads·channels] to log decays of the same shape."""
        exact = torch.promote_types(z.dtype, torch.float32)
        rate = self.rate.to(exact).exp().repeat_interleave(self.channels, 1)[:, None, None]
        return -rate * F.softplus(z.to(exact) + self.bias[:, None, None])

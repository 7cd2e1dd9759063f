"""mLSTM: a matrix memory with an exponential input gate and a forget gate for each head (xLSTM-7B's form).

i_t = c·tanh((x·W_i + b_i)/c) and f_t = c·tanh((x·W_f + b_f)/c); m_t = max(log σ(f_t) + m_{t-1}, i_t), m_0 = 0;
C_t = e^(log σ(f_t) + m_{t-1} - m_t)·C_{t-1} + e^(i_t - m_t)·k_t·v_tᵀ, and n_t the same with k_t instead of k_t·v_tᵀ;
h_t = C_tᵀ·q̃_t/(max(|n_t·q̃_t|, e^(-m_t)) + ε), q̃ = q/√d_k; y = W_O·(LayerNorm(h) ∘ σ(x·W_o)), the norm over each head.

- xLSTM (arXiv:2405.04517), eqs 19 to 27; https://arxiv.org/abs/2405.04517
- xLSTM 7B (arXiv:2503.13427), section 3; https://arxiv.org/abs/2503.13427 (`transformers`, `models/xlstm`)

The running maximum m_t is F_t + max(0, max_{s≤t}(i_s - F_s)) with F_t = Σ_{s≤t} log σ(f_s), so that C is a linear
attention whose decays are differences of that maximum, computed in chunks. The gates start with weights 0, b_i = -10
and b_f from 3 to 6. Padded tokens write nothing, and the memory does not decay over them. On a GPU where
flash-linear-attention is installed its kernel is used (`ablate.nn.kernels.flash_linear`).

Shapes: K pack, B batch, T tokens, D width, H heads, d_k and d_v key and value head widths.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.nn.kernels import flash_linear, linear_attention
from ablate.nn.pack import (
    ConvolutionSlot,
    Linear,
    Packed,
    State,
    constant,
    convolved_together,
    join_heads,
    linear,
    split_heads,
    zeros,
)
from ablate.spec.base import largest_divisor, refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

_DIVISION_EPS = 1e-6


class MLSTMSpec(MixerSpec):
    """mLSTM: a matrix memory with exponential gates."""

    source = "arXiv:2405.04517 eqs 19-27; arXiv:2503.13427 sec. 3"
    complexity = "Ld²/H"
    bidirectional_form = False
    uses_heads = True

    kind: Literal["mlstm"] = "mlstm"
    key_share: float = Field(default=0.5, gt=0, le=4)
    """Width of all queries, and of all keys, divided by D."""
    gate_cap: float = Field(default=15.0, gt=0)
    """c, the bound of the gates' inputs."""
    eps: float = Field(default=1e-6, gt=0)
    """ε of the norm of each head."""

    def key_width(self, context: LayerContext) -> int:
        """Width of all queries together, and of all keys together."""
        return int(context.width * self.key_share)

    def check(self, context: LayerContext) -> None:
        keys = self.key_width(context)
        if keys % context.heads or not keys:
            raise refusal(
                ("key_share",),
                self.key_share,
                f"the number of heads, {context.heads}, must divide the {keys} channels of the keys",
                f"Set a `key_share` that gives a multiple of {context.heads}.",
            )
        if context.width == context.heads:
            near = largest_divisor(context.width, context.width // 2) if context.width > 1 else 1
            raise refusal(
                (),
                context.heads,
                "the LayerNorm of a head with one channel is always 0",
                f"Set `model.heads: {near}` at most, or a larger `model.width`.",
            )

    def build(self, context: LayerContext) -> MLSTM:
        return MLSTM(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return (
            (("query", "W_Q"), ("key", "W_K"), ("value", "W_V"), ("gates", "i, f = W x")),
            (("state", "C ← σ(f) C + e^i k vᵀ"),),
            (("norm", "LayerNorm by head × σ(W_o x)"),),
            (("output", "W_O"),),
        )

    def convolved_width(self, context: LayerContext) -> int:
        return 2 * self.key_width(context) + context.width

    def cache(self, context: LayerContext, length: int) -> int:
        """C, n and m."""
        d_k, d_v = self.key_width(context) // context.heads, context.width // context.heads
        return context.heads * (d_k * (d_v + 1) + 1)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """In recurrent form: each token decays the memory, writes it once and reads it once."""
        d, h, keys = context.width, context.heads, self.key_width(context)
        d_k, d_v, rows, elements = keys // h, d // h, length * h, length * d
        maps = (
            linear_cost(length, d, keys) * 2 + linear_cost(length, d, d) * 2 + linear_cost(length, d, h, bias=True) * 2
        )
        maps = replace(maps, activations=length * d) + linear_cost(length, d, d)
        gates = Cost(
            multiplications=2 * rows,
            additions=6 * rows,
            divisions=2 * rows,
            exponentiations=6 * rows,
            activations=12 * rows,
        )
        core = Cost(
            multiplications=rows * (3 * d_k * (d_v + 1) + d_k) + length * keys,
            additions=rows * (d_k * (d_v + 1) + (d_k - 1) * (d_v + 1)),
            divisions=elements,
            activations=h * linear_attention.kept_activations(length, d_k, d_v + 1, "trained_head")
            + 2 * length * keys
            + elements,
        )
        norm = Cost(
            parameters=d,
            multiplications=3 * elements,
            additions=4 * elements,
            divisions=3 * elements,
            exponentiations=elements,
            activations=4 * elements + 2 * rows,
        )
        return maps + gates + core + norm


class MLSTM(nn.Module):
    """The module of `MLSTMSpec`."""

    def __init__(self, spec: MLSTMSpec, context: LayerContext) -> None:
        super().__init__()
        d, keys, pack = context.width, spec.key_width(context), context.pack
        self.spec = spec
        self.heads = context.heads
        self.query = linear(context, d, keys)
        self.key = linear(context, d, keys)
        self.value = linear(context, d, d)
        self.gate = linear(context, d, d)
        self.input = Linear(pack, d, self.heads, bias=True, initial=zeros, initial_bias=constant(-10.0))
        self.forget = Linear(pack, d, self.heads, bias=True, initial=zeros, initial_bias=_from_3_to_6)
        self.norm = HeadLayerNorm(pack, d, spec.eps)
        self.output = linear(context, d, d, role="output")
        self.convolution = ConvolutionSlot.of(context, "on_qkv", spec.convolved_width(context))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        q, k, v, write, log_keep = self._heads(x)
        if padding is not None:
            unreal = ~padding[:, :, None, :, None]
            write, log_keep = write.masked_fill(unreal, -math.inf), log_keep.masked_fill(unreal, 0.0)
        kept = log_keep.cumsum(-2)  # F
        over = write - kept
        top = over.cummax(-2).values.clamp(min=0)  # m - F
        fade = -top.diff(dim=-2, prepend=top[..., :1, :])
        made = flash_linear.fading(q, k * (over - top).exp().to(k.dtype), _with_ones(v), fade)
        return self._project_output(x, made, kept + top)

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: C with n as its last column, and m."""
        q, k, v, write, log_keep = self._heads(x)
        before = state[1] if state else torch.zeros_like(write)
        largest = torch.maximum(log_keep + before, write)
        keys = k * (write - largest).exp().to(k.dtype)
        fade = (log_keep + before - largest).to(k.dtype)
        made, memory = linear_attention.recur(q, keys, _with_ones(v), state[0] if state else None, fade)
        return self._project_output(x, made, largest), (memory, largest)

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """q̃, k and v [K, B, H, T, ...], i and log σ(f) [K, B, H, T, 1], the last two in double precision."""
        made = convolved_together(self.convolution, self.query(x), self.key(x), self.value(x))
        q, k, v = (split_heads(y, self.heads) for y in made)
        write, keep = (
            self.spec.gate_cap * torch.tanh(gate(x).double() / self.spec.gate_cap).transpose(2, 3).unsqueeze(-1)
            for gate in (self.input, self.forget)
        )
        return q / math.sqrt(q.shape[-1]), k, v, write, F.logsigmoid(keep)

    def _project_output(self, x: Tensor, made: Tensor, largest: Tensor) -> Tensor:
        """Division, norm, gate and output projection: [K, B, H, T, d_v + 1] to [K, B, T, D]."""
        bound = torch.maximum(made[..., -1:].abs(), (-largest).exp().to(made.dtype))
        h = made[..., :-1] / (bound + _DIVISION_EPS)
        mixed: Tensor = self.output(self.norm(h) * torch.sigmoid(self.gate(x)))
        return mixed


class HeadLayerNorm(Packed):
    """LayerNorm of each head without bias, with a gain for each channel of each head."""

    weight: Tensor

    def __init__(self, pack: int, width: int, eps: float) -> None:
        super().__init__(pack)
        self.eps = eps
        self.declare("weight", (width,), constant(1.0))

    def forward(self, h: Tensor) -> Tensor:
        """[K, B, H, T, d_v] to [K, B, T, D]."""
        return join_heads(F.layer_norm(h, h.shape[-1:], eps=self.eps)) * self.weight[:, None, None]


def _with_ones(v: Tensor) -> Tensor:
    """Values with an appended 1, whose sum is n·q̃."""
    return torch.cat([v, v.new_ones(1).expand(*v.shape[:-1], 1)], -1)


def _from_3_to_6(values: Tensor, generator: torch.Generator) -> Tensor:
    return values.copy_(torch.linspace(3.0, 6.0, len(values)))

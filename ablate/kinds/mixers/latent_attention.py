"""Multi-head latent attention (MLA): keys and values of all heads are computed from one small vector for each token.

c_q = RMSNorm(x·W_DQ); [q_N; q_R]_h = c_q·W_UQ; [c; k_R] = x·W_DKV; c ← RMSNorm(c); [k_N; v]_h = c·W_UKV.
The layer's positions rotate q_R and k_R (one for all heads); the other channels carry no position:
y_h = softmax([q_N; q_R]·[k_N; k_R]ᵀ/√(d_N + d_R))·v, and W_O maps the concatenated heads. Inference caches c and k_R
only.

- DeepSeek-V2 (arXiv:2405.04434), section 2.1, eqs 9 to 19; https://arxiv.org/abs/2405.04434
- DeepSeek-V3 (arXiv:2412.19437), eqs 1 to 11; https://arxiv.org/abs/2412.19437
- Kimi Linear (arXiv:2510.26692) uses it without c_q (`query_rank: null`) and without positions

Widths that are not set follow DeepSeek-V2, section 2.1.4: d_N = d_v = d_h, d_R = d_h/2 and d_c = 4·d_h.

Shapes: K pack, B batch, T tokens, D width, H heads, d_N and d_R channels without and with positions, d_v value width,
r rank of the queries, d_c of keys and values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationError
from torch import Tensor, nn

from ablate.kinds.norms.rms import RMSNormSpec
from ablate.nn.kernels.softmax_attention import attend
from ablate.nn.pack import (
    RMSNorm,
    State,
    build_positions,
    extend_cache,
    join_heads,
    linear,
    split_heads,
    visible_pairs,
    visible_tokens,
)
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


@dataclass(frozen=True, slots=True)
class LatentWidths:
    """Widths of the parts of a head, and of the latent vector.

    Attributes:
        plain: d_N, channels of queries and keys without positions.
        turned: d_R, channels of queries and keys with positions.
        value: d_v, channels of values.
        latent: d_c, channels of the latent vector of keys and values.
    """

    plain: int
    turned: int
    value: int
    latent: int

    @property
    def query(self) -> int:
        """Number of channels of a query."""
        return self.plain + self.turned


class LatentAttentionSpec(MixerSpec):
    """Multi-head latent attention: low-rank keys and values; inference caches their low-rank factor."""

    source = "arXiv:2405.04434 eqs 9-19; arXiv:2412.19437 eqs 1-11"
    complexity = "L²d"
    relative_positions = frozenset({"query_key"})
    scales_logits = True
    takes_window = True

    kind: Literal["latent_attention"] = "latent_attention"
    query_rank: int | None = Field(default=None, ge=1)
    """Width of c_q; unless set, one map computes the queries from x, without a norm."""
    kv_rank: int | None = Field(default=None, ge=1)
    """d_c, width of the latent vector of keys and values; unless set, 4·d_h with d_h = D/H (or `head_width`)."""
    plain_width: int | None = Field(default=None, ge=1)
    """d_N, width of queries and keys without positions; unless set, d_h."""
    turned_width: int | None = Field(default=None, ge=1)
    """d_R, width of queries and keys with positions; unless set, d_h/2, rounded up to an even number."""
    value_width: int | None = Field(default=None, ge=1)
    """d_v, head width of the values; unless set, d_h."""
    eps: float = Field(default=1e-6, gt=0)
    """ε of the two norms."""

    def widths(self, context: LayerContext) -> LatentWidths:
        """The widths, with defaults for those that are not set."""
        d_h = max(1, context.head_width)
        return LatentWidths(
            self.plain_width or d_h,
            self.turned_width or 2 * math.ceil(d_h / 4),
            self.value_width or d_h,
            self.kv_rank or 4 * d_h,
        )

    def check(self, context: LayerContext) -> None:
        if context.positions is None:
            return
        try:
            context.positions.check(self.positions_context(context))
        except ValidationError:
            raise refusal(
                ("turned_width",),
                self.widths(context).turned,
                f"the layer's {context.positions.kind_name()} positions cannot be applied to this number of channels",
                "Set an even `turned_width`. If the positions rotate only a share of it, that share must be even too.",
            ) from None

    def positions_context(self, context: LayerContext) -> LayerContext:
        """The head width is that of the rotated channels, d_R."""
        return replace(context, head_width=self.widths(context).turned)

    def separates_documents(self) -> bool:
        """Yes, by the mask of its attention."""
        return True

    def build(self, context: LayerContext) -> LatentAttention:
        return LatentAttention(self, context)

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        queries = "W_Q" if self.query_rank is None else f"W_UQ RMSNorm(W_DQ x), rank {self.query_rank}"
        return (
            (("query", queries), ("latent", "c, k_R = W_DKV x")),
            (("key", "k_N, v = W_UKV RMSNorm(c)"),),
            (("products", "A = softmax([q_N; q_R] [k_N; k_R]ᵀ/√d)"),),
            (("output", "W_O"),),
        )

    def cache(self, context: LayerContext, length: int) -> int:
        """`c` and `k_R`, one of each for all heads."""
        widths = self.widths(context)
        return min(length, context.window or length) * (widths.latent + widths.turned)

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Keys and values are computed from the latent vectors, as in training."""
        d, h, w, norm = context.width, context.heads, self.widths(context), RMSNormSpec()
        if self.query_rank is None:
            maps = linear_cost(length, d, h * w.query)
            queries = 0
        else:
            maps = linear_cost(length, d, self.query_rank) + linear_cost(length, self.query_rank, h * w.query)
            maps += norm.cost(self.query_rank, length)
            queries = length * self.query_rank
        maps += linear_cost(length, d, w.latent + w.turned) + norm.cost(w.latent, length)
        maps += linear_cost(length, w.latent, h * (w.plain + w.value)) + linear_cost(length, h * w.value, d)
        pairs = visible_pairs(context, length)
        core = Cost(
            multiplications=pairs * h * (w.query + w.value),
            additions=pairs * h * (w.query - 1) + (pairs - length) * h * (w.value + 1),
            divisions=2 * pairs * h,
            exponentiations=pairs * h,
        )
        # Kept: the input; the root mean squares of both norms, the inputs of their gains and their outputs; queries,
        # keys and values, zero-padded to one width, the result, its row sums, and the concatenated heads.
        latent = length * (2 * w.latent + 1) + 2 * queries + (length if queries else 0)
        heads = length * h * (4 * max(w.query, w.value) + 1 + w.value)
        masked = length * length if context.window else 0
        total = replace(maps + core, activations=length * d + latent + heads + masked)
        if context.positions is not None:
            total += context.positions.cost(self.positions_context(context), length, key_heads=1)
        return total


class LatentAttention(nn.Module):
    """The module of `LatentAttentionSpec`."""

    def __init__(self, spec: LatentAttentionSpec, context: LayerContext) -> None:
        super().__init__()
        d, h = context.width, context.heads
        self.widths = w = spec.widths(context)
        self.heads, self.causal, self.window = h, context.causal, context.window
        if spec.query_rank is None:
            self.query_down = self.query_norm = None
        else:
            self.query_down = linear(context, d, spec.query_rank)
            self.query_norm = RMSNorm(context.pack, spec.query_rank, spec.eps)
        self.query = linear(context, spec.query_rank or d, h * w.query)
        self.down = linear(context, d, w.latent + w.turned)
        self.norm = RMSNorm(context.pack, w.latent, spec.eps)
        self.up = linear(context, w.latent, h * (w.plain + w.value))
        self.output = linear(context, h * w.value, d, role="output")
        self.positions = build_positions(spec.positions_context(context), "query_key")
        factor = 1.0 if context.positions is None else context.positions.factor_of_logits
        self.scale = factor / math.sqrt(w.query)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real, or numbers documents."""
        q, (k, v) = self._queries(x, 0), self._expanded(*self._latent(x, 0))
        mask = visible_tokens(x, padding, causal=self.causal, window=self.window)
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        y = attend(q, k, v, mask, is_causal=self.causal and mask is None, scale=self.scale)
        return self._project_output(y, x)

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: `c` and `k_R`, from which keys and values are computed again."""
        state = extend_cache(state, self._latent(x, position), self.window)
        q, (k, v) = self._queries(x, position), self._expanded(state[0], state[1])
        y = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), scale=self.scale)
        return self._project_output(y, x), state

    def _project_output(self, y: Tensor, x: Tensor) -> Tensor:
        """The output projection over all heads: [K·B, H, T, d_v] to [K, B, T, D]."""
        mixed: Tensor = self.output(join_heads(y.view(*x.shape[:2], *y.shape[1:])))
        return mixed

    def _queries(self, x: Tensor, first: int) -> Tensor:
        """Queries [K, B, H, T, d_N + d_R] of the tokens from position `first` on."""
        if self.query_down is not None and self.query_norm is not None:
            x = self.query_norm(self.query_down(x))
        q = split_heads(self.query(x), self.heads)
        plain, turned = torch.split(q, [self.widths.plain, self.widths.turned], -1)
        return torch.cat([plain, self._add_positions(turned, first)], -1)

    def _latent(self, x: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """c [K, B, T, d_c], normalised, and k_R [K, B, T, d_R] with positions."""
        latent, turned = torch.split(self.down(x), [self.widths.latent, self.widths.turned], -1)
        return self.norm(latent), self._add_positions(turned.unsqueeze(2), first).squeeze(2)

    def _expanded(self, latent: Tensor, turned: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [K, B, H, S, d_N + d_R] and values [K, B, H, S, d_v]."""
        made = split_heads(self.up(latent), self.heads)
        plain, v = torch.split(made, [self.widths.plain, self.widths.value], -1)
        return torch.cat([plain, turned.unsqueeze(2).expand(-1, -1, self.heads, -1, -1)], -1), v

    def _add_positions(self, x: Tensor, first: int) -> Tensor:
        return x if self.positions is None else self.positions(x, first)

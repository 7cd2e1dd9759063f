"""Attention residuals: each sub-layer reads a softmax-weighted mean of all earlier outputs instead of their sum.

v_0 is the embedding and v_i = f_i(h_i) the output of sub-layer i; h_l = Σ_{i<l} α_i·v_i, where α = softmax_i(w_l·k_i)
and k_i = RMSNorm(v_i) with a trained gain. w_l ∈ R^D starts at 0, so that the first h are uniform means. What the model
gives after the last layer is mixed so too. With `block_size` the outputs of so many sub-layers in a row are summed, and
the sources are the embedding, the finished sums, and the current one unless it is empty. Sub-layers have no other skip.

- Attention Residuals (arXiv:2603.15031), section 3 and Table 4; https://arxiv.org/abs/2603.15031
- https://github.com/fla-org/flash-linear-attention at bc3b101 (`ops/attnres/naive.py`), run beside a model with and
  without blocks in double precision: logits and gradients differ by 1e-14

Not verified against the paper: what an input-dependent query reads, here the last source, and whether heads share the
norm, here one norm over all channels.

Shapes: K pack, B batch, T tokens, n sources, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.residuals import check_every_join
from ablate.nn.pack import Linear, Packed, Residual, Sublayer, constant, zeros
from ablate.spec.base import largest_divisor, refusal
from ablate.spec.block import BlockSpec, ResidualSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext

_EPS = 1e-6


class AttentionResidualsSpec(ResidualSpec):
    """Each sub-layer reads a weighted mean of the outputs of all earlier ones, by softmax over depth."""

    source = "arXiv:2603.15031 section 3"
    differs_by_layer = True
    grows = True

    kind: Literal["attention_residuals"] = "attention_residuals"
    block_size: int | None = Field(default=None, ge=1)
    """Sub-layers whose outputs are summed to one source; unless set, each is a source."""
    query: Literal["trained", "of_input", "none"] = "trained"
    """What the sources are compared with: a vector w_l; W_l times the last source; or nothing, and each source has a
    trained logit."""
    weights: Literal["softmax", "sigmoid"] = "softmax"
    """The function from logits to weights."""
    key_norm: bool = True
    """Whether the sources are normed before they are compared."""
    heads: int = Field(default=1, ge=1)
    """Parts of the channels with weights of their own."""
    window: int | None = Field(default=None, ge=1)
    """Number of last sources that are read besides the embedding; unless set, all."""

    def sources(self, sublayers: int) -> int:
        """Number of sources after this many sub-layers."""
        return 1 + (sublayers if self.block_size is None else -(-sublayers // self.block_size))

    def stream_sizes(self, context: LayerContext) -> tuple[int, ...]:
        return self.sources((context.layer + 1) * len(context.sublayers)), context.width

    def check(self, context: LayerContext) -> None:
        """Refuse heads that do not divide the width."""
        if context.width % self.heads:
            near = largest_divisor(context.width, self.heads)
            raise refusal(
                ("heads",), self.heads, f"the heads must divide the width, which is {context.width}", f"Set {near}."
            )

    def check_block(self, block: BlockSpec) -> None:
        check_every_join(self, block, gains=False, post=False)

    def read(self, sources: int) -> int:
        """How many of the sources are read."""
        return sources if self.window is None else min(sources, self.window + 1)

    def build(self, context: LayerContext) -> AttentionResiduals:
        return AttentionResiduals(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """Kept for each sub-layer: the sources, their normed values, and the weights."""
        first, count = context.layer * len(context.sublayers), len(context.sublayers)
        total = Cost()
        for done in range(first, first + count):
            total += self._mixing(self.sources(done), context.width, length)
            if self.block_size is not None and done % self.block_size:
                total += Cost(additions=length * context.width)
        if context.layer == context.depth - 1:
            total += self._mixing(self.sources(first + count), context.width, length)
        return total

    def _mixing(self, sources: int, width: int, length: int) -> Cost:
        n = self.read(sources)
        elements, logits, compared = length * n * width, length * n * self.heads, self.query != "none"
        normed = compared and self.key_norm
        maps = linear_cost(length, width, width) if self.query == "of_input" else Cost()
        own = {"trained": width, "of_input": 0, "none": n * self.heads}[self.query]
        soft = self.weights == "softmax"
        return maps + Cost(
            parameters=own + width * normed,
            multiplications=elements * (1 + compared + 2 * normed),
            additions=elements * (compared + normed) - logits * compared + elements - length * width + logits,
            divisions=elements * normed + logits,
            exponentiations=logits,
            activations=elements * (1 + normed) + logits * (1 + (not soft)) + length * n * normed,
        )

    def label(self) -> str:
        return "softmax over depth" + ("" if self.block_size is None else f", blocks of {self.block_size}")


class AttentionResiduals(Residual):
    """The module of `AttentionResidualsSpec`; the stream is [K, B, T, n, D] with a growing n."""

    def __init__(self, spec: AttentionResidualsSpec, context: LayerContext) -> None:
        super().__init__()
        self.spec = spec
        done = context.layer * len(context.sublayers)
        self.done = {part: done + index for index, part in enumerate(context.sublayers)}
        mixes: dict[str, nn.Module] = {
            part: DepthAttention(spec, context, spec.sources(index)) for part, index in self.done.items()
        }
        self.mixes = nn.ModuleDict(mixes)
        after = spec.sources(done + len(context.sublayers))
        self.last = DepthAttention(spec, context, after) if context.layer == context.depth - 1 else None

    def open(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, T, 1, D]."""
        return x.unsqueeze(-2)

    def enter(self, stream: Tensor, part: Sublayer) -> Tensor:
        """[K, B, T, n, D] to [K, B, T, D]."""
        entered: Tensor = self.mixes[part](stream)
        return entered

    def join(self, stream: Tensor, branch: Tensor, skip: Callable[[Tensor], Tensor], part: Sublayer) -> Tensor:
        """One more source; inside a block the last one grows."""
        added = branch.unsqueeze(-2)
        if self.spec.block_size is None or self.done[part] % self.spec.block_size == 0:
            return torch.cat([stream, added], -2)
        return torch.cat([stream[..., :-1, :], stream[..., -1:, :] + added], -2)

    def close(self, stream: Tensor) -> Tensor:
        """[K, B, T, n, D] to [K, B, T, D]."""
        assert self.last is not None
        mixed: Tensor = self.last(stream)
        return mixed


class DepthAttention(Packed):
    """The mean of the sources that one sub-layer reads.

    Args:
        sources: n.
    """

    query: Tensor
    logit: Tensor
    gain: Tensor

    def __init__(self, spec: AttentionResidualsSpec, context: LayerContext, sources: int) -> None:
        super().__init__(context.pack)
        self.spec = spec
        width = context.width
        if spec.query == "none":
            self.declare("logit", (spec.read(sources), spec.heads), zeros)
        elif spec.query == "trained":
            self.declare("query", (width,), zeros)
        else:
            self.map = Linear(context.pack, width, width, initial=zeros)
        if spec.key_norm and spec.query != "none":
            self.declare("gain", (width,), constant(1.0))

    def forward(self, stream: Tensor) -> Tensor:
        """[K, B, T, n, D] to [K, B, T, D]."""
        spec = self.spec
        if spec.window is not None and stream.shape[-2] > spec.window + 1:
            stream = torch.cat([stream[..., :1, :], stream[..., -spec.window :, :]], -2)
        values = _by_head(stream, spec.heads)
        logits = self._logits(stream)
        weights = logits.softmax(-2) if spec.weights == "softmax" else logits.sigmoid()
        mixed: Tensor = torch.einsum("...nh,...nhd->...hd", weights.to(values.dtype), values)
        return mixed.flatten(-2)

    def _logits(self, stream: Tensor) -> Tensor:
        """[K, B, T, n, H], in single precision at least."""
        if self.spec.query == "none":
            return self.logit[:, None, None].expand(*stream.shape[:3], -1, -1)
        own = self.spec.query == "trained"
        query: Tensor = self.query[:, None, None] if own else self.map(stream[..., -1, :])
        keys = stream
        if self.spec.key_norm:
            keys = F.rms_norm(stream, stream.shape[-1:], eps=_EPS)
            query = query * self.gain[:, None, None]
        exact = torch.promote_types(stream.dtype, torch.float32)
        query, keys = (_by_head(x.to(exact), self.spec.heads) for x in (query, keys))
        return torch.einsum("...nhd,...hd->...nh", keys, query.expand(*keys.shape[:3], *query.shape[3:]))


def _by_head(x: Tensor, heads: int) -> Tensor:
    """[..., D] to [..., H, d]."""
    return x.reshape(*x.shape[:-1], heads, -1)

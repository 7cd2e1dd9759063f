"""Local attention: softmax attention inside non-overlapping blocks, or inside a sliding window.

`blocks`: token i sees j where ⌊i/w⌋ = ⌊j/w⌋. `sliding`: token i sees j where |i - j| < w. Causal: of those, j ≤ i.

- Long Range Arena (arXiv:2011.04006), appendix B.1, names the blocks; https://arxiv.org/abs/2011.04006
- The code of Long Range Arena reshapes to (block, number of blocks), so its "block" is a strided set of tokens; here it
  is a neighbourhood, as in the paper.

Shapes: K pack, B batch, T tokens, D width, H heads, w `window`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.block_attention import (
    Keys,
    attend,
    attention_cost,
    blocks,
    join_blocks,
    positions,
    real_tokens,
    window,
    window_blocks,
)
from ablate.nn.pack import AttentionProjections, projections_cost
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class LocalSpec(MixerSpec):
    """Softmax attention to nearby tokens only."""

    source = "arXiv:2011.04006 app. B.1"
    complexity = "Lwd"
    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    kind: Literal["local"] = "local"
    pattern: Literal["blocks", "sliding"] = "blocks"
    """`blocks`: the text is cut into blocks that do not see each other; `sliding`: each token sees its own window."""
    window: int = Field(default=50, ge=1)
    """w, in tokens: the length of a block, or the first distance (on each side) that a sliding window hides."""

    def build(self, context: LayerContext) -> Local:
        return Local(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """Keys and values of one window."""
        return 2 * min(length, self.window) * context.inner_width

    def cost(self, context: LayerContext, length: int) -> Cost:
        size, before, after = min(self.window, length), 0, 0
        if self.pattern == "sliding":
            size, before, after = window_blocks(length, self.window - 1, context.causal)
        pairs = length * size * (before + 1 + after)
        attention = attention_cost(length, context.inner_width, context.heads, pairs, block=size)
        copied = Cost(activations=2 * length * context.inner_width * (before + after))
        return projections_cost(context, length) + attention + copied


class Local(AttentionProjections):
    """The module of `LocalSpec`."""

    def __init__(self, spec: LocalSpec, context: LayerContext) -> None:
        super().__init__(context)
        self.spec = spec

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        length = x.shape[-2]
        q, k, v = self.project_folded(x)
        real = real_tokens(x, padding)
        if self.spec.pattern == "sliding":
            q, keys, _ = window(q, k, v, real, self.spec.window - 1, self.causal)
        else:
            q, k, v, real = (blocks(part, min(self.spec.window, length)) for part in (q, k, v, real))
            at, of = positions(q, 0, 0)
            seen = real.mT | (at == of)  # a token always sees itself, so that no row is empty
            keys = Keys(k, v, seen & (of <= at) if self.causal else seen)
        return self.project_output(join_blocks(attend(q, [keys]), length))

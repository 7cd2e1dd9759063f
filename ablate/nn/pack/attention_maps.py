"""The four maps of most attention kinds: queries, keys and values of H heads, and the output map.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h head width.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from ablate.nn.pack.documents import numbers_documents, same_document
from ablate.nn.pack.layers import linear
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.position import Applied


class AttentionMaps(nn.Module):
    """Base of mixers with four maps without biases; a subclass adds how values are mixed."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__()
        d, inner = context.width, context.inner_width
        self.heads = context.heads
        self.causal = context.causal
        self.query = linear(context, d, inner)
        self.key = linear(context, d, inner)
        self.value = linear(context, d, inner)
        self.output = linear(context, inner, d, role="output")
        self.positions = build_positions(context, "query_key")

    def projected(self, x: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """x [K, B, T, D], from position `first` on, to queries, keys and values [K, B, H, T, d_h]."""
        q, k, v = (split_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        return self.positioned(q, first), self.positioned(k, first), v

    def positioned(self, x: Tensor, first: int = 0) -> Tensor:
        """Queries or keys [K, B, H, T, d_h] with the layer's positions, if it has any."""
        return x if self.positions is None else self.positions(x, first)

    def folded(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `projected`, pack and batch in one axis: [K·B, H, T, d_h]."""
        q, k, v = (part.flatten(0, 1) for part in self.projected(x))
        return q, k, v

    def joined(self, y: Tensor) -> Tensor:
        """The output map over all heads: [K, B, H, T, d_h] or [K·B, H, T, d_h] to [K, B, T, D]."""
        mixed: Tensor = self.output(join_heads(y.reshape(self.query.pack, -1, *y.shape[-3:])))
        return mixed


def build_positions(context: LayerContext, applied: Applied) -> nn.Module | None:
    """The module of a layer's positions, if they are applied there."""
    positions = context.positions
    return positions.build(context) if positions is not None and positions.applied == applied else None


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[K, B, T, H·d] to [K, B, H, T, d]."""
    return x.reshape(*x.shape[:-1], heads, -1).transpose(2, 3)


def join_heads(y: Tensor) -> Tensor:
    """[K, B, H, T, d] to [K, B, T, H·d]."""
    return y.transpose(2, 3).flatten(3)


def maps_cost(context: LayerContext, length: int, maps: int = 4) -> Cost:
    """Cost of the maps of queries, keys and values, which keep one input together, of the output, and of positions."""
    width, inner = context.width, context.inner_width
    into = linear_cost(length, width, inner) * (maps - 1)
    cost = replace(into + linear_cost(length, inner, width), activations=length * (width + inner))
    return (
        cost if context.positions is None else cost + context.positions.cost(context, length, key_heads=context.heads)
    )


def visible_tokens(x: Tensor, padding: Tensor | None, *, causal: bool, window: int | None) -> Tensor | None:
    """Which tokens each token sees, [K·B, 1, T, T]; None if all tokens, or in causal attention all earlier ones.

    A token always sees itself, so that no row is empty.

    Args:
        x: [K, B, T, D].
        padding: [K, B, T], True where a token is real; or numbers of documents, which do not see one another.
        causal: Whether the future is hidden.
        window: Tokens seen to each side, the own one counted; None for all.
    """
    if padding is None and window is None:
        return None
    length = x.shape[2]
    near = torch.ones(length, length, dtype=torch.bool, device=x.device)
    if window is not None:
        near = near.triu(1 - window).tril(window - 1)
    if causal:
        near = near.tril()
    if padding is None:
        return near.expand(x.shape[0] * x.shape[1], 1, length, length)
    if numbers_documents(padding):
        return (same_document(padding) & near).flatten(0, 1)
    own = torch.eye(length, dtype=torch.bool, device=x.device)
    return ((padding[:, :, None, None, :] | own) & near).flatten(0, 1)


def visible_pairs(context: LayerContext, length: int) -> int:
    """Entries of the attention matrix of one head that are not hidden, in a sequence of `length` tokens."""
    reach = length if context.window is None else min(context.window, length)
    before = reach * (reach + 1) // 2 + (length - reach) * reach  # the token itself and those before it
    return before if context.causal else 2 * before - length

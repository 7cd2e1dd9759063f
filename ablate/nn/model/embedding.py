"""What stands around the blocks of a model of tokens, besides its table and its output matrix.

Before them: hashed pairs of tokens, a share of the previous embedding, segments. After them: a dense layer, an output
matrix that is not tied to the embedding, a bias of the logits.

Shapes: K pack, B batch, T tokens, D width, V vocabulary, R rows of the table of pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ablate.nn.kernels.product import summed_product
from ablate.nn.pack import ACTIVATIONS, Embedding, Linear, Packed, linear, zeros
from ablate.spec.activations import KEPT
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.model_fields import BigramSpec, HeadTransformSpec, SmearSpec

_NOW, _BEFORE = 36313, 27191
"""Factors of the hash of a pair."""


class Bigrams(nn.Module):
    """The table of hashed pairs of tokens (`BigramSpec`)."""

    def __init__(self, spec: BigramSpec, context: LayerContext, vocabulary: int) -> None:
        super().__init__()
        width = spec.width or context.width
        self.rows = spec.rows(vocabulary)
        self.table = Embedding(context.pack, self.rows, width, initial=zeros)
        self.widen = None if width == context.width else linear(context, width, context.width)

    def forward(self, tokens: Tensor, before: Tensor | None) -> Tensor:
        """Ids [K, B, T], and the id before the first [K, B, 1] or None, to [K, B, T, D]."""
        hashed = pairs(tokens, before, self.rows)
        x: Tensor = self.table(hashed)
        return x if self.widen is None else self.widen(x)


def pairs(tokens: Tensor, before: Tensor | None, rows: int) -> Tensor:
    """The row of each id and the previous one, [K, B, T]; the last row for an id without a previous one."""
    previous = torch.cat([tokens[..., :1] if before is None else before, tokens[..., :-1]], -1)
    rows_of_pairs = ((_NOW * tokens) ^ (_BEFORE * previous)) % (rows - 1)
    if before is not None:
        return rows_of_pairs
    return torch.cat([torch.full_like(rows_of_pairs[..., :1], rows - 1), rows_of_pairs[..., 1:]], -1)


class Smear(Packed):
    """Adds a share of the previous embedding (`SmearSpec`)."""

    gate: Tensor
    scale: Tensor

    def __init__(self, spec: SmearSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        self.inputs = spec.inputs
        self.declare("gate", (spec.inputs, 1), zeros)
        self.declare("scale", (1,), zeros)

    def forward(self, x: Tensor, before: Tensor | None) -> Tensor:
        """Embeddings [K, B, T, D], and the one before the first [K, B, 1, D] or None, to [K, B, T, D]."""
        first = torch.zeros_like(x[:, :, :1]) if before is None else before
        previous = torch.cat([first, x[:, :, :-1]], 2)
        share = (x[..., : self.inputs] @ self.gate.unsqueeze(1)).sigmoid() * self.scale.view(-1, 1, 1, 1)
        return x + share * previous


class Segments(nn.Module):
    """A table [segments, D] (`ModelSpec.segments`)."""

    def __init__(self, segments: int, context: LayerContext) -> None:
        super().__init__()
        shape = (segments, context.width)
        self.table = Embedding(context.pack, *shape, initial=context.initial("embedding", *shape))

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings [K, B, T, D] of texts in segment 0 plus the row of that segment."""
        return x + self.table.weight[:, 0, None, None]


def bigram_cost(spec: BigramSpec, width: int, vocabulary: int, length: int) -> Cost:
    """Cost of `Bigrams` over one sequence, and of adding it to the embedding."""
    own = spec.width or width
    total = Cost(parameters=spec.rows(vocabulary) * own, additions=length * width)
    return total if own == width else total + linear_cost(length, own, width)


def smear_cost(spec: SmearSpec, width: int, length: int) -> Cost:
    """Cost of `Smear` over one sequence. Kept: embeddings and shares."""
    return Cost(
        parameters=spec.inputs + 1,
        multiplications=length * (spec.inputs + 1 + width),
        additions=length * (spec.inputs + width),
        exponentiations=length,
        divisions=length,
        activations=length * (2 * width + 3),
    )


class HeadTransform(nn.Module):
    """N(act(W·x + b)) (`HeadTransformSpec`)."""

    def __init__(self, spec: HeadTransformSpec, context: LayerContext) -> None:
        super().__init__()
        self.dense = linear(context, context.width, context.width, bias=spec.bias)
        self.activation = ACTIVATIONS[spec.activation]
        self.norm = spec.norm.build(context.pack, context.width)

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to the same."""
        y: Tensor = self.norm(self.activation(self.dense(x)))
        return y


class HeadMap(Linear):
    """The output matrix of a model whose head is not tied to its embedding; no bias."""

    def __init__(self, context: LayerContext, vocabulary: int) -> None:
        width = context.width
        super().__init__(context.pack, width, vocabulary, initial=context.initial("head", width, vocabulary))

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to [K, ..., V]."""
        y = summed_product(x.flatten(1, -2), self.weight)
        return y.view(*x.shape[:-1], y.shape[-1])


class HeadBias(Packed):
    """A trained number for each token id, added to its logits; initially 0."""

    value: Tensor

    def __init__(self, pack: int, vocabulary: int) -> None:
        super().__init__(pack)
        self.declare("value", (vocabulary,), zeros)

    def forward(self, logits: Tensor) -> Tensor:
        """Logits [K, B, T, V] to the same."""
        return logits + self.value[:, None, None]


def head_transform_cost(spec: HeadTransformSpec, width: int, length: int) -> Cost:
    """Cost of `HeadTransform` over one sequence; the activation counts as one multiplication for each element."""
    elements = length * width
    bent = Cost(multiplications=elements, activations=KEPT.get(spec.activation, 1) * elements)
    return linear_cost(length, width, width, bias=spec.bias) + bent + spec.norm.cost(width, length)


def head_bias_cost(vocabulary: int, length: int) -> Cost:
    """Cost of `HeadBias` over one sequence."""
    return Cost(parameters=vocabulary, additions=length * vocabulary)

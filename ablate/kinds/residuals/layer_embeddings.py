"""Per-layer embeddings: between layers a vector of the token, from a table of that layer, is added through a gate.

h ← h + N(W_u·(gelu(W_g·h) ∘ p)), p = (N(W·x₀/√D) + √w·E[token])/√2 ∈ R^w, or √w·E[token] without `projected`: x₀ is the
input of the first layer, N an RMSNorm with gains. This happens after each layer, here at the start of every layer but
the first and after the last one, each time with its own matrices and table E.

- Gemma 3n and Gemma 4 (`transformers`, `models/gemma4`: `Gemma4TextDecoderLayer`, `project_per_layer_inputs`); there
  all layers share the gains of the norm of W·x₀

Shapes: K pack, B batch, T tokens, D width, V vocabulary, w width of the embeddings.
"""

from __future__ import annotations

import math
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.kinds.norms.rms import RMSNormSpec
from ablate.nn.pack import Embedding, Residual, RMSNorm, linear
from ablate.spec.block import ResidualSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import EMBEDDING, LayerContext, SharedTensor

_EPS = 1e-6


class LayerEmbeddingsSpec(ResidualSpec):
    """Between layers a vector of the token, from a table of that layer, is added through a gate (Gemma 3n)."""

    source = "Gemma 3n and Gemma 4 of `transformers`"
    differs_by_layer = True

    kind: Literal["layer_embeddings"] = "layer_embeddings"
    width: int = Field(default=256, ge=1)
    """w, channels of each table."""
    projected: bool = True
    """Whether a projection of the input of the first layer is added to the vector of the token."""

    def times(self, context: LayerContext) -> int:
        """How often a layer adds an embedding: before it unless it is the first, and after the last."""
        return (context.layer > 0) + (context.layer == context.depth - 1)

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        if not self.times(context):
            return ()
        return (context.tokens, context.stream(EMBEDDING)) if self.projected else (context.tokens,)

    def build(self, context: LayerContext) -> LayerEmbeddings:
        return LayerEmbeddings(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """Kept: the inputs of maps and norms, of gelu and of the product, and the rows of the table."""
        width, inner, rows = context.width, self.width, length * self.width
        one = linear_cost(length, width, inner) + linear_cost(length, inner, width)
        one += RMSNormSpec().cost(width, length) + Cost(
            parameters=context.vocabulary * inner,
            multiplications=3 * rows,
            additions=length * width,
            activations=3 * rows,
        )
        if self.projected:
            projected = linear_cost(length, width, inner) + Cost(activations=-length * width)  # kept once for all
            one += projected + RMSNormSpec().cost(inner, length) + Cost(additions=rows, divisions=2 * rows)
        return one * self.times(context) + Cost(additions=joins * length * width)

    def label(self) -> str:
        return f"x + gated E[token], {self.width} wide"


class LayerEmbeddings(Residual):
    """The module of `LayerEmbeddingsSpec`."""

    def __init__(self, spec: LayerEmbeddingsSpec, context: LayerContext) -> None:
        super().__init__()
        self.first = GatedEmbedding(spec, context) if context.layer > 0 else None
        self.last = GatedEmbedding(spec, context) if context.layer == context.depth - 1 else None

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same."""
        return stream if self.first is None else self.first(stream, *shared)

    def finish(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same."""
        return stream if self.last is None else self.last(stream, *shared)


class GatedEmbedding(nn.Module):
    """h + N(W_u·(gelu(W_g·h) ∘ p))."""

    def __init__(self, spec: LayerEmbeddingsSpec, context: LayerContext) -> None:
        super().__init__()
        pack, width, inner, rows = context.pack, context.width, spec.width, context.vocabulary
        self.table = Embedding(pack, rows, inner, initial=context.initial("embedding", rows, inner))
        self.scale = math.sqrt(inner)
        self.map = linear(context, width, inner) if spec.projected else None
        self.map_norm = RMSNorm(pack, inner, _EPS) if spec.projected else None
        self.gate = linear(context, width, inner)
        self.up = linear(context, inner, width, role="output")
        self.norm = RMSNorm(pack, width, _EPS)

    def forward(self, stream: Tensor, tokens: Tensor, first: Tensor | None = None) -> Tensor:
        """The stream [K, B, T, D], ids [K, B, T] and x₀ [K, B, T, D] to the stream."""
        p = self.table(tokens) * self.scale
        if self.map is not None and self.map_norm is not None and first is not None:
            p = (self.map_norm(self.map(first) / math.sqrt(first.shape[-1])) + p) / math.sqrt(2)
        added: Tensor = self.norm(self.up(F.gelu(self.gate(stream), approximate="tanh") * p))
        return stream + added

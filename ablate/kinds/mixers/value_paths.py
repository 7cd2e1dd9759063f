"""Terms added to the values of attention: the values of an earlier layer, and a table of vectors by token id.

- Value Residual Learning, ResFormer (arXiv:2410.17897), eq. 5: v_l ← λ₁·v_first + λ₂·v_l; https://arxiv.org/abs/2410.17897
- https://github.com/KellerJordan/modded-nanogpt, records of 2024-11-06 (v ← (1 - λ)·v + λ·v_first, λ trained) and of
  2024-12-04 (value embeddings, v ← (1 - λ)·v + λ·E[token])

Shapes: K pack, B batch, T tokens, D width, V vocabulary, G heads of values, d_h head width.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from ablate.nn.pack import Embedding, Gain, zeros
from ablate.spec.base import Spec
from ablate.spec.block import Gain as GainField
from ablate.spec.block import GainSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext


class ValueResidualSpec(Spec):
    """v ← λ₂·v + λ₁·v_first, where v_first are the values of an earlier layer, before terms are added to them."""

    from_layer: int = Field(default=0, ge=0)
    """The layer that publishes its values; every later layer with this setting reads them."""
    first: GainField = GainSpec(init=0.5, trainable=True)
    """λ₁, gain of the values of the earlier layer."""
    own: GainField | None = None
    """λ₂, gain of the layer's own values; unless set, 1 - λ₁."""

    def cost(self, context: LayerContext, length: int, width: int) -> Cost:
        """Cost over one sequence of a layer that reads."""
        elements = length * width
        trained = self.first.trainable + (self.own is not None and self.own.trainable)
        return Cost(
            parameters=trained,
            multiplications=2 * elements,
            additions=elements,
            # The inputs of trained gains: the own values; the values read are kept once for all layers.
            activations=elements * (self.first.trainable if self.own is None else self.own.trainable),
        )


class ValueResidual(nn.Module):
    """The module of `ValueResidualSpec`, in a layer that reads."""

    def __init__(self, spec: ValueResidualSpec, context: LayerContext) -> None:
        super().__init__()
        self.first = Gain.of(spec.first, context)
        self.own = None if spec.own is None else Gain.of(spec.own, context)

    def forward(self, v: Tensor, first: Tensor) -> Tensor:
        """Values and those of the earlier layer, [K, B, T, G·d_h] each, to the same."""
        mixed: Tensor = v + self.first(first - v) if self.own is None else self.own(v) + self.first(first)
        return mixed


class ValueEmbeddingSpec(Spec):
    """v ← λ₂·v + λ₁·E[token], where E is a trained table with a vector for each token id."""

    value_fields = frozenset({"start"})

    table: GainField = GainSpec(init=0.5, trainable=True)
    """λ₁, gain of the table."""
    own: GainField | None = None
    """λ₂, gain of the layer's own values; unless set, 1 - λ₁."""
    start: Literal["normal", "zero"] = "normal"
    """Initial value of E: as the embedding of tokens, or 0."""

    def cost(self, context: LayerContext, length: int, width: int) -> Cost:
        """Cost over one sequence; a row of the table is read for each token."""
        mixing = ValueResidualSpec(first=self.table, own=self.own).cost(context, length, width)
        return mixing + Cost(parameters=context.vocabulary * width, activations=length * width * self._keeps_rows)

    @property
    def _keeps_rows(self) -> bool:
        """Whether the rows that are read are kept for the gradient of a trained gain."""
        return self.own is not None and self.table.trainable


class ValueEmbedding(nn.Module):
    """The module of `ValueEmbeddingSpec`."""

    def __init__(self, spec: ValueEmbeddingSpec, context: LayerContext, width: int) -> None:
        super().__init__()
        shape = (context.vocabulary, width)
        initial = zeros if spec.start == "zero" else context.initial("embedding", *shape)
        self.table = Embedding(context.pack, *shape, initial=initial)
        self.mixed = ValueResidual(ValueResidualSpec(first=spec.table, own=spec.own), context)

    def forward(self, v: Tensor, tokens: Tensor) -> Tensor:
        """Values [K, B, T, G·d_h] and token ids [K, B, T] to values."""
        mixed: Tensor = self.mixed(v, self.table(tokens))
        return mixed

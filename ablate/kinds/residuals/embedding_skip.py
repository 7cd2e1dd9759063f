"""Embedding skip: every layer starts from x ← λ·x + μ·x₀, where x₀ is the input of the first layer.

λ and μ are trained and start at 1 and 0, so that the model starts as one without this skip.

- https://github.com/KellerJordan/modded-nanogpt, record of 2024-11-10 ("x0 lambdas")

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ablate.nn.pack import Gain, Residual
from ablate.spec.block import Gain as GainField
from ablate.spec.block import GainSpec, ResidualSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import EMBEDDING, LayerContext, SharedTensor


class EmbeddingSkipSpec(ResidualSpec):
    """Each layer starts from a mixture of the stream and the token embedding."""

    source = "modded-nanogpt, record of 2024-11-10"

    kind: Literal["embedding_skip"] = "embedding_skip"
    stream: GainField = GainSpec(init=1.0, trainable=True)
    """λ, gain of the stream."""
    embedding: GainField = GainSpec(init=0.0, trainable=True)
    """μ, gain of the embedding."""

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        return (context.stream(EMBEDDING),)

    def build(self, context: LayerContext) -> EmbeddingSkip:
        return EmbeddingSkip(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """A trained gain keeps its input."""
        elements = length * context.width
        return Cost(
            parameters=self.stream.trainable + self.embedding.trainable,
            multiplications=2 * elements,
            additions=(1 + joins) * elements,
            activations=self.stream.trainable * elements,  # the embedding is kept once, for all layers
        )

    def label(self) -> str:
        return "λx + μx₀"


class EmbeddingSkip(Residual):
    """The module of `EmbeddingSkipSpec`."""

    def __init__(self, spec: EmbeddingSkipSpec, context: LayerContext) -> None:
        super().__init__()
        self.stream, self.embedding = Gain.of(spec.stream, context), Gain.of(spec.embedding, context)

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same."""
        (embedding,) = shared
        mixed: Tensor = self.stream(stream) + self.embedding(embedding)
        return mixed

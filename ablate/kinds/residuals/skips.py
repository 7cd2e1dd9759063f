"""Skips over several layers: from the embedding, or from the mirrored layer of the first half.

`embedding_skip`: every layer starts from x ← λ·x + μ·x₀, where x₀ is the input of the first layer.

λ and μ are trained and start at 1 and 0, so that the model starts as one without this skip.

- https://github.com/KellerJordan/modded-nanogpt, record of 2024-11-10 ("x0 lambdas")

`unet_skip`: a layer of the second half starts from x + w·x_i, where x_i is the output of its mirror in the first.

Layer L-1-i reads the output of layer i, for i < ⌊L/2⌋; w is trained and starts at 1. Each layer may also start from a
mixture with the embedding, as in `embedding_skip`: x ← λ·(x + w·x_i) + μ·x₀.

- https://github.com/KellerJordan/modded-nanogpt, record of 2024-11-10 ("U-net pattern skip connections")

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ablate.nn.pack import Gain, Residual
from ablate.spec.base import refusal
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


class UNetSkipSpec(ResidualSpec):
    """Layers of the second half read the outputs of mirrored layers of the first."""

    source = "modded-nanogpt, record of 2024-11-10"

    kind: Literal["unet_skip"] = "unet_skip"
    skip: GainField = GainSpec(init=1.0, trainable=True)
    """w, gain of the output of the mirrored layer."""
    stream: GainField = GainSpec()
    """λ, gain of the stream."""
    embedding: GainField = GainSpec(init=0.0)
    """μ, gain of the embedding; fixed at 0, the embedding is not read."""

    def check(self, context: LayerContext) -> None:
        """Refuse a model of one layer, which has no halves."""
        if context.depth == 1:
            raise refusal(
                ("kind",),
                self.kind,
                "layers of the second half read those of the first, and the model has 1 layer",
                "Set `residual: embedding_skip` or `plain`, or `model.depth: 2`.",
            )

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        embedding = () if self.embedding.fixed_at_zero else (context.stream(EMBEDDING),)
        return (*self._mirrored(context), *embedding)

    @staticmethod
    def _mirrored(context: LayerContext) -> tuple[SharedTensor, ...]:
        partner = context.depth - 1 - context.layer
        return (context.stream(partner),) if partner < context.layer else ()

    def gains(self, context: LayerContext) -> list[GainSpec]:
        """The gains of the layer, in the order of the computation."""
        mirrored = [self.skip] if self._mirrored(context) else []
        return [*mirrored, self.stream, *([] if self.embedding.fixed_at_zero else [self.embedding])]

    def build(self, context: LayerContext) -> UNetSkip:
        return UNetSkip(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """A trained gain keeps its input for the backward pass; the embedding is kept once for all layers."""
        elements, gains = length * context.width, self.gains(context)
        kept = self.stream.trainable + (self.skip.trainable and bool(self._mirrored(context)))
        return Cost(
            parameters=sum(gain.trainable for gain in gains),
            multiplications=sum(gain != GainSpec() for gain in gains) * elements,
            additions=(len(gains) - 1 + joins) * elements,
            activations=kept * elements,
        )

    def label(self) -> str:
        return "x + w·x_mirrored" if self.embedding.fixed_at_zero else "λ(x + w·x_mirrored) + μx₀"


class UNetSkip(Residual):
    """The module of `UNetSkipSpec`."""

    def __init__(self, spec: UNetSkipSpec, context: LayerContext) -> None:
        super().__init__()
        reads_embedding = not spec.embedding.fixed_at_zero
        self.skip = Gain.of(spec.skip, context) if len(spec.reads(context)) > reads_embedding else None
        self.stream = Gain.of(spec.stream, context)
        self.embedding = Gain.of(spec.embedding, context) if reads_embedding else None

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same."""
        read = iter(shared)
        if self.skip is not None:
            stream = stream + self.skip(next(read))
        mixed: Tensor = self.stream(stream)
        return mixed if self.embedding is None else mixed + self.embedding(next(read))

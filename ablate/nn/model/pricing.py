"""The cost of a block or a model, part by part: in training, or for one more token in inference.

Shapes: L tokens, D width.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from ablate.nn.kernels.cross_entropy import logit_tensors
from ablate.nn.model import model_cost
from ablate.nn.model.block import block_cost
from ablate.nn.model.encoder import decoder_block_cost
from ablate.nn.model.stack import repeat_cost, token_head_cost
from ablate.spec.block import BlockSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec

PARTS = ("mixer", "mlp", "rest")
"""The sub-layers of a block; `rest`: norms, skips, gains, dropout and convolutions."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Equal layers that follow each other.

    Attributes:
        first: Index of the first one.
        count: How many there are.
        parts: Cost of one layer, by the names of `PARTS`.
        cache: Number of scalars that one layer caches for a sequence in inference; 0 in training.
    """

    first: int
    count: int
    block: BlockSpec
    parts: dict[str, Cost]
    cache: int

    @property
    def cost(self) -> Cost:
        """Cost of one layer."""
        return sum(self.parts.values(), Cost())


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a model over one sequence: a forward pass in training, one token in inference.

    Attributes:
        layers: Runs of equal layers.
        around: Cost of embedding, positions, final norm and head; zero if only blocks are priced.
    """

    layers: tuple[Layers, ...]
    around: Cost

    @property
    def total(self) -> Cost:
        """The cost of all layers, the embeddings and the head."""
        return sum((run.cost * run.count for run in self.layers), self.around)

    @property
    def cache(self) -> int:
        """Number of scalars that inference caches for a sequence, in all layers."""
        return sum(run.cache * run.count for run in self.layers)


def spared_activations(spec: ModelSpec, context: int, device: str) -> int:
    """Number of scalars of one example that the cost counts and that the kernels of a device do not keep."""
    passes = Counter(spec.order)
    spared = 0
    for layer, block in enumerate(spec.blocks):
        if (there := _on(device, block)) is block:
            continue
        surroundings = spec.layer_context(context, layer=layer)
        whole, kept = (sum(block_cost(each, surroundings, context).values(), Cost()) for each in (block, there))
        spared += passes[layer] * (whole.activations - kept.activations)
    return spared * (2 if spec.family == "dual_encoder" else 1)


def _on(device: str, block: BlockSpec) -> BlockSpec:
    """The block with the settings whose activations a device keeps; itself if they are its own."""
    mixer = block.mixer.on_gpu() if device == "cuda" else block.mixer
    return block if mixer is block.mixer else block.model_copy(update={"mixer": mixer})


def recomputed_activations(spec: ModelSpec, context: int, device: str = "cpu") -> tuple[int, int]:
    """Numbers of scalars of one example that recomputing each block saves, and that the largest block keeps.

    For each pass through a block only the stream at its start is kept.

    Args:
        context: The longest input in tokens.
        device: `cpu` or `cuda`.
    """
    kept: list[int] = []
    passes = Counter(spec.order)
    freed = 0
    for layer, block in enumerate(spec.blocks):
        surroundings = spec.layer_context(context, layer=layer)
        each = sum(block_cost(_on(device, block), surroundings, context).values(), Cost()).activations
        stream = context * math.prod(block.residual.stream_sizes(surroundings))
        kept.append(each)
        freed += passes[layer] * (each - stream)
    if spec.decoder is not None:
        each = decoder_block_cost(spec, context, context).activations
        kept.append(each)
        freed += spec.decoder.depth * (each - context * spec.width)
    texts = 2 if spec.family == "dual_encoder" else 1
    return texts * freed, max(kept)


def logit_activations(spec: ModelSpec, vocabulary: int, length: int) -> tuple[int, int]:
    """Numbers of scalars of the logits and the other tensors of the loss: for one example, and for one token."""
    if not vocabulary or spec.head is not None:
        return 0, 0
    each = token_head_cost(spec, vocabulary, 1).activations - spec.width
    ahead = len(spec.multi_token.weights) if spec.multi_token is not None else 0
    further = sum(logit_tensors(vocabulary) * vocabulary * max(0, length - 1 - step) for step in range(1, 1 + ahead))
    return each * length + further, each


def evaluation_activations(spec: ModelSpec, vocabulary: int, length: int, device: str = "cpu") -> int:
    """Number of scalars of one example that an evaluation needs at once: those of the largest block, or of the loss."""
    logits = 0 if spec.head is not None else 2 * vocabulary * length  # and their log-probabilities
    return max(logits, recomputed_activations(spec, length, device)[1])


def price(spec: ModelSpec, *, context: int, vocabulary: int = 0, classes: int = 0, inference: bool = False) -> Price:
    """Price a model over its longest input.

    Args:
        context: The longest input in tokens.
        vocabulary: Number of token ids; with 0 only the blocks are priced.
        classes: Number of classes, for a model with a `head`.
        inference: Whether to price one more token after `context` - 1 cached tokens. A bidirectional model has no cache
            and reads all tokens again.

    Raises:
        ValidationError: A mixer does not support this context.
    """
    spec.check_context(context)
    steps = inference and spec.causal
    layers: list[Layers] = []
    blocks = Cost()
    passes = Counter(spec.order)
    for index, block in enumerate(spec.blocks):
        surroundings = replace(spec.layer_context(context, layer=index), vocabulary=vocabulary)
        if not layers or layers[-1].block != block or block.differs_by_layer or spec.loops:
            parts = _step(block, surroundings) if steps else block_cost(block, surroundings, surroundings.context)
            parts = {name: repeat_cost(part, passes[index]) for name, part in parts.items()}
            cache = _cache(block, surroundings) * passes[index] if steps else 0
            run = Layers(index, 0, block, parts, cache)
            if not layers or replace(layers[-1], first=index, count=0) != run:
                layers.append(run)
        layers[-1] = replace(layers[-1], count=layers[-1].count + 1)
        blocks += repeat_cost(
            sum(block_cost(block, surroundings, 1 if steps else surroundings.context).values(), Cost()), passes[index]
        )
    around = Cost()
    if vocabulary:
        length = 1 if steps else context
        around = model_cost(spec, vocabulary=vocabulary, context=context, classes=classes, length=length) + blocks * -1
    total = Price(tuple(layers), around)
    return _without_activations(total) if inference else total


def _cache(block: BlockSpec, context: LayerContext) -> int:
    """The state of the mixer, and what convolutions and the residual keep of the last tokens."""
    convolved = sum((spec.taps - 1) * channels for spec, channels in block.channels_of_convolutions(context))
    return block.mixer.cache(context, context.context) + convolved + block.residual.cache(context)


def _step(block: BlockSpec, context: LayerContext) -> dict[str, Cost]:
    parts = block_cost(block, context, 1)
    return {
        "mixer": block.mixer.step_cost(context, context.context),
        "mlp": block.mlp.cost(context, 1),
        "rest": parts["rest"],
    }


def _without_activations(priced: Price) -> Price:
    layers = tuple(
        replace(run, parts={name: replace(part, activations=0) for name, part in run.parts.items()})
        for run in priced.layers
    )
    return Price(layers, replace(priced.around, activations=0))

"""Models with an encoder: with a head, and the Transformer that reads one text and writes another (arXiv:1706.03762).

The head is a classifier over pooled tokens, or token logits (a masked language model). In the Transformer, with a
decoder that has cross-attention, one embedding matrix serves the source, the target and, if `tied_head`, the logits.
Three masks: the source's padding in the encoder and in the cross-attention, the target's padding and the future in the
decoder. The task shifts the target right by one.

Shapes: K pack, B batch, T tokens, S source tokens, D width, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from ablate.nn.model.block import block_cost, build_part, with_initialiser
from ablate.nn.model.decoder import States, advance
from ablate.nn.model.stack import (
    Stack,
    TokenHead,
    embedding_cost,
    share_modules,
    shared_parameters,
    stack_cost,
    token_head_cost,
)
from ablate.nn.pack import ACTIVATIONS, Packed, State, counting, dropout, linear, recompute, recomputes, step, zeros
from ablate.spec.block import BlockSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.model_fields import HeadSpec
from ablate.spec.sublayers import MixerSpec


class Classifier(nn.Module):
    """[K, B, inputs] through hidden layers to [K, B, classes]; all maps are biased."""

    def __init__(self, spec: HeadSpec, context: LayerContext, inputs: int, classes: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[spec.activation]
        widths = (inputs, *spec.hidden, classes)
        self.layers = nn.ModuleList(linear(context, *pair, bias=True, role="head") for pair in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, inputs] to logits [K, B, classes]."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits


def pool(kind: str, x: Tensor, padding: Tensor | None) -> Tensor:
    """[K, B, T, D] to [K, B, D]: the first real token (CLS, if the model has one), or the mean of the real tokens."""
    if padding is None:
        return x.mean(2) if kind == "mean" else x[:, :, 0]
    if kind != "mean":
        first = padding.int().argmax(2)[..., None, None]  # of equal ones argmax gives the first
        return x.take_along_dim(first, 2).squeeze(2)
    real = padding.unsqueeze(-1).to(x.dtype)
    return (x * real).sum(2) / real.sum(2).clamp(min=1)


def classifier_cost(spec: HeadSpec, inputs: int, classes: int) -> Cost:
    """Cost of a `Classifier` for one example; an activation counts as one multiplication for each element."""
    total = Cost()
    for wide, narrow in pairwise((inputs, *spec.hidden, classes)):
        total += linear_cost(1, wide, narrow, bias=True)
    hidden = sum(spec.hidden)
    return total + Cost(multiplications=hidden, activations=hidden)


class MaskedEncoder(TokenHead):
    """A bidirectional stack whose output is a distribution over tokens at every place."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to logits [K, B, T, V]; `padding` [K, B, T] is True where a token is real."""
        with counting(padding):
            return self.logits(self.mix(self.embed(tokens), padding))


class Pooled(Stack):
    """A bidirectional stack whose tokens are pooled into one vector."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack)
        assert spec.head is not None
        self.pooling = spec.head.pooling
        self.cls = ClsToken(spec.head, spec.layer_context(context, pack)) if self.pooling == "cls" else None

    def pool_tokens(self, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """Token ids [K, B, T] to [K, B, D]."""
        x = self.embed(tokens)
        if self.cls is not None:
            x = self.cls(x)
            if padding is not None:
                padding = torch.cat([torch.ones_like(padding[:, :, :1]), padding], 2)
        return pool(self.pooling, self.mix(x, padding), padding)


class ClsToken(Packed):
    """A trained token before the first, without a position."""

    weight: Tensor

    def __init__(self, spec: HeadSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        start = zeros if spec.start == "zero" else context.initial("embedding", 1, context.width)
        self.declare("weight", (context.width,), start)

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, 1 + T, D]."""
        token = self.weight[:, None, None, :].expand(-1, x.shape[1], -1, -1)
        return torch.cat([token, x], 2)


class EncoderClassifier(Pooled):
    """One text to logits of its class."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack)
        assert spec.head is not None
        self.head = Classifier(spec.head, spec.layer_context(context, pack), spec.width, classes)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to logits [K, B, C]; `padding` [K, B, T] is True where a token is real."""
        logits: Tensor = self.head(self.pool_tokens(tokens, padding))
        return logits


class DualEncoder(Pooled):
    """Two texts through one encoder to logits of their relation: [a, b], or [a, b, a∘b, a-b] (arXiv:2011.04006)."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack)
        assert spec.head is not None
        self.interaction = spec.head.features == "interaction"
        self.head = Classifier(spec.head, spec.layer_context(context, pack), _features(spec), classes)

    def forward(self, a: Tensor, b: Tensor, a_padding: Tensor | None = None, b_padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] and [K, B, S] to logits [K, B, C]."""
        left, right = self.pool_tokens(a, a_padding), self.pool_tokens(b, b_padding)
        features = [left, right, left * right, left - right] if self.interaction else [left, right]
        logits: Tensor = self.head(torch.cat(features, -1))
        return logits


def build_encoder(spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> Stack:
    """The module of a `ModelSpec` of family `encoder`."""
    kind = MaskedEncoder if spec.head is None else EncoderClassifier
    return kind(spec, vocabulary, context, classes, pack)


def encoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence of `length` tokens."""
    if spec.head is None:
        stack = stack_cost(spec, vocabulary, context, length)
        return stack + token_head_cost(spec, vocabulary, length)
    return _pooled_cost(spec, vocabulary, context, length) + classifier_cost(spec.head, spec.width, classes)


def dual_encoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over two sequences of `length` tokens each."""
    assert spec.head is not None
    once = _pooled_cost(spec, vocabulary, context, length)
    again = once + Cost(parameters=-once.parameters)
    return once + again + classifier_cost(spec.head, _features(spec), classes)


def _pooled_cost(spec: ModelSpec, vocabulary: int, context: int, length: int) -> Cost:
    assert spec.head is not None
    cls = spec.head.pooling == "cls"
    stack = stack_cost(spec, vocabulary, context, length + cls)
    sums = length * spec.width if spec.head.pooling == "mean" else 0
    return stack + Cost(parameters=spec.width if cls else 0, additions=sums)


def _features(spec: ModelSpec) -> int:
    assert spec.head is not None
    return spec.width * (4 if spec.head.features == "interaction" else 2)


class EncoderDecoder(TokenHead):
    """The module of a `ModelSpec` of family `encoder_decoder`."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack, causal=False)
        assert spec.decoder is not None
        self.decoder_blocks = nn.ModuleList(
            DecoderBlock(
                spec.block,
                spec.decoder.mixer,
                spec.layer_context(context, pack, layer=layer, causal=True),
                spec.layer_context(context, pack, layer=layer, cross=True),
            )
            for layer in range(spec.decoder.depth)
        )
        share_modules(self.decoder_blocks)
        self.decoder_norm = spec.final_norm.build(pack, spec.width)

    def forward(
        self, source: Tensor, target: Tensor, source_padding: Tensor | None = None, target_padding: Tensor | None = None
    ) -> Tensor:
        """Token ids [K, B, S] and [K, B, T] to logits of the next target token [K, B, T, V]."""
        memory = self.mix(self.embed(source), source_padding)
        return self.decode(memory, target, source_padding, target_padding)

    def decode(
        self, memory: Tensor, target: Tensor, source_padding: Tensor | None = None, target_padding: Tensor | None = None
    ) -> Tensor:
        """The encoder's output [K, B, S, D] and target ids [K, B, T] to logits [K, B, T, V]."""
        y = self.embed(target)
        y = dropout(y, self.spec.dropout, self.training)
        for block in self.decoder_blocks:
            inputs = block, y, memory, target_padding, source_padding
            y = recompute(_run, *inputs) if recomputes() else _run(*inputs)
        with counting(target_padding):
            return self.logits(self.decoder_norm(y))

    def decode_step(
        self, memory: Tensor, target: Tensor, position: int, states: States, source_padding: Tensor | None = None
    ) -> tuple[Tensor, States]:
        """The output of `decode` for one more target token, [K, B, 1] to [K, B, 1, V]; as `Decoder.step`."""

        def one(target: Tensor, position: int, states: States) -> tuple[Tensor, States]:
            y = self.embed(target, position)
            kept = []
            for block, state in zip(self.decoder_blocks, states or ((),) * len(self.decoder_blocks), strict=True):
                y, state = cast(DecoderBlock, block).step(y, position, state, memory, source_padding)
                kept.append(state)
            return self.logits(self.decoder_norm(y)), tuple(kept)

        def whole(read: Tensor) -> Tensor:
            return self.decode(memory, read, source_padding)

        return advance(self.spec.incremental_limit, one, whole, target, position, states)


def _run(block: nn.Module, x: Tensor, memory: Tensor, padding: Tensor | None, memory_padding: Tensor | None) -> Tensor:
    """A `DecoderBlock`, in whose statistics only the real tokens of the target count."""
    with counting(padding):
        y: Tensor = block(x, memory, padding, memory_padding)
    return y


class DecoderBlock(nn.Module):
    """Causal mixer, cross-attention, MLP; each with dropout, a skip and a norm before (pre) or after the sum (post).

    The cross-attention has the norm and the initialiser of the block's mixer.
    """

    def __init__(self, spec: BlockSpec, cross: MixerSpec, causal: LayerContext, crossing: LayerContext) -> None:
        super().__init__()
        self.spec = spec
        before_mixer, before_mlp = spec.norms
        self.mixer = build_part(spec.mixer, with_initialiser(causal, spec.initialiser_mixer))
        self.cross = build_part(cross, with_initialiser(crossing, spec.initialiser_mixer))
        self.mlp = build_part(spec.mlp, with_initialiser(causal, spec.initialiser_mlp))
        self.norm_mixer = before_mixer.build(causal.pack, causal.width)
        self.norm_cross = before_mixer.build(causal.pack, causal.width)
        self.norm_mlp = before_mlp.build(causal.pack, causal.width)

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor | None, memory_padding: Tensor | None) -> Tensor:
        """Target [K, B, T, D] and the encoder's output [K, B, S, D] to [K, B, T, D]."""
        x = self._add(x, 0, self.norm_mixer, lambda y: self.mixer(y, padding))
        return self._rest(x, memory, padding, memory_padding)

    def step(
        self, x: Tensor, position: int, state: State, memory: Tensor, memory_padding: Tensor | None
    ) -> tuple[Tensor, State]:
        """One target token [K, B, 1, D] through the block, and the mixer's state for the next; as `Stepping.step`."""
        kept = [state]

        def mix(y: Tensor) -> Tensor:
            mixed: Tensor
            mixed, kept[0] = step(self.mixer, y, position, state)
            return mixed

        return self._rest(self._add(x, 0, self.norm_mixer, mix), memory, None, memory_padding), kept[0]

    def _rest(self, x: Tensor, memory: Tensor, padding: Tensor | None, memory_padding: Tensor | None) -> Tensor:
        x = self._add(x, 0, self.norm_cross, lambda y: self.cross(y, padding, memory, memory_padding))
        return self._add(x, 1, self.norm_mlp, self.mlp)

    def _add(self, x: Tensor, which: int, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        pre = self.spec.norms[which].place == "pre"
        y = dropout(part(norm(x) if pre else x), self.spec.dropout, self.training)
        total: Tensor = x + y if pre else norm(x + y)
        return total


def decoder_block_cost(spec: ModelSpec, context: int, length: int) -> Cost:
    """Cost of the forward pass of one `DecoderBlock` over a source and a target of `length` tokens each."""
    assert spec.decoder is not None
    block = sum(block_cost(spec.block, spec.layer_context(context, causal=True), length).values(), Cost())
    cross = spec.decoder.mixer.cost(spec.layer_context(context, cross=True), length)
    return block + cross + spec.block.norms[0].cost(spec.width, length) + Cost(additions=length * spec.width)


def encoder_decoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over a source and a target of `length` tokens each."""
    assert spec.decoder is not None
    total = stack_cost(spec, vocabulary, context, length, causal=False)
    elements = length * spec.width
    # The target is embedded by the same matrices.
    total += replace(embedding_cost(spec, context, length), parameters=0)
    total += Cost(activations=elements * (spec.dropout > 0))
    total += decoder_block_cost(spec, context, length) * spec.decoder.depth
    layers = range(spec.decoder.depth)
    total += Cost(parameters=-shared_parameters(spec.layer_context(context, causal=True) for _ in layers))
    return total + spec.final_norm.cost(spec.width, length) + token_head_cost(spec, vocabulary, length)

"""An encoder with a head: a classifier over pooled tokens, or token logits (a masked language model).

Shapes: K pack, B batch, T tokens, D width, V vocabulary, C classes.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ablate.nn.model.stack import Stack, TokenHead, stack_cost, token_head_cost
from ablate.nn.pack import ACTIVATIONS, Packed, counting, linear, zeros
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.model_parts import HeadSpec


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

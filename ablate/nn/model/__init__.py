"""From a spec to a model and its cost. A new model family is one entry of `FAMILIES`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from ablate.nn.model.decoder import Decoder, decoder_cost
from ablate.nn.model.encoder import (
    DualEncoder,
    EncoderDecoder,
    build_encoder,
    dual_encoder_cost,
    encoder_cost,
    encoder_decoder_cost,
)
from ablate.nn.pack import initialise
from ablate.spec.cost import Cost
from ablate.spec.model import ModelSpec

Build = Callable[[ModelSpec, int, int, int, int], nn.Module]
"""(spec, vocabulary, context, classes, pack) to a module."""
Price = Callable[[ModelSpec, int, int, int, int], Cost]
"""(spec, vocabulary, context, classes, length) to the cost of one example."""

FAMILIES: dict[str, tuple[Build, Price]] = {
    "decoder": (Decoder, decoder_cost),
    "encoder": (build_encoder, encoder_cost),
    "dual_encoder": (DualEncoder, dual_encoder_cost),
    "encoder_decoder": (EncoderDecoder, encoder_decoder_cost),
}


def build_model(spec: ModelSpec, *, vocabulary: int, context: int, classes: int = 0, seeds: Sequence[int]) -> nn.Module:
    """A pack of models of one spec, member k with the initial values of `seeds[k]`.

    Args:
        vocabulary: Number of token ids V.
        context: The longest input in tokens.
        classes: Number of classes, for a model with a `head`.
        seeds: One for each member; their number is K.
    """
    spec.check_context(context)
    model = FAMILIES[spec.family][0](spec, vocabulary, context, classes, len(seeds))
    initialise(model, seeds)
    return model


def outline(spec: ModelSpec, *, vocabulary: int, context: int, classes: int = 0) -> nn.Module:
    """A pack of one whose tensors have names and shapes, but neither values nor memory: on the device `meta`.

    With a user's kind that reads values while it is built, it has memory after all; `ablate check-kind` reports it.

    Args:
        vocabulary: Number of token ids V.
        context: The longest input in tokens.
        classes: Number of classes, for a model with a `head`.
    """
    spec.check_context(context)
    build = FAMILIES[spec.family][0]
    try:
        with torch.device("meta"):
            return build(spec, vocabulary, context, classes, 1)
    except Exception:  # tensors of this device have no values to read
        return build(spec, vocabulary, context, classes, 1)


def model_cost(spec: ModelSpec, *, vocabulary: int, context: int, classes: int = 0, length: int | None = None) -> Cost:
    """Cost of the forward pass over one example (of the longest input unless `length` is given)."""
    return FAMILIES[spec.family][1](spec, vocabulary, context, classes, length or context)


def mean_flops(spec: ModelSpec, lengths: Sequence[int], *, vocabulary: int, context: int, classes: int = 0) -> float:
    """Arithmetic of the forward pass over one example, on average over examples of these lengths."""
    price = FAMILIES[spec.family][1]
    return sum(price(spec, vocabulary, context, classes, length).flops for length in lengths) / len(lengths)

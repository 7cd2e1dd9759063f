"""From a spec to a model, and what it costs. A new family is one entry of `FAMILIES`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ablate.model.decoder import Decoder, decoder_cost
from ablate.pack import initialise
from ablate.spec.cost import Cost
from ablate.spec.model import ModelSpec

FAMILIES = {"decoder": (Decoder, decoder_cost)}


def build_model(spec: ModelSpec, *, vocabulary: int, context: int, seeds: Sequence[int]) -> nn.Module:
    """A pack of models of one spec, member k with the initial values of `seeds[k]`.

    Args:
        spec: The model.
        vocabulary: Number of token ids V.
        context: The longest input in tokens.
        seeds: One for each member; their number is K.
    """
    spec.check_context(context)
    model = FAMILIES[spec.family][0](spec, vocabulary, context, len(seeds))
    initialise(model, seeds)
    return model


def model_cost(spec: ModelSpec, *, vocabulary: int, context: int, length: int | None = None) -> Cost:
    """Cost of the forward pass over one sequence (of the longest input unless `length` is given)."""
    return FAMILIES[spec.family][1](spec, vocabulary, context, length or context)

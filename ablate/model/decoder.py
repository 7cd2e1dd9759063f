"""A decoder language model: embedding, positions, causal blocks, norm, head.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from ablate.model.stack import TokenHead, stack_cost, token_head_cost
from ablate.spec.cost import Cost
from ablate.spec.model import ModelSpec


class Decoder(TokenHead):
    """The module of a `ModelSpec` of family `decoder`."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, spec.mixer_context(context, pack))

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to logits of the next token [K, B, T, V]."""
        return self.logits(self.mix(self.embed(tokens), padding))


def decoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence of `length` tokens."""
    stack = stack_cost(spec, vocabulary, context, length, spec.mixer_context(context))
    return stack + token_head_cost(spec, vocabulary, length)

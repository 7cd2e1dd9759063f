"""A decoder language model: embedding, positions, causal blocks, norm, head.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor

from ablate.model.block import Block
from ablate.model.stack import TokenHead, stack_cost, token_head_cost
from ablate.pack import State
from ablate.spec.cost import Cost
from ablate.spec.model import ModelSpec

States = tuple[State, ...]
"""What each block keeps of the tokens it has read."""


class Decoder(TokenHead):
    """The module of a `ModelSpec` of family `decoder`."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, spec.mixer_context(context, pack))

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to logits of the next token [K, B, T, V]."""
        return self.logits(self.mix(self.embed(tokens), padding))

    def step(self, tokens: Tensor, place: int, states: States) -> tuple[Tensor, States]:
        """What `forward` gives for one token more: ids [K, B, 1] to logits [K, B, 1, V].

        Args:
            tokens: The token at `place`, counted from 0.
            place: How many tokens stand before it.
            states: What the blocks keep of those; empty at first.

        Returns:
            The logits, and what is to be kept for the next token.
        """
        x = self.embed(tokens, place)
        kept = []
        for block, state in zip(self.blocks, states or ((),) * len(self.blocks), strict=True):
            x, state = cast(Block, block).step(x, place, state)
            kept.append(state)
        return self.logits(self.norm(x)), tuple(kept)


def decoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence of `length` tokens."""
    stack = stack_cost(spec, vocabulary, context, length, spec.mixer_context(context))
    return stack + token_head_cost(spec, vocabulary, length)

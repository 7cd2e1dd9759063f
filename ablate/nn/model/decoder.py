"""A decoder language model: embedding, positions, causal blocks, norm, head.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from ablate.nn.model.block import Block
from ablate.nn.model.stack import TokenHead, stack_cost, token_head_cost
from ablate.nn.pack import Shared, State
from ablate.spec.cost import Cost
from ablate.spec.model import ModelSpec

States = tuple[State, ...]
"""What each block keeps of the tokens it has read."""


class Decoder(TokenHead):
    """The module of a `ModelSpec` of family `decoder`."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to logits of the next token [K, B, T, V]."""
        return self.logits(self.mix(self.embed(tokens), padding, tokens))

    def step(self, tokens: Tensor, place: int, states: States) -> tuple[Tensor, States]:
        """What `forward` gives for one token more: ids [K, B, 1] to logits [K, B, 1, V].

        Args:
            tokens: The token at `place`, counted from 0.
            place: How many tokens stand before it.
            states: What the blocks keep of those; empty at first.

        Returns:
            The logits, and what is to be kept for the next token.
        """
        before = iter(states or ((),) * len(self.blocks))
        kept: list[State] = []

        def run(block: Block, stream: Tensor, shared: Shared) -> Tensor:
            stream, state = block.step(stream, place, next(before), shared)
            kept.append(state)
            return stream

        return self.logits(self.through(self.embed(tokens, place), run, tokens)), tuple(kept)


def decoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence of `length` tokens."""
    return stack_cost(spec, vocabulary, context, length) + token_head_cost(spec, vocabulary, length)

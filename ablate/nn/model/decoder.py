"""A decoder language model: embedding, positions, causal blocks, norm, head.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from ablate.nn.model.block import Block
from ablate.nn.model.prediction import FurtherToken, add_further_losses, add_token_loss, further_cost
from ablate.nn.model.stack import TokenHead, stack_cost, token_head_cost
from ablate.nn.pack import Shared, State, collects_losses, counting, gathers, numbers_documents
from ablate.nn.pack.forward_pass import logit_chunk
from ablate.spec.cost import Cost
from ablate.spec.model import ModelSpec

States = tuple[State, ...]
"""The states of the embedding, and of each block at each of its passes, after the tokens read so far."""


class Decoder(TokenHead):
    """The module of a `ModelSpec` of family `decoder`."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack)
        further = spec.multi_token
        modules = len(further.weights) if further is not None and further.form == "modules" else 0
        self.further = nn.ModuleList(FurtherToken(spec, context, pack) for _ in range(modules))

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to logits of the next token [K, B, T, V]; in training auxiliary losses are added.

        `padding` [K, B, T] is True where a token is real, or numbers documents that see nothing of one another.
        """
        embedded = self.embed(tokens, documents=padding if numbers_documents(padding) else None)
        hidden = self.hidden(embedded, padding, tokens)
        with counting(padding):
            logits = self.logits(self.norm(hidden))
            if self.spec.multi_token is not None and self.training and (collects_losses() or gathers()):
                self.look_further(tokens, embedded, hidden, logits)
        return logits

    def look_further(self, tokens: Tensor, embedded: Tensor, hidden: Tensor, logits: Tensor) -> None:
        """Add the losses of the tokens after the next one, as far as the text has them.

        Args:
            tokens: Ids, [K, B, T].
            embedded: Their embeddings, [K, B, T, D].
            hidden: The output of the blocks, [K, B, T, D].
            logits: Of the next token, [K, B, T, V]; features [K, B, T, D] where logits are computed in chunks.
        """
        assert self.spec.multi_token is not None
        weights = self.spec.multi_token.weights
        if self.spec.multi_token.form == "modules":
            add_further_losses(weights, tokens, embedded, hidden, list(self.further), self.logits_of_hidden)
        else:
            head = self.capped_logits if logit_chunk() else lambda given: given
            for ahead, weight in enumerate(weights, 2):
                add_token_loss(weight, ahead, logits, tokens, head)

    def logits_of_hidden(self, hidden: Tensor) -> Tensor:
        """The output of the blocks, [K, B, T, D], to logits [K, B, T, V]."""
        return self.capped_logits(self.norm(hidden))

    def step(self, tokens: Tensor, position: int, states: States) -> tuple[Tensor, States]:
        """The output of `forward` for one more token: ids [K, B, 1] to logits [K, B, 1, V].

        Args:
            tokens: The token at `place`, counted from 0.
            position: The number of tokens before it.
            states: States of the blocks after those tokens; empty at first.

        Returns:
            The logits, and the states for the next token.
        """
        looked_back, *of_blocks = states or ((),) * (1 + len(self.spec.order))
        before = iter(of_blocks)
        kept: list[State] = [self.look_back(tokens, looked_back)]

        def run(block: Block, stream: Tensor, shared: Shared) -> Tensor:
            stream, state = block.step(stream, position, next(before), shared)
            kept.append(state)
            return stream

        hidden = self.through(self.embed(tokens, position, looked_back), run, tokens)
        return self.logits(self.norm(hidden)), tuple(kept)


def decoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence of `length` tokens."""
    total = stack_cost(spec, vocabulary, context, length) + token_head_cost(spec, vocabulary, length)
    return total + further_cost(spec, vocabulary, context, length)

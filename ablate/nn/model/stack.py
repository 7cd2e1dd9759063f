"""What every family has: token embedding with positions, a stack of blocks, a final norm. And what these cost.

Shapes: K pack, B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from torch import Tensor, nn

from ablate.nn.model.block import Block, block_cost, build_block
from ablate.nn.pack import Embedding, Shared, dropout, linear
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.model import ModelSpec
from ablate.spec.part import EMBEDDING


class Stack(nn.Module):
    """Embedding, positions, blocks, norm; a family adds its head.

    Args:
        spec: The model.
        vocabulary: Number of token ids V.
        context: The longest input in tokens.
        pack: K.
        causal: Whether the future is hidden; None: as the family has it.
    """

    def __init__(
        self, spec: ModelSpec, vocabulary: int, context: int, pack: int, *, causal: bool | None = None
    ) -> None:
        super().__init__()
        self.spec = spec
        surroundings = replace(spec.layer_context(context, pack, causal=causal), vocabulary=vocabulary)
        initial = surroundings.initial("embedding", vocabulary, spec.width)
        self.embedding = Embedding(pack, vocabulary, spec.width, initial=initial)
        added = spec.positions.applied == "embedding"
        self.positions = spec.positions.build(replace(surroundings, context=context)) if added else None
        self.blocks = nn.ModuleList(
            build_block(
                block, replace(spec.layer_context(context, pack, layer=layer, causal=causal), vocabulary=vocabulary)
            )
            for layer, block in enumerate(spec.blocks)
        )
        self.stream, self.tokens = surroundings.stream(EMBEDDING), surroundings.tokens
        self.read = {
            tensor
            for block in self.blocks
            for sharing in cast(Block, block).sharing.values()
            for tensor in sharing.reads
        }
        self.norm = spec.final_norm.build(pack, spec.width)

    def embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Token ids [K, B, T], from place `first` on, to [K, B, T, D], positions added.

        Raises:
            ValueError: They have another shape, or no tokens.
        """
        if tokens.dim() != 3 or 0 in tokens.shape:
            raise ValueError(f"token ids [K, B, T] of one token at least are expected; got {list(tokens.shape)}")
        x: Tensor = self.embedding(tokens)
        if self.spec.embedding_scale == "sqrt_width":
            x = x * math.sqrt(self.spec.width)
        return x if self.positions is None else self.positions(x, first)

    def mix(self, x: Tensor, padding: Tensor | None, tokens: Tensor | None = None) -> Tensor:
        """[K, B, T, D] through dropout, blocks and norm; `tokens` [K, B, T] are ids that layers may read."""
        x = dropout(x, self.spec.dropout, self.training)
        return self.through(x, lambda block, stream, shared: block(stream, padding, shared), tokens)

    def through(
        self, x: Tensor, run: Callable[[Block, Tensor, Shared], Tensor], tokens: Tensor | None = None
    ) -> Tensor:
        """Embeddings [K, B, T, D] through all blocks, as `run` runs one, and the norm."""
        blocks = [cast(Block, block) for block in self.blocks]
        shared: Shared = {self.stream: x} if self.stream in self.read else {}
        if tokens is not None and self.tokens in self.read:
            shared[self.tokens] = tokens
        stream = blocks[0].residual.open(x)
        for block in blocks:
            stream = run(block, stream, shared)
            if block.stream in self.read:
                shared[block.stream] = stream
        y: Tensor = self.norm(blocks[-1].residual.close(stream))
        return y


class TokenHead(Stack):
    """A stack whose output is a distribution over tokens, by the embedding's own matrix or by one apart."""

    def __init__(
        self, spec: ModelSpec, vocabulary: int, context: int, pack: int, *, causal: bool | None = None
    ) -> None:
        super().__init__(spec, vocabulary, context, pack, causal=causal)
        surroundings = spec.layer_context(context, pack)
        self.head = None if spec.tied_head else linear(surroundings, spec.width, vocabulary, role="head")

    def logits(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, T, V]."""
        logits: Tensor = self.embedding.logits(x) if self.head is None else self.head(x)
        return logits


def stack_cost(spec: ModelSpec, vocabulary: int, context: int, length: int, *, causal: bool | None = None) -> Cost:
    """Cost of a `Stack` over one sequence of `length` tokens that the blocks see."""
    total = Cost(parameters=vocabulary * spec.width, activations=length * spec.width * (spec.dropout > 0))
    total += embedding_cost(spec, context, length)
    first = 0
    for _, same in itertools.groupby(spec.blocks, key=id):  # layers without an exception share one spec
        block, *others = same
        count = 1 + len(others)
        # And one cost, unless what a layer reads of others depends on its index.
        alike, times = (range(first, first + count), 1) if block.shares else (range(first, first + 1), count)
        for layer in alike:
            told = replace(spec.layer_context(context, layer=layer, causal=causal), vocabulary=vocabulary)
            total += sum(block_cost(block, told, length).values(), Cost()) * times
        first += count
    return total + spec.final_norm.cost(spec.width, length)


def embedding_cost(spec: ModelSpec, context: int, length: int) -> Cost:
    """Cost of scaling token embeddings and of adding positions to them, the table of tokens apart."""
    scaled = Cost(multiplications=length * spec.width * (spec.embedding_scale != "none"))
    if spec.positions.applied != "embedding":
        return scaled
    return scaled + spec.positions.cost(replace(spec.layer_context(context), context=context), length)


def token_head_cost(spec: ModelSpec, vocabulary: int, length: int) -> Cost:
    """Cost of the map to token logits; at the loss, logits, log-probabilities and the gradients of both are there."""
    head = linear_cost(length, spec.width, vocabulary) + Cost(activations=4 * length * vocabulary)
    return head + Cost(parameters=-spec.width * vocabulary) if spec.tied_head else head

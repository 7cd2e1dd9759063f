"""What every family has: token embedding with positions, a stack of blocks, a final norm. And what these cost.

Shapes: K pack, B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import itertools
import math

from torch import Tensor, nn

from ablate.model.block import block_cost, build_block
from ablate.model.norm import build_norm, norm_cost
from ablate.model.positions import LearnedPositions, SinusoidalPositions
from ablate.pack import Embedding, Linear, dropout, normal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.mixer import MixerContext
from ablate.spec.model import ModelSpec

FINAL_EPS = 1e-8


class Stack(nn.Module):
    """Embedding, positions, blocks, norm; a family adds its head.

    Args:
        spec: The model.
        vocabulary: Number of token ids V.
        context: The longest input in tokens.
        mixer_context: What the mixers are told.
    """

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, mixer_context: MixerContext) -> None:
        super().__init__()
        self.spec = spec
        pack = mixer_context.pack
        self.embedding = Embedding(pack, vocabulary, spec.width, std=spec.init_std)
        self.positions: nn.Module | None = None
        if spec.positions == "learned":
            self.positions = LearnedPositions(pack, context, spec.width, std=spec.init_std)
        elif spec.positions == "sinusoidal":
            self.positions = SinusoidalPositions(context, spec.width)
        self.blocks = nn.ModuleList(build_block(block, mixer_context) for block in spec.blocks)
        self.norm = build_norm(spec.final_norm, pack, spec.width, FINAL_EPS)

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

    def mix(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """[K, B, T, D] through dropout, blocks and norm."""
        x = dropout(x, self.spec.dropout, self.training)
        for block in self.blocks:
            x = block(x, padding)
        y: Tensor = self.norm(x)
        return y


class TokenHead(Stack):
    """A stack whose output is a distribution over tokens, by the embedding's own matrix or by one apart."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, mixer_context: MixerContext) -> None:
        super().__init__(spec, vocabulary, context, mixer_context)
        initial = normal(spec.init_std)
        self.head = None if spec.tied_head else Linear(mixer_context.pack, spec.width, vocabulary, initial=initial)

    def logits(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, T, V]."""
        logits: Tensor = self.embedding.logits(x) if self.head is None else self.head(x)
        return logits


def stack_cost(spec: ModelSpec, vocabulary: int, context: int, length: int, mixer_context: MixerContext) -> Cost:
    """Cost of a `Stack` over one sequence of `length` tokens that the blocks see."""
    total = Cost(parameters=vocabulary * spec.width, activations=length * spec.width * (spec.dropout > 0))
    if spec.embedding_scale != "none":
        total += Cost(multiplications=length * spec.width)
    if spec.positions in ("learned", "sinusoidal"):
        learned = context * spec.width if spec.positions == "learned" else 0
        total += Cost(parameters=learned, additions=length * spec.width)
    for _, same in itertools.groupby(spec.blocks, key=id):  # layers without an exception share one spec
        block, *others = same
        mixer, mlp, rest = block_cost(block, mixer_context, length).values()
        total += (mixer + mlp + rest) * (1 + len(others))
    return total + norm_cost(spec.final_norm, spec.width, length)


def token_head_cost(spec: ModelSpec, vocabulary: int, length: int) -> Cost:
    """Cost of the map to token logits; at the loss, logits, log-probabilities and the gradients of both are there."""
    head = linear_cost(length, spec.width, vocabulary) + Cost(activations=4 * length * vocabulary)
    return head + Cost(parameters=-spec.width * vocabulary) if spec.tied_head else head

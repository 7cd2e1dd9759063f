"""A decoder language model: embedding, positions, blocks, norm, head.

Shapes: K pack, B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.block import block_cost, build_block
from ablate.model.norm import build_norm, norm_parameters
from ablate.model.positions import LearnedPositions, SinusoidalPositions
from ablate.pack import Embedding, Linear, normal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.model import ModelSpec

FINAL_EPS = 1e-8


class Decoder(nn.Module):
    """The module of a `ModelSpec` of family `decoder`."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, pack: int) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = Embedding(pack, vocabulary, spec.width, std=spec.init_std)
        self.positions: nn.Module | None = None
        if spec.positions == "learned":
            self.positions = LearnedPositions(pack, context, spec.width, std=spec.init_std)
        elif spec.positions == "sinusoidal":
            self.positions = SinusoidalPositions(context, spec.width)
        mixer_context = spec.mixer_context(context, pack)
        self.blocks = nn.ModuleList(build_block(block, mixer_context) for block in spec.blocks)
        self.norm = build_norm(spec.final_norm, pack, spec.width, FINAL_EPS)
        self.head = None if spec.tied_head else Linear(pack, spec.width, vocabulary, initial=normal(spec.init_std))

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids [K, B, T] to logits of the next token [K, B, T, V]."""
        x = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x)
        if self.spec.dropout > 0:
            x = F.dropout(x, self.spec.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        logits: Tensor = self.embedding.logits(x) if self.head is None else self.head(x)
        return logits


def decoder_cost(spec: ModelSpec, vocabulary: int, context: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence of `length` tokens."""
    mixer_context = spec.mixer_context(context)
    total = Cost(parameters=vocabulary * spec.width, activations=length * spec.width)
    if spec.positions != "none":
        learned = context * spec.width if spec.positions == "learned" else 0
        total += Cost(parameters=learned, additions=length * spec.width)
    for _, same in itertools.groupby(spec.blocks, key=id):  # layers without an exception share one spec
        block, *others = same
        for part in block_cost(block, mixer_context, length).values():
            total += part * (1 + len(others))
    if spec.final_norm != "none":
        elements = length * spec.width
        total += Cost(
            parameters=norm_parameters(spec.final_norm, spec.width),
            multiplications=2 * elements + length,
            additions=elements,
            divisions=elements,
            activations=elements,
        )
    head = linear_cost(length, spec.width, vocabulary)
    if spec.tied_head:
        head += Cost(parameters=-spec.width * vocabulary)
    # The logits are kept for the loss.
    return total + head + Cost(activations=length * vocabulary)

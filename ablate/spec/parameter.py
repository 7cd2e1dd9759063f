"""`ParameterInfo`: what optimizers and parametrisations know about a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["matrix", "embedding", "head", "gain"]
"""The role of a parameter. `matrix`: a weight matrix of a hidden layer, or a stack of them. `embedding`: the table of
tokens or learned positions. `head`: a matrix between the last block and the outputs; a head tied to the embedding is
`embedding`. `gain`: everything else, such as gains, norms, biases and the filters of depthwise convolutions."""


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """Facts about a parameter for optimizers.

    Attributes:
        name: Qualified name, as in `model.named_parameters()`.
        shape: Shape for one member, without the pack axis.
        role: Role in the model.
        decays: Whether weight decay applies: to matrices, embeddings and filters, but not to gains, norms and biases.
        layer: Index of its block, from 0; None outside the blocks.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    decays: bool
    layer: int | None = None

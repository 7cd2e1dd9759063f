"""Primitives that carry the pack axis: K members trained as one program, each on its own.

Every parameter is [K, ...] and every activation [K, B, T, D]; a single trial is a pack of one. Mixers and models are
written from these. Shapes: K pack, B batch, T tokens, D width.
"""

from ablate.pack.dropout import dropout, member_streams
from ablate.pack.initial import constant, identity, initialise, normal, orthogonal, zeros
from ablate.pack.layers import Embedding, Gain, HeadGain, LayerNorm, Linear, RMSNorm
from ablate.pack.packed import Packed
from ablate.pack.projection import (
    DenseSpec,
    IdentitySpec,
    Projection,
    ProjectionSpec,
    ReparametrisedSpec,
)
from ablate.pack.stepping import State, Stepping, step
from ablate.pack.unpacked import Unpacked

__all__ = [
    "DenseSpec",
    "Embedding",
    "Gain",
    "HeadGain",
    "IdentitySpec",
    "LayerNorm",
    "Linear",
    "Packed",
    "Projection",
    "ProjectionSpec",
    "RMSNorm",
    "ReparametrisedSpec",
    "State",
    "Stepping",
    "Unpacked",
    "constant",
    "dropout",
    "identity",
    "initialise",
    "member_streams",
    "normal",
    "orthogonal",
    "step",
    "zeros",
]

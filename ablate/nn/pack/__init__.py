"""Primitives that carry the pack axis: K members trained as one program, each on its own.

Every parameter is [K, ...] and every activation [K, B, T, D]; a single trial is a pack of one. Mixers and models are
written from these. Shapes: K pack, B batch, T tokens, D width.
"""

from ablate.nn.pack.activations import ACTIVATIONS
from ablate.nn.pack.attention_maps import (
    AttentionMaps,
    build_positions,
    join_heads,
    maps_cost,
    split_heads,
    visible_pairs,
    visible_tokens,
)
from ablate.nn.pack.auxiliary import add_loss, auxiliary_losses, collects_losses
from ablate.nn.pack.counted import (
    ScoredOutputs,
    counting,
    mean_of_scored,
    real_mask,
    scored_outputs,
    scored_targets,
    scoring,
)
from ablate.nn.pack.documents import (
    add_positions_of_documents,
    numbers_documents,
    places_in_documents,
    same_document,
)
from ablate.nn.pack.dropout import dropout, member_streams
from ablate.nn.pack.initial import (
    constant,
    identity,
    initialise,
    log_uniform,
    normal,
    orthogonal,
    step_bias,
    uniform,
)
from ablate.nn.pack.layers import Embedding, Gain, HeadGain, LayerNorm, Linear, RMSNorm, linear
from ablate.nn.pack.packed import Packed
from ablate.nn.pack.parts import Batchwise, gathers, next_call, part_share, same_call, sum_over_parts
from ablate.nn.pack.projection import DenseSpec, IdentitySpec, Projection, ProjectionSpec, ReparametrisedSpec
from ablate.nn.pack.recompute import is_second_pass, recomputed, recomputes, recomputing
from ablate.nn.pack.residual import Residual
from ablate.nn.pack.sharing import Shared, Sharing
from ablate.nn.pack.short_convolution import ShortConvolution, short_convolution_cost
from ablate.nn.pack.stepping import State, Stepping, extended, step
from ablate.nn.pack.unpacked import Unpacked
from ablate.spec.initialiser import zeros
from ablate.spec.part import Sublayer

__all__ = [
    "ACTIVATIONS",
    "AttentionMaps",
    "Batchwise",
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
    "Residual",
    "ScoredOutputs",
    "Shared",
    "Sharing",
    "ShortConvolution",
    "State",
    "Stepping",
    "Sublayer",
    "Unpacked",
    "add_loss",
    "add_positions_of_documents",
    "auxiliary_losses",
    "build_positions",
    "collects_losses",
    "constant",
    "counting",
    "dropout",
    "extended",
    "gathers",
    "identity",
    "initialise",
    "is_second_pass",
    "join_heads",
    "linear",
    "log_uniform",
    "maps_cost",
    "mean_of_scored",
    "member_streams",
    "next_call",
    "normal",
    "numbers_documents",
    "orthogonal",
    "part_share",
    "places_in_documents",
    "real_mask",
    "recomputed",
    "recomputes",
    "recomputing",
    "same_call",
    "same_document",
    "scored_outputs",
    "scored_targets",
    "scoring",
    "short_convolution_cost",
    "split_heads",
    "step",
    "step_bias",
    "sum_over_parts",
    "uniform",
    "visible_pairs",
    "visible_tokens",
    "zeros",
]

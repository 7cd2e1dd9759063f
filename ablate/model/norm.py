"""The norms of blocks and stacks."""

from __future__ import annotations

from torch import nn

from ablate.pack import LayerNorm, RMSNorm
from ablate.spec.cost import Cost


def build_norm(kind: str, pack: int, width: int, eps: float) -> nn.Module:
    """The module of a norm kind (`rms`, `layer`, `none`), [K, ..., D] to the same."""
    return nn.Identity() if kind == "none" else {"rms": RMSNorm, "layer": LayerNorm}[kind](pack, width, eps)


def norm_cost(kind: str, width: int, length: int) -> Cost:
    """Cost of a norm over `length` tokens; kept are what goes in, what the gain multiplies and each token's spread."""
    if kind == "none":
        return Cost()
    elements, layer = length * width, kind == "layer"
    return Cost(
        parameters=2 * width if layer else width,
        multiplications=2 * elements + length,
        additions=elements,
        divisions=elements,
        activations=2 * elements + (2 * length if layer else length),
    )

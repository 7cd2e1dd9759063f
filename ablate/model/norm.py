"""The norms of blocks and stacks."""

from __future__ import annotations

from torch import nn

from ablate.pack import LayerNorm, RMSNorm


def build_norm(kind: str, pack: int, width: int, eps: float) -> nn.Module:
    """The module of a norm kind (`rms`, `layer`, `none`), [K, ..., D] to the same."""
    return nn.Identity() if kind == "none" else {"rms": RMSNorm, "layer": LayerNorm}[kind](pack, width, eps)


def norm_parameters(kind: str, width: int) -> int:
    """Trainable parameters of a norm of this kind."""
    return {"rms": width, "layer": 2 * width, "none": 0}[kind]

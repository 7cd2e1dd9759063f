"""Norms of queries and keys, before positions are applied: over each head's width, or over all heads together.

- Scaling Vision Transformers to 22 Billion Parameters (arXiv:2302.05442), section 2; https://arxiv.org/abs/2302.05442
- Query-Key Normalization for Transformers (arXiv:2010.04245), section 3 (`l2` with a temperature)
- OLMo 2 (arXiv:2501.00656), section 2 (`over: width`); modded-nanogpt (`gain: none`)

Shapes: K pack, B batch, T tokens, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from ablate.nn.pack import Packed, constant, split_heads, zeros
from ablate.nn.pack.layers import along
from ablate.spec.base import Spec, refusal
from ablate.spec.cost import Cost


class QueryKeyNormSpec(Spec):
    """How queries and keys are normalised, each separately. A bare word is the kind."""

    kind: Literal["none", "rms", "layer", "l2"] = "none"
    """`rms`: x/√(mean x² + ε); `layer`: (x - mean x)/√(var x + ε); `l2`: x/max(‖x‖, ε)."""
    over: Literal["head", "width"] = "head"
    """Channels over which the norm is taken: those of one head, or of all heads together (OLMo 2)."""
    gain: Literal["shared", "heads", "none"] = "shared"
    """Trained gains, initially 1 (with `layer` also biases). `shared`: d_h gains for all heads (H·d_h with
    `over: width`); `heads`: d_h gains for each head (nGPT); `none`: no gains."""
    eps: float = Field(default=1e-6, gt=0)
    """ε."""
    temperature: float | None = Field(default=None, gt=0)
    """Initial value of a trained factor of the logits for each head, in addition to `scale`; unless set, there is
    none."""

    @model_validator(mode="after")
    def _is_a_norm(self) -> Self:
        if self.kind == "none" and self.canonical() != {"kind": "none"}:
            raise refusal(("kind",), self.kind, "the other settings need a norm", "Set `kind: rms`, or leave it out.")
        if self.over == "width" and self.gain == "heads":
            raise refusal(
                ("gain",),
                self.gain,
                "a norm over all heads together has one gain for each of their channels",
                "Set `gain: shared`, or `over: head`.",
            )
        return self

    @property
    def present(self) -> bool:
        """Whether there is a norm."""
        return self.kind != "none"

    @property
    def lays_out_heads(self) -> bool:
        """Whether each head of the result is contiguous in memory, because torch's norm writes a new tensor."""
        return self.kind in ("rms", "layer") and self.over == "head"

    def gains(self, heads: int, head_width: int) -> int:
        """Number of gains of the norm of queries, or of keys; 0 in a layer without keys of its own."""
        if self.gain == "none" or not heads:
            return 0
        return head_width * (1 if (self.over, self.gain) == ("head", "shared") else heads)

    def cost(self, length: int, heads: int, kv_heads: int, head_width: int) -> Cost:
        """Cost over one sequence. Kept: the input, the root mean square of each vector, and the input of the gain."""
        if not self.present:
            return Cost()
        elements = length * (heads + kv_heads) * head_width
        gains = self.gains(heads, head_width) + self.gains(kv_heads, head_width)
        hot = self.temperature is not None
        vectors = length * (heads + kv_heads) if self.over == "head" else length * (1 + (kv_heads > 0))
        spreads = vectors * (1 if self.kind == "rms" else 2)  # with the mean, or with the lower bound of the norm
        return Cost(
            parameters=gains * (2 if self.kind == "layer" else 1) + heads * hot,
            multiplications=(2 if gains else 1) * elements + length * heads * head_width * hot,
            additions=(3 + (gains > 0) if self.kind == "layer" else 1) * elements,
            divisions=elements,
            activations=(2 if gains else 1) * elements + length * heads * head_width * hot + spreads,
        )

    def label(self) -> str:
        """The label of the norm in the drawing of a block; empty if there is none."""
        if not self.present:
            return ""
        name = {"rms": "RMSNorm", "layer": "LayerNorm", "l2": "L2 norm"}[self.kind]
        over = " over all heads" if self.over == "width" else ""
        return f"{name} of Q, K{over}{', × τ' if self.temperature is not None else ''}"


class QueryKeyNorm(Packed):
    """The norm of queries, or of keys, of `QueryKeyNormSpec`; with kind `none` it only splits the heads."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, spec: QueryKeyNormSpec, pack: int, heads: int, head_width: int) -> None:
        super().__init__(pack)
        self.spec = spec
        self.heads = heads
        shape = (heads, head_width) if spec.gain == "heads" else (spec.gains(heads, head_width),)
        gains = spec.present and spec.gain != "none"
        if gains:
            self.declare("weight", shape, constant(1.0))
        else:
            self.weight = None
        if gains and spec.kind == "layer":
            self.declare("bias", shape, zeros)
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """Queries or keys of all heads, [K, B, T, H·d_h], to [K, B, H, T, d_h]."""
        if not self.spec.present:
            return split_heads(x, self.heads)
        wide = self.spec.over == "width"
        x = self._normed(x if wide else split_heads(x, self.heads))
        if self.weight is not None:
            x = x * _along(self.weight, x)
        if self.bias is not None:
            x = x + _along(self.bias, x)
        return split_heads(x, self.heads) if wide else x

    def _normed(self, x: Tensor) -> Tensor:
        if self.spec.kind == "rms":
            return F.rms_norm(x, x.shape[-1:], eps=self.spec.eps)
        if self.spec.kind == "layer":
            return F.layer_norm(x, x.shape[-1:], eps=self.spec.eps)
        return F.normalize(x, dim=-1, eps=self.spec.eps)


def _along(gain: Tensor, x: Tensor) -> Tensor:
    """[K, d] or [K, H, d] shaped to multiply [K, ..., d] or [K, B, H, T, d]."""
    return gain[:, None, :, None] if gain.dim() == 3 else along(gain, x)

"""Linformer: keys and values are mapped from the length of the text to a few rows before softmax attention.

Y_h = softmax(Q_h·(E·K_h)ᵀ/√d_h)·(F·V_h), E and F of shape k x L.

- Linformer (arXiv:2006.04768), eq. 7 and section 4 (sharing); https://arxiv.org/abs/2006.04768
- E and F are for one length; a shorter text uses their first columns, and padded tokens add nothing to E·K and F·V (in
  the code of Long Range Arena they do).
- E and F start as N(0, 1/k), as in the paper's theorem 2.
- Every row of E·K mixes all positions, so there is no causal form. Sharing one matrix between layers is left out.

Shapes: K pack, B batch, T tokens, L the longest text, D width, H heads, d_h head width, k `rank`.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ablate.nn.kernels.block_attention import attention_cost
from ablate.nn.pack import AttentionProjections, Packed, normal, projections_cost
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class LinformerSpec(MixerSpec):
    """Softmax attention to k rows made from all keys and values."""

    source = "arXiv:2006.04768 eq. 7"
    complexity = "Lkd"
    causal_form = False
    uses_heads = True
    any_head_width = True
    length_field = "length"

    code_revision = 2

    kind: Literal["linformer"] = "linformer"
    rank: int = Field(default=256, ge=1)
    """k, the number of rows to which keys and values are reduced."""
    sharing: Literal["none", "headwise", "key_value"] = "key_value"
    """`none`: E and F for each head; `headwise`: one E and one F for all heads; `key_value`: also E = F."""
    length: int | None = Field(default=None, ge=1)
    """L, the longest text in tokens that E and F are made for; unless set, the model's context."""

    def longest_input(self, context: LayerContext) -> int:
        return self.length or context.context

    def build(self, context: LayerContext) -> Linformer:
        return Linformer(self, context)

    def cost(self, context: LayerContext, length: int) -> Cost:
        d, k = context.inner_width, self.rank
        sets = {"none": 2 * context.heads, "headwise": 2, "key_value": 1}[self.sharing]
        reduced = Cost(
            parameters=sets * k * self.longest_input(context),
            multiplications=2 * k * length * d,
            additions=2 * k * (length - 1) * d,
            activations=2 * k * d,
        )
        return (
            projections_cost(context, length)
            + reduced
            + attention_cost(length, d, context.heads, length * k, fused=True)
        )


class Linformer(AttentionProjections):
    """The module of `LinformerSpec`."""

    def __init__(self, spec: LinformerSpec, context: LayerContext) -> None:
        super().__init__(context)
        sets = context.heads if spec.sharing == "none" else 1
        length = spec.longest_input(context)
        self.reduce_keys = Reduction(context.pack, sets, spec.rank, length)
        shared = spec.sharing == "key_value"
        self.reduce_values = None if shared else Reduction(context.pack, sets, spec.rank, length)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        q, k, v = self.project_folded(x)
        if padding is not None:
            real = padding.flatten(0, 1)[:, None, :, None]
            k, v = k * real, v * real
        y = F.scaled_dot_product_attention(q, self.reduce_keys(k), (self.reduce_values or self.reduce_keys)(v))
        return self.project_output(y)


class Reduction(Packed):
    """E or F: a map along the text, one for each head or one for all."""

    weight: Tensor

    def __init__(self, pack: int, sets: int, rank: int, length: int) -> None:
        super().__init__(pack)
        self.declare("weight", (sets, rank, length), normal(rank**-0.5), decay=True, outputs_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """[K·B, H, T, d_h] to [K·B, H, k, d_h]."""
        members = x.view(self.pack, -1, *x.shape[1:])
        weight = self.weight[..., : x.shape[2]].expand(-1, x.shape[1], -1, -1)
        return torch.einsum("khrt,kbhtd->kbhrd", weight, members).flatten(0, 1)

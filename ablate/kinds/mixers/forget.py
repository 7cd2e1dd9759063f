"""Forgetting attention: how fast a head of attention forgets, and the shift of its keys and values.

a_ij + c_i - c_j are the logits, c_i = Σ_{l≤i} log f_l, f_l = σ(W_f·x_l + b) one number for each head, so that a token
counts less the more has been forgotten since. k_t ← α_t·k_{t-1} + (1 - α_t)·k_t and so values, α_t = σ(W_α·x_t) for
each head, before the norm of keys. Padding forgets nothing, and counts as 0 where it is the token before.

- Forgetting Transformer (arXiv:2503.02130), eqs 5 to 9 and section 3.3 (the shift); https://arxiv.org/abs/2503.02130
- https://github.com/zhixuan-lin/forgetting-transformer, whose kernels need a GPU: b = -log(e^(1/T) - 1), T log-spaced
- https://github.com/fla-org/flash-linear-attention (`ops/forgetting_attn/naive.py`), which was run beside it in double
  precision, also with grouped heads and with a window: outputs and gradients of q, k, v and log f differ by 4e-14

Shapes: K pack, B batch, T tokens, D width, H heads, G heads of keys and values, d_h head width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn

from ablate.nn.pack import Packed, linear, numbers_documents, positions_in_documents, split_heads
from ablate.spec.base import Spec, refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import Initial, LayerContext, zeros

Shifted = Literal["key", "value"]


class ForgetSpec(Spec):
    """How fast each head forgets. A bare word is the kind."""

    value_fields = frozenset({"shortest", "longest"})

    kind: Literal["none", "of_input", "trained", "fixed"] = "none"
    """`of_input`: f = σ(W_f·x + b); `trained`: σ(b); `fixed`: σ(b), not trained."""
    shortest: float | None = Field(default=None, gt=0)
    """Tokens T after which the first head has forgotten a share of 1 - 1/e, by b before the first step; the T of the
    other heads are log-spaced up to `longest`. Unless set, b is 0 there."""
    longest: float | None = Field(default=None, gt=0)
    """T of the last head."""

    @model_validator(mode="after")
    def _has_both_ends(self) -> Self:
        if self.kind == "none" and self.canonical() != {"kind": "none"}:
            raise refusal(
                ("kind",), self.kind, "the other settings need a gate", "Set `kind: of_input`, or leave it out."
            )
        if (self.shortest is None) != (self.longest is None):
            name = "longest" if self.longest is None else "shortest"
            raise refusal((name,), None, "the times of the first and the last head belong together", f"Set `{name}`.")
        if self.kind == "fixed" and self.shortest is None:
            raise refusal(
                ("shortest",), None, "a gate that is not trained needs its times", "Set `shortest` and `longest`."
            )
        return self

    @property
    def present(self) -> bool:
        """Whether anything is forgotten."""
        return self.kind != "none"

    def cost(self, context: LayerContext, length: int, pairs: int) -> Cost:
        """Cost over one sequence with this many logits of each head. Other projections keep the input."""
        if not self.present:
            return Cost()
        rows = length * context.heads
        maps = linear_cost(length, context.width, context.heads, bias=True)
        own = Cost(parameters=context.heads if self.kind == "trained" else 0)
        return (maps if self.kind == "of_input" else own) + Cost(
            additions=2 * rows + 2 * pairs * context.heads,
            divisions=rows,
            exponentiations=2 * rows,
            activations=(rows if self.kind == "of_input" else 0) - maps.activations * (self.kind == "of_input"),
        )

    def label(self) -> str:
        """Label in drawings."""
        return "" if not self.present else f"+ log-sum of σ({'W_f x + b' if self.kind == 'of_input' else 'b'})"


class Forget(Packed):
    """The module of `ForgetSpec`."""

    bias: Tensor

    def __init__(self, spec: ForgetSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        start = zeros if spec.shortest is None or spec.longest is None else _times(spec.shortest, spec.longest)
        self.map = linear(context, context.width, context.heads) if spec.kind == "of_input" else None
        self.declare("bias", (context.heads,), start, trainable=spec.kind != "fixed")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """x [K, B, T, D] to log f, [K, B, H, T], in single precision at least; 0 for padding."""
        made = self.bias[:, None, None] if self.map is None else self.map(x) + self.bias[:, None, None]
        logs = F.logsigmoid(made.to(torch.promote_types(x.dtype, torch.float32))).expand(*x.shape[:3], -1)
        if padding is not None and not numbers_documents(padding):
            logs = logs * padding.unsqueeze(-1)
        return logs.transpose(2, 3)


class ShiftOfHeads(nn.Module):
    """Keys or values mixed with those of the token before, by shares that depend on the token."""

    def __init__(self, context: LayerContext, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.share = linear(context, context.width, heads)

    def forward(self, y: Tensor, x: Tensor, padding: Tensor | None, before: Tensor | None = None) -> Tensor:
        """Keys or values y [K, B, T, G·d_h] of the input x [K, B, T, D] to the same.

        Args:
            y: What is shifted.
            x: The input of the mixer.
            padding: [K, B, T], True where a token is real, or numbers of documents.
            before: y of the token before the first, [K, B, 1, G·d_h]; 0 if there is none.
        """
        if padding is not None and not numbers_documents(padding):
            y = y * padding.unsqueeze(-1)
        earlier = torch.cat([torch.zeros_like(y[:, :, :1]) if before is None else before, y[:, :, :-1]], 2)
        if padding is not None and numbers_documents(padding):
            earlier = earlier * (positions_in_documents(padding) > 0).unsqueeze(-1)
        own, earlier = split_heads(y, self.heads), split_heads(earlier, self.heads)
        mixed: Tensor = own + (earlier - own) * self.share(x).sigmoid().mT.unsqueeze(-1)
        return mixed.transpose(2, 3).flatten(3)


def shift_cost(context: LayerContext, length: int, heads: int) -> Cost:
    """Cost of a shift over one sequence. Kept: α and the differences; other projections keep the input."""
    rows, elements = length * heads, length * heads * context.head_width
    maps = linear_cost(length, context.width, heads)
    return maps + Cost(
        multiplications=elements,
        additions=2 * elements + rows,
        divisions=rows,
        exponentiations=rows,
        activations=elements + rows - maps.activations,
    )


def _times(shortest: float, longest: float) -> Initial:
    """b for times between these two, log-spaced over the heads."""

    def fill(values: Tensor, generator: Generator) -> Tensor:
        times = torch.logspace(0, 1, len(values), base=longest / shortest, dtype=torch.float64) * shortest
        return values.copy_(-torch.log(torch.expm1(1 / times)))

    return fill

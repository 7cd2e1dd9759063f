"""A gate of attention's output: y_h ← y_h ∘ σ(W_g·x), after A·V and before the output map.

- Gated Attention for Large Language Models (arXiv:2505.06708), eq. 5; https://arxiv.org/abs/2505.06708 (Qwen3-Next)
- https://github.com/KellerJordan/modded-nanogpt (`inputs: 12`, `start: zero`, headwise)

Shapes: K pack, B batch, T tokens, D width, H heads, d_h head width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ablate.nn.pack import Linear, split_heads, zeros
from ablate.spec.base import Spec, refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext


class OutputGateSpec(Spec):
    """The gate that multiplies each head's output. A bare word is its kind."""

    value_fields = frozenset({"start"})

    kind: Literal["none", "headwise", "elementwise"] = "none"
    """`headwise`: one factor for each token and head; `elementwise`: one for each token, head and channel."""
    inputs: int | None = Field(default=None, ge=1)
    """Number of leading channels of its input that the gate reads; unless set, all."""
    start: Literal["normal", "zero"] = "normal"
    """Initial value of W_g: as the model's other maps, or 0, with which every factor is 1/2."""

    @model_validator(mode="after")
    def _is_a_gate(self) -> Self:
        if self.kind == "none" and self.canonical() != {"kind": "none"}:
            raise refusal(
                ("kind",),
                self.kind,
                "the other settings need a gate",
                "Set `kind: headwise` or `elementwise`, or leave it out.",
            )
        return self

    @property
    def present(self) -> bool:
        """Whether there is a gate."""
        return self.kind != "none"

    def check(self, context: LayerContext) -> None:
        """Refuse a width that has fewer channels than the gate reads.

        Raises:
            ValidationError: With the path inside this spec.
        """
        if self.inputs is not None and self.inputs > context.width:
            raise refusal(
                ("inputs",),
                self.inputs,
                f"the input of the gate has {context.width} channels",
                f"Set `inputs: {context.width}` at most, or leave it out.",
            )

    def factors(self, context: LayerContext) -> int:
        """Number of factors for one token."""
        return context.heads if self.kind == "headwise" else context.inner_width

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Cost over one sequence. Other maps keep the input, and the output map keeps the gated output."""
        if not self.present:
            return Cost()
        factors, elements = length * self.factors(context), length * context.inner_width
        maps = linear_cost(length, self.inputs or context.width, self.factors(context))
        return maps + Cost(
            multiplications=elements,
            additions=factors,
            divisions=factors,
            exponentiations=factors,
            activations=factors + elements - maps.activations,
        )


class OutputGate(nn.Module):
    """The module of `OutputGateSpec`."""

    def __init__(self, spec: OutputGateSpec, context: LayerContext) -> None:
        super().__init__()
        self.heads = context.heads
        self.inputs = spec.inputs
        sizes = (spec.inputs or context.width, spec.factors(context))
        start = zeros if spec.start == "zero" else context.initial("hidden", *sizes)
        self.map = Linear(context.pack, *sizes, initial=start)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        """The heads' output y [K, B, H, T, d_h] times the factors computed from the block's input x [K, B, T, D]."""
        factors = torch.sigmoid(self.map(x if self.inputs is None else x[..., : self.inputs]))
        return y * split_heads(factors, self.heads)

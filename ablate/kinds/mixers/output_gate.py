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
    """What multiplies each head's output. A bare word is the kind."""

    value_fields = frozenset({"start"})

    kind: Literal["none", "headwise", "elementwise"] = "none"
    """`headwise`: one factor for each token and head; `elementwise`: one for each channel of a head too."""
    inputs: int | None = Field(default=None, ge=1)
    """The gate reads this many channels of its input, from the first on; unless set, all."""
    start: Literal["normal", "zero"] = "normal"
    """How W_g starts: as the model's other maps, or from 0, where every factor is 1/2."""

    @model_validator(mode="after")
    def _is_a_gate(self) -> Self:
        if self.kind == "none" and self.canonical() != {"kind": "none"}:
            raise refusal(
                ("kind",),
                self.kind,
                "without a gate there is nothing else to set",
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
                f"the gate reads channels of its input, which has {context.width}",
                f"Set `inputs: {context.width}` at most, or leave it out.",
            )

    def factors(self, context: LayerContext) -> int:
        """Factors of one token."""
        return context.heads if self.kind == "headwise" else context.inner_width

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Cost over one sequence; the input is kept by the other maps, and the gated output by the output map."""
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
        """The heads' output y [K, B, H, T, d_h] times the factors made of the block's input x [K, B, T, D]."""
        factors = torch.sigmoid(self.map(x if self.inputs is None else x[..., : self.inputs]))
        return y * split_heads(factors, self.heads)

"""Changes of the logits of attention: a soft cap, sinks, and the precision in which they are computed.

- Soft cap: a ← c·tanh(a/c), before the mask. Gemma 2 (arXiv:2408.00118), section 2; https://arxiv.org/abs/2408.00118
- Sinks: p_ij = e^(a_ij)/(Σ_j e^(a_ij) + e^(s_h)), s_h trained. gpt-oss (arXiv:2508.10925)

Shapes: H heads, T tokens.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.spec.base import Spec
from ablate.spec.cost import Cost


class LogitsSpec(Spec):
    """Changes of the logits. Any of them materialises the whole attention matrix."""

    soft_cap: float | None = Field(default=None, gt=0)
    """c: logits are bounded by it, a ← c·tanh(a/c), before biases and masks."""
    sinks: bool = False
    """Whether each head has a trained logit without a token, so that its weights may sum to less than 1."""
    precision: Literal["inputs", "float32"] = "inputs"
    """Precision of logits and softmax: that of the queries (fused kernels still sum in single precision), or single
    precision at least."""

    @property
    def plain(self) -> bool:
        """Whether nothing is changed, so that a fused kernel may be used."""
        return self.soft_cap is None and not self.sinks and self.precision == "inputs"

    def cost(self, length: int, heads: int, pairs: int) -> Cost:
        """Cost over one sequence whose heads make `pairs` logits each."""
        capped, sinks = pairs * heads * (self.soft_cap is not None), length * heads * self.sinks
        return Cost(
            parameters=heads * self.sinks,
            multiplications=capped,
            additions=sinks,
            divisions=capped,
            exponentiations=capped + sinks,
        )

    def label(self, products: str) -> str:
        """The argument of softmax in the drawing of a block."""
        if self.soft_cap is not None:
            products = f"cap {self.soft_cap:g}: {products}"
        return f"{products}, sink" if self.sinks else products

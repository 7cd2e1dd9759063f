"""Normal values; projections that write to the residual stream start at 0, so that every block starts as its skip.

- Fixup Initialization (arXiv:1901.09321), section 3; https://arxiv.org/abs/1901.09321
- https://github.com/KellerJordan/modded-nanogpt, whose output projections start at 0
"""

from __future__ import annotations

from typing import Literal

from ablate.nn.pack import normal, zeros
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, Role


class ZeroOutputSpec(InitialiserSpec):
    """N(0, σ²), and 0 for the projections that write to the residual stream."""

    source = "arXiv:1901.09321 sec. 3"

    kind: Literal["zero_output"] = "zero_output"

    @property
    def zero_outputs(self) -> bool:
        return True

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        return zeros if role == "output" else normal(context.init_std)

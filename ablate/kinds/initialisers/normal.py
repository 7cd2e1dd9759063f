"""Independent normal values of one standard deviation for all weights: W ~ N(0, σ²), σ = `model.init_std`.

- Language Models are Unsupervised Multitask Learners (GPT-2), σ = 0.02
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.nn.pack import normal
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, Role


class NormalSpec(InitialiserSpec):
    """N(0, σ²) for every weight, where σ is `init_std` of the model or a given value."""

    source = "GPT-2, σ = 0.02"

    kind: Literal["normal"] = "normal"

    std: float | None = Field(default=None, gt=0)
    """σ; unless set, `init_std` of the model."""

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        return normal(self.std or context.init_std)

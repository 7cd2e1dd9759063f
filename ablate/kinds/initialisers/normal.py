"""Independent normal values of one standard deviation for all weights: W ~ N(0, σ²), σ = `model.init_std`.

- Language Models are Unsupervised Multitask Learners (GPT-2), σ = 0.02
"""

from __future__ import annotations

from typing import Literal

from ablate.nn.pack import normal
from ablate.spec.initialiser import Initial, InitialiserSpec, Role
from ablate.spec.layer import LayerContext


class NormalSpec(InitialiserSpec):
    """N(0, σ²) for every weight, σ being `init_std` of the model."""

    source = "GPT-2, σ = 0.02"

    kind: Literal["normal"] = "normal"

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        """See `InitialiserSpec.initial`."""
        return normal(context.init_std)

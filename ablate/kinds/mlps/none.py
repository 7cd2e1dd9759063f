"""No MLP: the block has a mixer only.

- Mamba (arXiv:2312.00752), section 3.4, has blocks without one; https://arxiv.org/abs/2312.00752
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator
from torch import nn

from ablate.spec.annotations import without_settings
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MLPSpec


class NoMLPSpec(MLPSpec):
    """No MLP in the block."""

    source = "arXiv:2312.00752 sec. 3.4"
    present = False

    kind: Literal["none"] = "none"

    @model_validator(mode="before")
    @classmethod
    def _has_no_settings(cls, value: Any) -> Any:
        return without_settings(value, "mlp", {"ratio": 4.0, "activation": "relu", "bias": False})

    def build(self, context: LayerContext) -> nn.Identity:
        """A module that no block calls."""
        return nn.Identity()

    def cost(self, context: LayerContext, length: int) -> Cost:
        return Cost()

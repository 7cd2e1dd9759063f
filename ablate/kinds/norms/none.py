"""No norm: y = x.

- Simplifying Transformer Blocks (arXiv:2311.01906), section 4.4, removes it; https://arxiv.org/abs/2311.01906
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator
from torch import nn

from ablate.spec.annotations import without_settings
from ablate.spec.cost import Cost
from ablate.spec.sublayers import NormSpec


class NoNormSpec(NormSpec):
    """No normalisation."""

    source = "arXiv:2311.01906 sec. 4.4"
    present = False

    kind: Literal["none"] = "none"

    @model_validator(mode="before")
    @classmethod
    def _has_no_settings(cls, value: Any) -> Any:
        return without_settings(value, "norm", {"place": "pre", "eps": 1e-8})

    def build(self, pack: int, width: int) -> nn.Identity:
        return nn.Identity()

    def cost(self, width: int, length: int) -> Cost:
        return Cost()

    def label(self) -> str:
        return ""

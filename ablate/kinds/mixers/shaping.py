"""Shaped attention: terms added to and subtracted from the attention matrix, with gains for each head.

- Simplifying Transformer Blocks (arXiv:2311.01906), eqs 4 and 5; https://arxiv.org/abs/2311.01906
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ValidationInfo, field_validator, model_validator

from ablate.spec.base import Spec, refusal
from ablate.spec.block import Gain, GainSpec

_STARTS: dict[str, dict[str, float]] = {
    "none": {},
    "value_skipinit": {"alpha": 1.0, "beta": 0.0},
    "shaped": {"alpha": 1.0, "beta": 1.0, "gamma": 1.0},
}
"""Kind of shaping to its gains and their values at the start of training."""


class ShapingSpec(Spec):
    """Terms added to and subtracted from the attention matrix; one gain of each term for each head.

    `value_skipinit`: A ← α·I + β·A (eq. 4), α = 1 and β = 0 at the start.
    `shaped`: A ← α·I + β·A - γ·C (eq. 5), all 1 at the start, and W_Q = 0 so that A = C there: C is the value that A
    takes when all logits are 0 (uniform over the visible tokens), and the map is exactly the identity.
    """

    kind: Literal["none", "value_skipinit", "shaped"] = "none"
    """The terms: none, those of eq. 4, or those of eq. 5."""
    alpha: Gain | None = None
    """Gain of the identity; trainable from 1 unless set."""
    beta: Gain | None = None
    """Gain of the attention matrix; trainable, from 0 (`value_skipinit`) or 1 (`shaped`) unless set."""
    gamma: Gain | None = None
    """Gain of the centring matrix C (`shaped` only); trainable from 1 unless set."""

    @field_validator("alpha", "beta", "gamma")
    @classmethod
    def _default_is_none(cls, gain: GainSpec | None, info: ValidationInfo) -> GainSpec | None:
        # A gain that is written at its default has the hash of one that is left out.
        start = _STARTS.get(info.data.get("kind", ""), {}).get(info.field_name or "")
        return None if start is not None and gain == _trainable_from(start) else gain

    @model_validator(mode="after")
    def _gains_fit(self) -> Self:
        for name in ("alpha", "beta", "gamma"):
            gain = getattr(self, name)
            if gain is not None and name not in _STARTS[self.kind]:
                raise refusal((name,), gain, f"shaping `{self.kind}` has no {name}", f"Leave `{name}` out.")
        return self

    @property
    def query_start(self) -> str:
        """The `query_init` of this shaping, unless the mixer sets one."""
        return "zero" if self.kind == "shaped" else "normal"

    def gains(self) -> dict[str, GainSpec]:
        """The gains of this shaping by name."""
        return {name: getattr(self, name) or _trainable_from(start) for name, start in _STARTS[self.kind].items()}


def _trainable_from(start: float) -> GainSpec:
    return GainSpec(init=start, trainable=True)

"""`PopulationSpec`: membership of a trial in a population, whose members exchange weights and values."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ablate.spec.base import Spec, refusal

_MUTABLE_PATHS = ("training.optimizer.", "training.schedule.")

Positive = Annotated[float, Field(gt=0)]


class ExchangeSpec(Spec):
    """Population based training (arXiv:1711.09846): at intervals the worst members copy weights, optimizer state and
    values of the best ones, and continue with perturbed values."""

    size: int = Field(default=8, ge=2, le=1000)
    """Number of members."""
    every: int = Field(ge=1)
    """Steps between exchanges."""
    ranges: dict[str, tuple[Positive, Positive]] = Field(min_length=1)
    """Lower and upper bounds of paths below `training.optimizer` or `training.schedule`. Values are sampled uniformly
    on a logarithmic scale, and perturbed by a fifth up or down."""
    share: float = Field(default=0.25, gt=0, le=0.5)
    """Share of members that copy from the same share of best members."""
    redraw: float = Field(default=0.25, ge=0, le=1)
    """Probability that a copied value is resampled instead of perturbed."""

    @model_validator(mode="after")
    def _can_exchange(self) -> Self:
        for path, (low, high) in self.ranges.items():
            if not path.startswith(_MUTABLE_PATHS):
                rule = "only paths below `training.optimizer` or `training.schedule` can change during training"
                raise refusal(("ranges", path), [low, high], rule, "Search over other paths with `kind: search`.")
            if not low < high:
                raise refusal(
                    ("ranges", path), [low, high], "a range must be ascending", f"Write `[{high:g}, {low:g}]`."
                )
        return self

    def clipped(self, path: str, value: float) -> float:
        """A value clipped to its range and rounded to six digits."""
        low, high = self.ranges[path]
        return float(f"{min(max(value, low), high):.6g}")


class PopulationSpec(ExchangeSpec):
    """The population of a trial and its member number, set by the design."""

    member: int = Field(ge=0)
    """Number of this member."""
    draws: int = Field(default=0, ge=0)
    """Random seed of the initial values of members."""

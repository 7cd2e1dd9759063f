"""Rules by which a search ends trials early: specs of Optuna's pruners.

Progress is counted in thousandths of the steps of a trial, so that a rule applies to trials of any length.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

PRUNERS = Family("pruner")

WHOLE = 1000
"""Thousandths in a whole trial."""

Share = Annotated[float, Field(gt=0, lt=1)]


class PrunerSpec(Kinded):
    """A rule for ending trials early. Trials are compared by validation loss, regardless of the objective."""

    family = PRUNERS

    @abstractmethod
    def build(self) -> BasePruner:
        """Build the Optuna pruner, whose steps are thousandths of a trial."""


class AshaSpec(PrunerSpec):
    """Asynchronous successive halving (arXiv:1810.05934): at each rung only the best trials continue."""

    kind: Literal["asha"] = "asha"
    first: Share = 0.1
    """Share of the steps at which the first rung is; each further rung is at `keep` times as many steps."""
    keep: int = Field(default=3, ge=2)
    """Reduction factor η: one of η trials continues."""

    def build(self) -> BasePruner:
        from optuna.pruners import SuccessiveHalvingPruner

        return SuccessiveHalvingPruner(min_resource=_thousandths(self.first), reduction_factor=self.keep)


class HyperbandSpec(PrunerSpec):
    """Hyperband (arXiv:1603.06560): successive halving in brackets with different first rungs."""

    kind: Literal["hyperband"] = "hyperband"
    first: Share = 0.1
    """Share of the steps at which the first rung of the most aggressive bracket is."""
    keep: int = Field(default=3, ge=2)
    """Reduction factor η: one of η trials continues at a rung."""

    def build(self) -> BasePruner:
        from optuna.pruners import HyperbandPruner

        return HyperbandPruner(_thousandths(self.first), WHOLE, self.keep)


class MedianSpec(PrunerSpec):
    """Median rule: a trial ends if its best loss so far is worse than the median of finished trials at that step."""

    kind: Literal["median"] = "median"
    first: Share = 0.1
    """Share of the steps before which no trial is ended."""
    finished: int = Field(default=5, ge=1)
    """Number of trials that must have finished before any is ended."""

    def build(self) -> BasePruner:
        from optuna.pruners import MedianPruner

        return MedianPruner(n_startup_trials=self.finished, n_warmup_steps=_thousandths(self.first))


class WilcoxonSpec(PrunerSpec):
    """A trial ends if the points of its curve are worse than those of the best finished trial by a signed-rank test.

    Points of one curve are not independent, so p is a threshold, not an error rate.
    """

    kind: Literal["wilcoxon"] = "wilcoxon"
    p: Share = 0.1
    """A trial ends if p is below this value."""
    points: int = Field(default=4, ge=2)
    """Number of points of the curve before which no trial is ended."""

    def build(self) -> BasePruner:
        from optuna.pruners import WilcoxonPruner

        return WilcoxonPruner(p_threshold=self.p, n_startup_steps=self.points)


def _thousandths(share: float) -> int:
    return max(1, round(share * WHOLE))


Pruner = Annotated[PrunerSpec, OneOf]

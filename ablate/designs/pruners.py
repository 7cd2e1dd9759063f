"""Rules by which a search ends trials early: each is one of Optuna's pruners, with its settings as a spec.

What a trial has reached is counted in thousandths of its steps, so that a rule says the same of every length.
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
    """When a trial is ended early. Trials are compared by their validation loss, whatever the objective."""

    family = PRUNERS

    @abstractmethod
    def build(self) -> BasePruner:
        """Optuna's pruner, whose steps are thousandths of a trial."""


class AshaSpec(PrunerSpec):
    """Asynchronous successive halving (arXiv:1810.05934): at each rung only the best go on."""

    kind: Literal["asha"] = "asha"
    first: Share = 0.1
    """Share of its steps after which a trial meets the first rung; each rung after it is `keep` times as far."""
    keep: int = Field(default=3, ge=2)
    """One of so many goes on (η)."""

    def build(self) -> BasePruner:
        from optuna.pruners import SuccessiveHalvingPruner

        return SuccessiveHalvingPruner(min_resource=_thousandths(self.first), reduction_factor=self.keep)


class HyperbandSpec(PrunerSpec):
    """Hyperband (arXiv:1603.06560): successive halving from several first rungs, for those that start slowly."""

    kind: Literal["hyperband"] = "hyperband"
    first: Share = 0.1
    """Share of its steps after which a trial of the most impatient bracket meets its first rung."""
    keep: int = Field(default=3, ge=2)
    """One of so many goes on at a rung (η)."""

    def build(self) -> BasePruner:
        from optuna.pruners import HyperbandPruner

        return HyperbandPruner(_thousandths(self.first), WHOLE, self.keep)


class MedianSpec(PrunerSpec):
    """The median rule: a trial ends whose best loss so far is worse than the median of finished trials there."""

    kind: Literal["median"] = "median"
    first: Share = 0.1
    """Share of its steps before which no trial is ended."""
    finished: int = Field(default=5, ge=1)
    """Trials that must have finished before any is ended."""

    def build(self) -> BasePruner:
        from optuna.pruners import MedianPruner

        return MedianPruner(n_startup_trials=self.finished, n_warmup_steps=_thousandths(self.first))


class WilcoxonSpec(PrunerSpec):
    """A trial ends whose losses are worse than the best finished trial's, point by point of the curve, by a signed-rank
    test. Points of one curve are not independent: p is a rule here, and no error rate."""

    kind: Literal["wilcoxon"] = "wilcoxon"
    p: Share = 0.1
    """A trial ends below this p."""
    points: int = Field(default=4, ge=2)
    """Points of the curve before which no trial is ended."""

    def build(self) -> BasePruner:
        from optuna.pruners import WilcoxonPruner

        return WilcoxonPruner(p_threshold=self.p, n_startup_steps=self.points)


def _thousandths(share: float) -> int:
    return max(1, round(share * WHOLE))


Pruner = Annotated[PrunerSpec, OneOf]

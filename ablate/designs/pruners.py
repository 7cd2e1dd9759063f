"""Rules by which a search ends trials early: specs of Optuna's pruners, and `Pruning`, which applies one.

Progress is counted in thousandths of the steps of a trial, so that a rule applies to trials of any length.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ablate.designs.base import Proposal
from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    import optuna
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


_Trial = tuple[str, int]
"""Name of a point and a seed."""


class Pruning:
    """Ends trials of a search early by a rule, from validation losses in the order in which they are reported.

    The pruner has a separate Optuna study in memory. Each of our trials (a point and a seed) is a trial in it, whose
    only objective is the validation loss, regardless of the objectives of the search.
    """

    def __init__(self, spec: PrunerSpec) -> None:
        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # for the Wilcoxon pruner
            pruner = spec.build()
        # Hyperband assigns brackets by the name of the study and the number of the trial.
        self._study = optuna.create_study(study_name="pruning", pruner=pruner)
        self._trials: dict[_Trial, optuna.Trial] = {}
        self._ended: set[_Trial] = set()
        self._last: dict[_Trial, float] = {}
        self._lost: set[str] = set()

    def expect(self, proposal: Proposal) -> None:
        """Register a trial that will run. Trials are numbered in the order of registration."""
        self._trials[proposal.point.name, proposal.seed] = self._study.ask()

    def watch(self, point: str, seed: int, reached: float, loss: float) -> bool:
        """Report a loss; returns whether to end the trial.

        If one seed of a point is pruned, its other seeds are pruned too, because they could not be compared.

        Args:
            reached: Share of its steps that the trial has done.
        """
        name = point, seed
        if name in self._ended or reached == 0 or not math.isfinite(loss):
            return point in self._lost
        trial = self._trials[name]
        trial.report(loss, round(reached * WHOLE))
        self._last[name] = loss
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # curves of different lengths have different steps
            if reached < 1 and trial.should_prune():
                self._lost.add(point)
        return point in self._lost and reached < 1

    def end(self, point: str, seed: int, *, finished: bool) -> None:
        """Register the end of a trial. Later trials are compared with finished ones."""
        name = point, seed
        if name in self._ended:
            return
        self._ended.add(name)
        if finished and name in self._last:
            self._study.tell(self._trials[name], self._last[name])
        else:
            from optuna.trial import TrialState

            state = TrialState.PRUNED if point in self._lost and name in self._last else TrialState.FAIL
            self._study.tell(self._trials[name], state=state)

"""`Pruning`: which trials of a search end early, as one of Optuna's pruners decides.

The pruner sees a study of its own, in memory. Each trial of ours, a point and a seed, is a trial there, with one
objective, the validation loss, whatever the search itself optimises.
"""

from __future__ import annotations

import math
import warnings

import optuna
from optuna.trial import TrialState

from ablate.designs.base import Proposal
from ablate.designs.pruners import WHOLE, PrunerSpec

_Trial = tuple[str, int]
"""Name of a point, and a seed."""


class Pruning:
    """Decides from losses in the order in which they come.

    Args:
        spec: The rule.
    """

    def __init__(self, spec: PrunerSpec) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # the Wilcoxon rule is
            pruner = spec.build()
        # Hyperband draws brackets from the name of the study and the number of the trial.
        self._study = optuna.create_study(study_name="pruning", pruner=pruner)
        self._trials: dict[_Trial, optuna.Trial] = {}
        self._ended: set[_Trial] = set()
        self._last: dict[_Trial, float] = {}
        self._lost: set[str] = set()

    def expect(self, proposal: Proposal) -> None:
        """A trial is going to run. Their order decides their numbers."""
        self._trials[proposal.point.name, proposal.seed] = self._study.ask()

    def watch(self, point: str, seed: int, reached: float, loss: float) -> bool:
        """Hear a loss; whether the trial is to end.

        With the first seed of a point that is pruned, its other seeds are, too: they could not be compared with others.

        Args:
            point: Its name.
            seed: Of the trial.
            reached: Share of its steps that the trial has done.
            loss: Its validation loss there.
        """
        name = point, seed
        if name in self._ended or reached == 0 or not math.isfinite(loss):
            return point in self._lost
        trial = self._trials[name]
        trial.report(loss, round(reached * WHOLE))
        self._last[name] = loss
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # curves of other lengths have other steps
            if reached < 1 and trial.should_prune():
                self._lost.add(point)
        return point in self._lost and reached < 1

    def end(self, point: str, seed: int, *, finished: bool) -> None:
        """A trial is over, in whatever way; a finished one is what later ones are compared with."""
        name = point, seed
        if name in self._ended:
            return
        self._ended.add(name)
        if finished and name in self._last:
            self._study.tell(self._trials[name], self._last[name])
        else:
            state = TrialState.PRUNED if point in self._lost and name in self._last else TrialState.FAIL
            self._study.tell(self._trials[name], state=state)

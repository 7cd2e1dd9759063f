"""`Pruning`: ends trials of a search early by one of Optuna's pruners.

The pruner has a separate Optuna study in memory. Each of our trials (a point and a seed) is a trial in it, whose only
objective is the validation loss, regardless of the objectives of the search.
"""

from __future__ import annotations

import math
import warnings

import optuna
from optuna.trial import TrialState

from ablate.designs.base import Proposal
from ablate.designs.pruners import WHOLE, PrunerSpec

_Trial = tuple[str, int]
"""Name of a point and a seed."""


class Pruning:
    """Decides from validation losses in the order in which they are reported.

    Args:
        spec: The pruning rule.
    """

    def __init__(self, spec: PrunerSpec) -> None:
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
            point: Name of the point.
            seed: Seed of the trial.
            reached: Share of its steps that the trial has done.
            loss: Its validation loss at that step.
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
            state = TrialState.PRUNED if point in self._lost and name in self._last else TrialState.FAIL
            self._study.tell(self._trials[name], state=state)

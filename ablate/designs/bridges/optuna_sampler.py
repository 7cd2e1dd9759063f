"""Wraps any design as an Optuna sampler, for studies that are run with Optuna alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from ablate.designs.base import Design, Proposal

SEED = "seed"
"""Name of the parameter that is the seed of a trial."""


class DesignSampler(BaseSampler):
    """Gives each Optuna trial the next proposal of a design, and stops the study when the design is done.

    The objective function suggests a categorical parameter for each switch, named as the switch, one named as the path
    for each numeric value that the design sets, and `seed`::

        sampler = DesignSampler(spec.build(context))
        study = optuna.create_study(sampler=sampler)
        study.optimize(objective, n_trials=None)

    Trials that the study already has (in a reopened storage) are reported to the design and not run again. With
    `n_jobs` above 1, a thread waits while the design waits for results. When no proposals are left, threads that have
    already started a trial repeat the first one.

    Args:
        design: A new design that has not been asked yet.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        self._changed = threading.Condition()
        self._waiting: list[Proposal] | None = None  # None until existing trials have been reported
        self._running: dict[int, Proposal] = {}
        self._given: dict[int, Mapping[str, Any]] = {}
        self._first: Proposal | None = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return an empty space: parameters are not sampled jointly."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return no parameters: they are not sampled jointly."""
        return {}

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Take the next proposal; wait for one if the design waits for results."""
        with self._changed:
            if self._waiting is None:
                self._waiting = list(self._catch_up(study))
            while not self._waiting and self._running:
                self._changed.wait()
                self._waiting += self._design.ask()
            if self._waiting:
                proposal = self._running[trial.number] = self._waiting.pop(0)
            elif self._first is not None:
                proposal = self._first
            else:
                raise optuna.exceptions.OptunaError("the design has no proposals left: its study is complete")
            self._given[trial.number] = _parameters(proposal)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a parameter in the proposal of this trial."""
        given = self._given[trial.number]
        if param_name not in given:
            raise ValueError(f"the design sets no `{param_name}`; it sets {', '.join(given)}")
        return given[param_name]

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Report the result to the design, and stop the study if the design is complete."""
        with self._changed:
            self._given.pop(trial.number, None)
            proposal = self._running.pop(trial.number, None)
            if proposal is not None:
                value = values[0] if state is TrialState.COMPLETE and values else None
                self._design.tell(proposal.point, proposal.seed, value)
            assert self._waiting is not None
            if not self._waiting:
                self._waiting += self._design.ask()
            if not self._waiting and not self._running:
                with contextlib.suppress(RuntimeError):  # with `study.ask` and `study.tell` there is no loop to stop
                    study.stop()
            self._changed.notify_all()

    def _catch_up(self, study: Study) -> list[Proposal]:
        """Report existing trials of the study to the design; returns the proposals without a trial."""
        past = {
            _key(trial.params): trial.values[0] if trial.state is TrialState.COMPLETE else None
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        }
        new: list[Proposal] = []
        while proposals := self._design.ask():
            self._first = self._first or proposals[0]
            for proposal in proposals:
                key = _key(_parameters(proposal))
                if key in past:
                    self._design.tell(proposal.point, proposal.seed, past[key])
                else:
                    new.append(proposal)
        return new


def _parameters(proposal: Proposal) -> Mapping[str, Any]:
    return {**proposal.point.settings, **proposal.point.values, SEED: proposal.seed}


def _key(parameters: Mapping[str, Any]) -> Hashable:
    return tuple(sorted(parameters.items()))

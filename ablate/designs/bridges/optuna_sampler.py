"""Any design as an Optuna sampler, for studies that are run by plain Optuna."""

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

    Trials that the study holds already (a storage that was opened again) are told to the design first and not run
    again. With `n_jobs` above 1 a thread waits while its design waits for results; when nothing is left, threads that
    have begun a trial repeat the first one.

    Args:
        design: A fresh design, asked nothing yet.
    """

    def __init__(self, design: Design) -> None:
        self._design = design
        self._changed = threading.Condition()
        self._waiting: list[Proposal] | None = None  # None until the past of the study was told
        self._running: dict[int, Proposal] = {}
        self._given: dict[int, Mapping[str, Any]] = {}
        self._first: Proposal | None = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """See Optuna: nothing is sampled jointly."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """See Optuna: nothing is sampled jointly."""
        return {}

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """See Optuna: take the next proposal, and wait for one if the design waits for results."""
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
                raise optuna.exceptions.OptunaError("the design has nothing left to propose: its study is done")
            self._given[trial.number] = _parameters(proposal)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """See Optuna: what the proposal of this trial says."""
        given = self._given[trial.number]
        if param_name not in given:
            raise ValueError(f"the design sets no `{param_name}`; it sets {', '.join(given)}")
        return given[param_name]

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """See Optuna: tell the design, and stop the study if it is done."""
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
                with contextlib.suppress(RuntimeError):  # asked and told by hand, there is no loop to stop
                    study.stop()
            self._changed.notify_all()

    def _catch_up(self, study: Study) -> list[Proposal]:
        """Proposals that are new to the study, after telling those that are not."""
        past = {
            _key(trial.params): trial.values[0] if trial.state is TrialState.COMPLETE else None
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        }
        fresh: list[Proposal] = []
        while proposals := self._design.ask():
            self._first = self._first or proposals[0]
            for proposal in proposals:
                key = _key(_parameters(proposal))
                if key in past:
                    self._design.tell(proposal.point, proposal.seed, past[key])
                else:
                    fresh.append(proposal)
        return fresh


def _parameters(proposal: Proposal) -> Mapping[str, Any]:
    return {**proposal.point.settings, **proposal.point.values, SEED: proposal.seed}


def _key(parameters: Mapping[str, Any]) -> Hashable:
    return tuple(sorted(parameters.items()))

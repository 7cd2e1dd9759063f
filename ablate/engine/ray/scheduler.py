"""The scheduler of Ray Tune's trials: it ends those that the design of the study wants no more of."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from ablate.engine.ray.population import Population, population_key, population_of
from ablate.engine.ray.words import JOB

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController


class DesignScheduler(FIFOScheduler):
    """Runs jobs in the order of their submission, and ends a job when nobody wants any of its members.

    Which trial is poor is the design's to say (ASHA, Hyperband, the median or the Wilcoxon rule of `search`), on every
    engine by the same rule, because what Tune can end is a job, and what is pruned is a member of one. Members of a
    population are left to Tune's population based training.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wanted: dict[int, set[int]] = {}
        self._populations: dict[str, Population] = {}
        self._population_of: dict[Trial, Population] = {}
        self._lock = threading.Lock()

    def expect(self, number: int, members: int) -> None:
        """A job of so many members was submitted."""
        with self._lock:
            self._wanted[number] = set(range(members))

    def stop(self, number: int, member: int) -> bool:
        """The design wants no more of a member of a job; whether other members are left."""
        with self._lock:
            wanted = self._wanted.get(number, set())
            wanted.discard(member)
            return bool(wanted)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Go on, or stop."""
        with self._lock:
            wanted = self._wanted.get(trial.config[JOB].number)
        if not wanted:
            return TrialScheduler.STOP
        if population := self._population_of.get(trial):
            return population.on_trial_result(population.members(tune_controller), trial, result)
        return TrialScheduler.CONTINUE

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Tell a population of its member."""
        job = trial.config[JOB]
        if spec := population_of(job):
            population = self._populations.setdefault(population_key(job, spec), Population(spec))
            self._population_of[trial] = population
            population.on_trial_add(population.members(tune_controller), trial)

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """The first that waits; of a population of which members pause, the one that is least far."""
        chosen = super().choose_trial_to_run(tune_controller)
        if chosen is not None and chosen.status == Trial.PAUSED and (population := self._population_of.get(chosen)):
            return population.choose_trial_to_run(population.members(tune_controller))
        return chosen

    def forget(self, number: int) -> None:
        """A job has ended."""
        with self._lock:
            self._wanted.pop(number, None)

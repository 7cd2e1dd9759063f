"""The scheduler for Ray Tune: ends the jobs whose members the design has pruned."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from ablate.execution.ray.keys import JOB
from ablate.execution.ray.population import Population, population_key, population_of

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController


class DesignScheduler(FIFOScheduler):
    """Runs jobs in the order of submission, and ends a job when all its members were asked to leave.

    The design decides which trials to prune (ASHA, Hyperband, the median or the Wilcoxon rule of `search`), by the same
    rule on every engine: Tune can end only jobs, and a pruned trial is one member of a job. Tune's population based
    training schedules the members of a population.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wanted: dict[int, set[int]] = {}
        self._populations: dict[str, Population] = {}
        self._population_of: dict[Trial, Population] = {}
        self._lock = threading.Lock()

    def expect(self, number: int, members: int) -> None:
        """Register a job with this number of members."""
        with self._lock:
            self._wanted[number] = set(range(members))

    def stop(self, number: int, member: int) -> bool:
        """Ask a member to leave its job; whether other members remain."""
        with self._lock:
            wanted = self._wanted.get(number, set())
            wanted.discard(member)
            return bool(wanted)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Continue the job, or stop it if no member remains."""
        with self._lock:
            wanted = self._wanted.get(trial.config[JOB].number)
        if not wanted:
            return TrialScheduler.STOP
        if population := self._population_of.get(trial):
            return population.on_trial_result(population.members(tune_controller), trial, result)
        return TrialScheduler.CONTINUE

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Add a member to its population."""
        job = trial.config[JOB]
        if spec := population_of(job):
            population = self._populations.setdefault(population_key(job, spec), Population(spec))
            self._population_of[trial] = population
            population.on_trial_add(population.members(tune_controller), trial)

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """The first waiting job; of a population with paused members, the one with the fewest steps."""
        chosen = super().choose_trial_to_run(tune_controller)
        if chosen is not None and chosen.status == Trial.PAUSED and (population := self._population_of.get(chosen)):
            return population.choose_trial_to_run(population.members(tune_controller))
        return chosen

    def forget(self, number: int) -> None:
        """Remove a job that has ended."""
        with self._lock:
            self._wanted.pop(number, None)

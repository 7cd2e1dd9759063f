"""Schedules jobs for Ray Tune: ends those whose members the design has pruned, and trains populations.

A configuration of Tune holds the job and, by path, the hyperparameters that may change.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ray.tune import loguniform
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining

from ablate.execution.protocol import Job
from ablate.spec.paths import assign, value_at
from ablate.spec.training import PopulationSpec
from ablate.spec.variant import VariantSpec
from ablate.training.events import State

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController
import threading
from typing import TYPE_CHECKING

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController

JOB = "job"
"""Key of a configuration: the job."""
PLACEMENT = "placement"
"""Key of a configuration: the placement of the job."""
LEFT = "left"
"""Key of a configuration: the checkpoints of the job from an earlier driver."""
MESSAGES = "messages"
"""Key of a result: the messages for the driver."""
STEPS = "steps"
"""In a result with a checkpoint: optimizer steps done."""
LOSS = "loss"
"""In a result with a checkpoint: the last validation loss."""


VALUES = "values"
"""The key in a checkpoint of a member for its history: a list of [first step, hyperparameters]."""


def population_of(job: Job) -> PopulationSpec | None:
    """The population of a job, which then has one trial; None if it belongs to none."""
    return job.members[0].population


def population_key(job: Job, population: PopulationSpec) -> str:
    """A key that the members of one population share: their seed, and the population without the member."""
    return f"{job.members[0].seed} {population.model_copy(update={'member': 0}).canonical_json()}"


def first_values(job: Job, population: PopulationSpec) -> dict[str, float]:
    """The initial hyperparameters of a member, by path."""
    plain = VariantSpec.model_validate_json(job.members[0].variant).model_dump(mode="json")
    return {path: value_at(plain, path) for path in population.ranges}


def values_in(config: Mapping[str, Any]) -> dict[str, float]:
    """The hyperparameters in a configuration of Tune."""
    return {name: value for name, value in config.items() if name not in (JOB, PLACEMENT, LEFT)}


def with_values(job: Job, values: Mapping[str, float]) -> Job:
    """The job of a member with other hyperparameters."""
    (member,) = job.members
    plain = VariantSpec.model_validate_json(member.variant).model_dump(mode="json")
    for path, value in values.items():
        assign(plain, path, value)
    return replace(job, members=(replace(member, variant=VariantSpec.model_validate(plain).model_dump_json()),))


def history(start: State | None, values: dict[str, float]) -> list[list[Any]]:
    """The history of a state, extended by the hyperparameters from now on."""
    if start is None:
        return [[0, values]]
    before: list[list[Any]] = start[VALUES]
    return before if before[-1][1] == values else [*before, [start["counters"]["steps"], values]]


class Population(PopulationBasedTraining):
    """The scheduler of one population; it sees only the members of this population.

    Args:
        spec: The spec of any of its members.
    """

    def __init__(self, spec: PopulationSpec) -> None:
        self._spec = spec
        super().__init__(
            time_attr=STEPS,
            metric=LOSS,
            mode="min",
            perturbation_interval=spec.every,
            hyperparam_mutations={path: loguniform(low, high) for path, (low, high) in spec.ranges.items()},
            quantile_fraction=spec.share,
            resample_probability=spec.redraw,
            log_config=False,
            require_attrs=False,
        )

    def members(self, controller: TuneController) -> Any:
        """A view of the controller that has only the trials of this population."""
        return _Members(controller, self._trial_state)

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        """The perturbed hyperparameters of the better member, with the trial's own job."""
        taken = values_in(trial_to_clone.config)
        changed, operations = super()._get_new_config(trial, cast(Trial, SimpleNamespace(config=taken)))
        kept = {name: trial.config[name] for name in (JOB, PLACEMENT, LEFT)}
        return kept | {path: self._spec.clip(path, changed[path]) for path in taken}, operations


class _Members:
    """The view of Tune's controller that a population sees."""

    search_alg = None

    def __init__(self, controller: TuneController, members: Container[Trial]) -> None:
        self._controller = controller
        self._members = members

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    def get_trials(self) -> list[Trial]:
        """The members among Tune's trials."""
        every: list[Trial] = self._controller.get_trials()  # type: ignore[no-untyped-call]
        return [trial for trial in every if trial in self._members]


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

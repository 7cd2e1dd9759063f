"""Population based training by Ray Tune: the scheduler for the members of a population, and their hyperparameters.

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
from ablate.execution.ray.keys import JOB, LEFT, LOSS, SEAT, STEPS
from ablate.spec.paths import assign, value_at
from ablate.spec.training import PopulationSpec
from ablate.spec.variant import VariantSpec
from ablate.training.events import State

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController

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
    return {name: value for name, value in config.items() if name not in (JOB, SEAT, LEFT)}


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
        kept = {name: trial.config[name] for name in (JOB, SEAT, LEFT)}
        return kept | {path: self._spec.clipped(path, changed[path]) for path in taken}, operations


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

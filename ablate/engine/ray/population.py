"""Population based training by Ray Tune: its scheduler for our members, and what an actor does with their values.

A configuration of Tune's holds the values that may change beside the job, by their paths.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from ray.tune import loguniform
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining

from ablate.engine.ray.words import JOB, LEFT, LOSS, SEAT, STEPS
from ablate.engine.worker import Job
from ablate.spec.paths import assign, value_at
from ablate.spec.population import PopulationSpec
from ablate.spec.variant import VariantSpec
from ablate.training.events import State

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController

VALUES = "values"
"""In a checkpoint of a member: what its weights were trained with, a list of [from which step on, values]."""


def population_of(job: Job) -> PopulationSpec | None:
    """The population that a job is a member of, if it is one; such a job has one trial."""
    if '"population":{' not in job.members[0].variant:  # most jobs are none, and need not be read for it
        return None
    return VariantSpec.model_validate_json(job.members[0].variant).training.population


def population_key(job: Job, population: PopulationSpec) -> str:
    """What the members of one population share: their seed, and all of the population but the member."""
    return f"{job.members[0].seed} {population.model_copy(update={'member': 0}).canonical_json()}"


def first_values(job: Job, population: PopulationSpec) -> dict[str, float]:
    """What a member begins with, by path."""
    plain = VariantSpec.model_validate_json(job.members[0].variant).model_dump(mode="json")
    return {path: value_at(plain, path) for path in population.ranges}


def values_in(config: Mapping[str, Any]) -> dict[str, float]:
    """The values in a configuration of Tune's."""
    return {name: value for name, value in config.items() if name not in (JOB, SEAT, LEFT)}


def with_values(job: Job, values: Mapping[str, float]) -> Job:
    """A member that is to be trained with other values."""
    (member,) = job.members
    plain = VariantSpec.model_validate_json(member.variant).model_dump(mode="json")
    for path, value in values.items():
        assign(plain, path, value)
    return replace(job, members=(replace(member, variant=VariantSpec.model_validate(plain).model_dump_json()),))


def history(start: State | None, values: dict[str, float]) -> list[list[Any]]:
    """What the weights of a state were trained with, and are from now on."""
    if start is None:
        return [[0, values]]
    before: list[list[Any]] = start[VALUES]
    return before if before[-1][1] == values else [*before, [start["counters"]["steps"], values]]


class Population(PopulationBasedTraining):
    """One population: exchanges among the members that it is shown, and knows nothing of other trials.

    Args:
        spec: Of any of its members.
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
        """The controller, as if these were all its trials."""
        return _Members(controller, self._trial_state)

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values of the better member, changed; the job stays the trial's own."""
        taken = values_in(trial_to_clone.config)
        changed, operations = super()._get_new_config(trial, cast(Trial, SimpleNamespace(config=taken)))
        kept = {name: trial.config[name] for name in (JOB, SEAT, LEFT)}
        return kept | {path: self._spec.clipped(path, changed[path]) for path in taken}, operations


class _Members:
    """What a population sees of Tune's controller."""

    search_alg = None

    def __init__(self, controller: TuneController, members: Container[Trial]) -> None:
        self._controller = controller
        self._members = members

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    def get_trials(self) -> list[Trial]:
        """The members that Tune knows of."""
        every: list[Trial] = self._controller.get_trials()  # type: ignore[no-untyped-call]
        return [trial for trial in every if trial in self._members]

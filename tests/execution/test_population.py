"""The parts of population based training that need no cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_samples import SPACE, planner
from pydantic import ValidationError
from ray_samples import POPULATION, job

from ablate.errors import EngineError
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.execution.ray.scheduling import (
    JOB,
    LEFT,
    PLACEMENT,
    first_values,
    history,
    population_key,
    population_of,
    values_in,
    with_values,
)
from ablate.planning.plan import Plan
from ablate.planning.planner import make_plan
from ablate.training.members import pack_key

RATE = "training.optimizer.lr"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    return make_plan(planner(tmp_path, **POPULATION))


def changed(tmp_path: Path, **design: Any) -> None:
    planner(tmp_path, **{**POPULATION, "design": {**POPULATION["design"], **design}})


def test_members_begin_with_drawn_values_and_are_trials_of_their_own(plan: Plan, tmp_path: Path) -> None:
    baseline, *members = plan.trials
    assert (baseline.variant.name, len(members)) == ("baseline", 4)
    rates = [trial.variant.spec.training.optimizer.lr for trial in members]
    assert len(set(rates)) == 4
    assert all(1e-6 <= rate <= 1e-1 for rate in rates)
    assert len({trial.key for trial in plan.trials}) == 5
    assert pack_key(baseline.variant.spec, "f") is not None
    assert {pack_key(trial.variant.spec, "f") for trial in members} == {None}
    again = make_plan(planner(tmp_path, **POPULATION))
    assert [trial.key for trial in again.trials] == [trial.key for trial in plan.trials]
    spec = POPULATION["design"]
    other = make_plan(planner(tmp_path, **{**POPULATION, "design": {**spec, "every": 200}}))
    assert not {trial.key for trial in other.trials[1:]} & {trial.key for trial in members}
    assert other.trials[0].key == baseline.key, "the baseline is the trial that it is in any study"


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ({"ranges": {"model.width": [8, 16]}}, "only paths below `training.optimizer`"),
        ({"ranges": {RATE: [0.1, 0.01]}}, "a range must be ascending"),
        ({"ranges": {RATE: [0, 0.01]}}, "greater than 0"),
        ({"size": 1}, "greater than or equal to 2"),
    ],
)
def test_an_invalid_population_is_refused(design: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=said):
        changed(tmp_path, **design)


def test_members_that_exchange_before_they_are_measured_make_no_population(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    made = planner(tmp_path, **{**POPULATION, "training": {**SPACE["training"], "steps": 300, "evaluations": 2}})
    with pytest.raises(Exception, match=r"no member of the population makes a model.*measured at every 150 steps"):
        make_plan(made)


def test_the_local_engine_says_which_engine_can(plan: Plan, tmp_path: Path) -> None:
    with (
        LocalEngine(RunOptions(cache=tmp_path / "cache", device="cpu", workers=1)) as local,
        pytest.raises(EngineError, match=r"--engine ray"),
    ):
        local.admit(plan)


def test_a_member_is_trained_with_the_values_that_tune_gives_it(plan: Plan) -> None:
    member = job(7, plan.trials[2])
    population = population_of(member)
    assert population is not None
    assert population_of(job(1, plan.trials[0])) is None
    begins = first_values(member, population)
    assert begins == {RATE: plan.trials[2].variant.spec.training.optimizer.lr}
    given = values_in({JOB: member, PLACEMENT: None, LEFT: (), RATE: 0.05})
    moved = with_values(member, given)
    assert first_values(moved, population) == {RATE: 0.05}
    assert (moved.number, population_of(moved)) == (7, population)
    keys = [
        population_key(each, population_of(each)) for each in (job(i, trial) for i, trial in enumerate(plan.trials[1:]))
    ]
    assert len(set(keys)) == 1


def test_the_values_of_weights_are_remembered_from_step_to_step() -> None:
    first = history(None, {RATE: 0.1})
    assert first == [[0, {RATE: 0.1}]]
    state = {"values": first, "counters": {"steps": 100}}
    assert history(state, {RATE: 0.1}) == first
    assert history(state, {RATE: 0.12}) == [*first, [100, {RATE: 0.12}]]

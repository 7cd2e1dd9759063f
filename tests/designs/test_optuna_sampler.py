"""Designs in plain Optuna: the same trials as by asking and telling, stopped when the design is done."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import optuna
import pytest
from design_contexts import a_context, drive, on_off
from optuna.trial import TrialState
from sqlalchemy.pool import NullPool

from ablate.designs.base import Point
from ablate.designs.bridges.optuna_sampler import DesignSampler
from ablate.spec.design import DesignSpec

SWITCHES = on_off(*"abc")
SPECS: list[dict[str, object]] = [
    {"kind": "leave_one_out", "seeds": 2},
    {"kind": "fractional", "resolution": "III", "seeds": 2},
    {"kind": "simplify", "seeds": 2, "beam": 2},
    {"kind": "search", "points": 6, "seeds": 2},
]


@pytest.fixture(autouse=True)
def _quiet_optuna():  # type: ignore[no-untyped-def]
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def loss(settings: dict[str, str], seed: int) -> float:
    return 0.5 * (settings["a"] == "off") + 0.01 * (settings["b"] == "off") + 0.1 * seed


def objective(trial: optuna.Trial) -> float:
    settings = {switch: trial.suggest_categorical(switch, list(options)) for switch, options in SWITCHES.items()}
    return loss(settings, trial.suggest_int("seed", 0, 1))


def fresh(spec: dict[str, object]) -> DesignSampler:
    return DesignSampler(DesignSpec.parse(spec).build(a_context(SWITCHES)))


@pytest.mark.parametrize("spec", SPECS, ids=[str(spec["kind"]) for spec in SPECS])
def test_same_trials_as_by_asking_and_telling(spec: dict[str, object]) -> None:
    study = optuna.create_study(sampler=fresh(spec))
    study.optimize(objective, n_trials=None)
    design = DesignSpec.parse(spec).build(a_context(SWITCHES))
    proposals = drive(design, lambda point, seed: loss(dict(point.settings), seed))
    assert [trial.params for trial in study.trials] == [{**p.point.settings, "seed": p.seed} for p in proposals]


@pytest.mark.parametrize("spec", SPECS, ids=[str(spec["kind"]) for spec in SPECS])
def test_continues_where_a_stored_study_stopped(spec: dict[str, object], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": NullPool})  # keeps no connection open
    study = optuna.create_study(sampler=fresh(spec), storage=storage, study_name="s")
    study.optimize(objective, n_trials=3)
    again = optuna.load_study(sampler=fresh(spec), storage=storage, study_name="s")
    again.optimize(objective, n_trials=None)
    whole = optuna.create_study(sampler=fresh(spec))
    whole.optimize(objective, n_trials=None)
    assert [trial.params for trial in again.trials] == [trial.params for trial in whole.trials]


def test_threads_wait_for_results_and_run_each_proposal() -> None:
    spec = {"kind": "simplify", "seeds": 2}
    trained: list[tuple[object, ...]] = []
    lock = threading.Lock()

    def slow(trial: optuna.Trial) -> float:
        value = objective(trial)
        time.sleep(0.01)
        with lock:
            trained.append(tuple(trial.params.items()))
        return value

    optuna.create_study(sampler=fresh(spec)).optimize(slow, n_trials=None, n_jobs=3)
    design = DesignSpec.parse(spec).build(a_context(SWITCHES))
    proposals = drive(design, lambda point, seed: loss(dict(point.settings), seed))
    assert set(trained) == {(*p.point.settings.items(), ("seed", p.seed)) for p in proposals}


def test_ask_and_tell() -> None:
    study = optuna.create_study(sampler=fresh({"kind": "leave_one_out", "seeds": 1}))
    for _ in range(4):
        trial = study.ask()
        study.tell(trial, objective(trial))
    assert [trial.params["c"] for trial in study.trials] == ["on", "on", "on", "off"]


def test_numeric_values_and_failures() -> None:
    spec = DesignSpec.parse({"kind": "sweep", "path": "heads", "values": [1, 2, 4], "seeds": 1})
    results: list[tuple[str, float | None]] = []

    class Listening(type(spec.build(a_context(SWITCHES)))):  # type: ignore[misc]
        def tell(self, point: Point, seed: int, value: float | None) -> None:
            results.append((point.name, value))

    design = spec.build(a_context(SWITCHES))
    design.__class__ = Listening
    study = optuna.create_study(sampler=DesignSampler(design))

    def train(trial: optuna.Trial) -> float:
        heads = trial.suggest_categorical("heads", [1, 2, 4])
        if heads == 2:
            raise ArithmeticError
        return float(heads)

    study.optimize(train, n_trials=None, catch=(ArithmeticError,))
    assert results == [("baseline@heads=1", 1.0), ("baseline@heads=2", None), ("baseline@heads=4", 4.0)]
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]


def test_a_parameter_that_the_design_does_not_set() -> None:
    study = optuna.create_study(sampler=fresh({"kind": "grid", "seeds": 1}))
    with pytest.raises(ValueError, match="the design sets no `depth`; it sets a, b, c, seed"):
        study.optimize(lambda trial: trial.suggest_int("depth", 1, 3), n_trials=1)

"""A study written for Optuna is what Optuna reads."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_store import NOON, FakeStore, fake_store
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages._rdb.models import TrialParamModel
from sqlalchemy.pool import NullPool

from ablate.analysis.optuna_export import (
    PARAMETER,
    _distributions,
    _first_line,
    _parameters,
    _scalar,
    _searched_distribution,
    export_optuna,
)
from ablate.errors import AblateError, ArgumentError, StoreError
from ablate.roles import TrialRole
from ablate.store import open_store
from ablate.store.records import JudgedRuns, PlannedTrial, TrialState
from ablate.store.rows import unreadable_trial

SPACE: dict[str, Any] = {
    "switches": {"skip": {"kept": {}, "removed": {}}, "norm": {"rms": {}, "layer": {}, "none": {}}},
    "design": {"kind": "search", "ranges": {"training.optimizer.lr": {"low": 1e-4, "high": 0.1, "log": True}}},
}


@pytest.fixture
def store() -> FakeStore:
    settings = {
        "baseline": {"skip": "kept", "norm": "rms"},
        "a": {"skip": "removed", "norm": "rms", "training.optimizer.lr": "0.003"},
        "b": {"skip": "kept", "norm": "none", "model.depth": "4"},
        "c": {"skip": "kept", "norm": "layer", "model.depth": "2"},
    }
    made = fake_store({name: (chosen, 100) for name, chosen in settings.items()}, seeds=2)
    made.record = replace(made.record, space=SPACE)
    made.add("baseline", 0, {"val_loss": 1.5, "accuracy": 0.5}, curve=[(0, 3.0), (5, None), (10, 1.5)])
    made.add("a", 0, {"val_loss": 1.25}, curve=[(10, 1.25)])
    made.add("b", 1, {"val_loss": 9.0}, state=TrialState.DIVERGED, curve=[(10, None)], reason="long " * 101)
    made.add("c", 0, {"val_loss": 2.5}, state=TrialState.PRUNED, curve=[(5, 2.5)])
    made.add("c", 1, state=TrialState.RUNNING, curve=[(5, 2.25)])
    return made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'optuna.db'}"


def storage(url: str) -> optuna.storages.RDBStorage:
    """A storage that keeps no connection open."""
    return optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": NullPool})


def load(url: str) -> optuna.Study:
    return optuna.load_study(study_name="a_study", storage=storage(url))


def read(url: str) -> dict[str, optuna.trial.FrozenTrial]:
    trials = load(url).trials
    return {trial.user_attrs["key"]: trial for trial in trials}


def test_trials_parameters_curves_and_states(store: FakeStore, url: str) -> None:
    assert export_optuna(store, "a_study", url) == (4, 0)
    study = load(url)
    assert study.direction is optuna.study.StudyDirection.MINIMIZE
    assert study.best_value == 1.25
    drawn = {"skip": "removed", "norm": "rms", "training.optimizer.lr": 0.003}
    assert study.best_params == drawn | {"trial role": "comparison"}
    trials = read(url)
    assert set(trials) == {"baseline/0", "a/0", "b/1", "c/0"}, "what runs or waits is not over"
    base = trials["baseline/0"]
    assert base.intermediate_values == {0: 3.0, 10: 1.5}
    facts = {"key": "baseline/0", "variant": "baseline", "seed": 0, "state": "finished", "role": "comparison"}
    assert base.user_attrs == {"val_loss": 1.5, "accuracy": 0.5, "reason": "", **facts}
    assert trials["b/1"].user_attrs["reason"] == ("long " * 101)[:500]
    assert trials["a/0"].distributions == {
        "skip": CategoricalDistribution(("kept", "removed")),
        "norm": CategoricalDistribution(("rms", "layer", "none")),
        "training.optimizer.lr": FloatDistribution(1e-4, 0.1, log=True),
        "trial role": CategoricalDistribution([role.value for role in TrialRole]),
    }
    assert trials["b/1"].distributions["model.depth"] == IntDistribution(2, 4)
    assert trials["b/1"].params["model.depth"] == 4
    states = {key: (trial.state.name, trial.value) for key, trial in trials.items()}
    ended = {"baseline/0": ("COMPLETE", 1.5), "a/0": ("COMPLETE", 1.25), "b/1": ("FAIL", None), "c/0": ("PRUNED", None)}
    assert states == ended
    assert base.datetime_start == base.datetime_complete == NOON.astimezone().replace(tzinfo=None)
    assert study.user_attrs == {
        "objective": {"metric": "val_loss", "direction": "minimize"}, "question": "Which parts can go?",
    }  # fmt: skip


def test_optuna_can_work_with_it(store: FakeStore, url: str) -> None:
    store.add("b", 0, {"val_loss": 1.75})
    export_optuna(store, "a_study", url)
    study = load(url)
    frame = study.trials_dataframe()
    assert sorted(frame["value"].dropna()) == [1.25, 1.5, 1.75]
    assert list(frame["params_norm"].unique()) == ["rms", "none", "layer"]


def test_a_second_export_adds_trials_that_have_ended_since(store: FakeStore, url: str) -> None:
    export_optuna(store, "a_study", url)
    store.add("c", 1, {"val_loss": 1.0})
    assert export_optuna(store, "a_study", url) == (1, 4)
    assert export_optuna(store, "a_study", url) == (0, 5)
    assert read(url)["c/1"].value == 1.0


@pytest.mark.parametrize("before", [TrialState.FAILED, TrialState.PRUNED])
def test_trials_with_another_outcome_are_written_again(store: FakeStore, url: str, before: TrialState) -> None:
    store.add("b", 0, state=before)
    assert export_optuna(store, "a_study", url) == (5, 0)
    store.add("b", 0, {"val_loss": 1.125})
    assert export_optuna(store, "a_study", url) == (1, 4)
    assert export_optuna(store, "a_study", url) == (0, 5)
    assert load(url).best_value == 1.125


def test_the_members_of_a_population(store: FakeStore, url: str) -> None:
    design = {"kind": "population", "size": 2, "every": 5, "ranges": {"training.optimizer.lr": [1e-4, 1]}}
    store.record = replace(store.record, space={**SPACE, "design": design})
    assert export_optuna(store, "a_study", url) == (4, 0)
    found = read(url)["a/0"].distributions["training.optimizer.lr"]
    assert found == FloatDistribution(1e-4, 1, log=True)


def test_trials_that_tuned_others_are_there_and_say_so(store: FakeStore, url: str) -> None:
    settings = {"skip": "kept", "norm": "rms", "training.optimizer.lr": "0.01"}
    scout = replace(store.record.variants[0], name="baseline, lr 0.01", settings=settings)
    planned = PlannedTrial("scout/0", scout.name, 1000, TrialRole.TUNING)
    store.record = replace(store.record, scout_variants=(scout,), scout_trials=(planned,))
    store.add("scout", 0, {"val_loss": 2.0})
    assert export_optuna(store, "a_study", url) == (5, 0)
    assert {key for key, trial in read(url).items() if trial.user_attrs["role"] == "tuning"} == {"scout/0"}


@pytest.mark.parametrize("exported", [False, True])
def test_another_study_of_this_name_is_left_alone(store: FakeStore, url: str, exported: bool) -> None:
    """One whose trials are another's, or that holds one of another's beside those of ablate's."""
    if exported:
        export_optuna(store, "a_study", url)
    optuna.create_study(study_name="a_study", storage=storage(url), load_if_exists=True).add_trial(
        optuna.trial.create_trial(value=1.0)
    )
    with pytest.raises(StoreError, match="another study 'a_study'"):
        export_optuna(store, "a_study", url)


def facts_of(error: AblateError) -> tuple[str | None, ...]:
    return error.where, error.expected, error.got, error.remedy


def test_a_store_of_our_own_is_left_alone(store: FakeStore, tmp_path: Path) -> None:
    file = tmp_path / "ablate.db"
    open_store(file).close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match="this is a store of ablate's") as refused:
        export_optuna(store, "a_study", f"sqlite:///{file}")
    assert facts_of(refused.value) == (f"sqlite:///{file}", None, None, "Name another file with --optuna.")
    assert file.read_bytes() == before


def test_a_judged_study_is_not_exported(store: FakeStore, url: str) -> None:
    store.record = replace(store.record, judged=JudgedRuns("seed", frozenset(), "3 seeds"))
    with pytest.raises(StoreError, match="judged, not trained here") as refused:
        export_optuna(store, "a_study", url)
    remedy = "Export its data: `ablate report STUDY --format csv`."
    assert facts_of(refused.value) == ("study a_study", None, None, remedy)


def test_losses_and_accuracies_are_not_mixed(store: FakeStore, url: str) -> None:
    export_optuna(store, "a_study", url)
    store.record = replace(store.record, objective={"metric": "accuracy", "direction": "maximize", "margin": 0.1})
    with pytest.raises(StoreError, match=r"another study 'a_study'") as refused:
        export_optuna(store, "a_study", url)
    expected = "trials of ablate's whose accuracy is to be maximized"
    assert facts_of(refused.value) == (url, expected, None, "Name another file with --optuna.")
    store.record = replace(store.record, objective={"metric": "val_loss", "direction": "maximize", "margin": 0.1})
    export_optuna(store, "a_study", other := url.replace("optuna.db", "other.db"))
    assert load(other).direction is optuna.study.StudyDirection.MAXIMIZE


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("optuna.db", ArgumentError),
        ("nosuch://x", ArgumentError),
        ("sqlite:////no/such/folder/x.db", StoreError),
        ("mysql+nosuchdriver://x", ArgumentError),
        ("sqlite+pysqlcipher:///x.db", StoreError),
    ],
)
def test_a_place_that_cannot_be_written(store: FakeStore, wrong: str, kind: type[AblateError]) -> None:
    with pytest.raises(kind, match="Optuna cannot write there") as refused:
        export_optuna(store, "a_study", wrong)
    where, expected, got, remedy = facts_of(refused.value)
    assert (where, (got or "\n").splitlines()) == (wrong, [got])
    installs = "Install the driver of this database, or name a file: sqlite:///optuna.db."
    assert remedy == (installs if "pysqlcipher" in wrong else None), "its driver is not installed"
    mistaken = "the URL of a database, such as sqlite:///optuna.db" if kind is ArgumentError else None
    assert expected == mistaken, "only an argument is the user's mistake"


def test_a_new_choice_is_refused_before_anything_is_written(store: FakeStore, url: str) -> None:
    """Optuna's choices of a parameter are fixed. Trials with former choices are added; numbers may be any."""
    export_optuna(store, "a_study", url)
    switches = {**SPACE["switches"], "skip": {"kept": {}, "removed": {}, "scaled": {}}}
    settings = {"skip": "kept", "norm": "rms", "model.depth": "8"}
    deeper = replace(store.record.variants[0], name="d", settings=settings)
    variants = (*store.record.variants, deeper)
    planned = (*store.record.planned, PlannedTrial("d/0", "d", 0))
    store.record = replace(store.record, space={**SPACE, "switches": switches}, variants=variants, planned=planned)
    store.add("c", 1, {"val_loss": 1.0})
    store.add("d", 0, {"val_loss": 1.0})
    assert export_optuna(store, "a_study", url) == (2, 4)
    depths = {key: trial.distributions.get("model.depth") for key, trial in read(url).items()}
    assert (depths["c/1"], depths["d/0"]) == (IntDistribution(2, 4), IntDistribution(2, 8))
    scaled = replace(deeper, name="e", settings={"skip": "scaled", "norm": "rms"})
    planned = (*planned, PlannedTrial("e/0", "e", 0))
    store.record = replace(store.record, variants=(*variants, scaled), planned=planned)
    store.add("e", 0, {"val_loss": 1.0})
    store.add("b", 0, {"val_loss": 1.0})
    with pytest.raises(StoreError, match=r"choices of `skip` have changed") as no:
        export_optuna(store, "a_study", url)
    remedy = "Name another file with --optuna, which then takes all trials; this one keeps those it has."
    assert facts_of(no.value) == (url, "kept, removed", "scaled", remedy)
    assert len(read(url)) == 6
    assert export_optuna(store, "a_study", url.replace("optuna.db", "other.db")) == (8, 0)


@pytest.mark.parametrize(
    ("kind", "said"),
    [(RuntimeError, "Optuna refuses these trials"), (ValueError, "Optuna refuses these trials"),
     (optuna.exceptions.StorageInternalError, "Optuna cannot write there")],
)  # fmt: skip
def test_what_optuna_says_of_its_own_tables_is_no_mistake_in_an_argument(
    store: FakeStore, url: str, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], said: str
) -> None:
    def refuse(*_: object) -> None:
        raise kind("The version is no longer compatible.\nUpgrade.")

    monkeypatch.setattr(optuna.storages._rdb.storage._VersionManager, "check_table_schema_compatibility", refuse)
    with pytest.raises(StoreError, match=said) as refused:
        export_optuna(store, "a_study", url)
    remedy = "The store of ablate is unharmed; another file, named with --optuna, takes all trials."
    unharmed = None if "write" in said else remedy
    assert facts_of(refused.value) == (url, None, "The version is no longer compatible.", unharmed)
    assert _first_line(kind()) == kind.__name__


def test_the_storage_is_closed(store: FakeStore, url: str, tmp_path: Path) -> None:
    export_optuna(store, "a_study", url)
    gc.collect()
    here = Path("/proc/self/fd")
    if here.exists():
        assert not [one for one in here.iterdir() if one.exists() and one.resolve() == tmp_path / "optuna.db"]


def test_trials_of_a_dead_driver_and_unreadable_ones_are_left_out(store: FakeStore, url: str) -> None:
    store.add("b", 0, state=TrialState.WAITING)
    store.trial_records["b/0"] = replace(store.trial_records["b/0"], finished_at=None)
    store.trial_records["a/1"] = unreadable_trial("a/1", "`metrics`: not a mapping")
    for key, unknown in (("a/0", {"started_at": None}), ("b/1", {"finished_at": None})):
        store.trial_records[key] = replace(store.trial_records[key], **unknown)  # type: ignore[arg-type]
    assert export_optuna(store, "a_study", url) == (4, 0)
    store.add("b", 0, {"val_loss": 2.0})
    assert export_optuna(store, "a_study", url) == (1, 4)


def test_the_name_of_a_parameter_fits_its_column() -> None:
    column: Any = TrialParamModel.param_name.type  # type: ignore[attr-defined]
    assert column.length == PARAMETER.longest


@pytest.mark.parametrize("low", [1e-4, 1])
@pytest.mark.parametrize(("named", "is_log"), [([], True), ([8], True), ([0], False), ([-1], False)])
def test_a_searched_distribution_range_is_logarithmic_unless_the_baseline_lies_below_it(
    low: float, named: list[float], is_log: bool
) -> None:
    found: Any = _searched_distribution({"low": low, "high": 4 if low == 1 else 0.5, "log": True}, named)
    assert (found.log, found.low) == (is_log, min([low, *named]))
    assert isinstance(found.low, int if low == 1 else float)
    assert not _searched_distribution({"low": low, "high": 9}, named).log  # type: ignore[attr-defined]
    for end, value in ((4, 2.5), (4.0, 2)):
        assert isinstance(_searched_distribution({"low": 1, "high": end}, [value]), FloatDistribution)


def test_a_path_is_a_range_of_its_numbers_or_a_choice_of_its_values(store: FakeStore) -> None:
    found: dict[tuple[Any, ...], Any] = {
        (3, 1, 2): IntDistribution(1, 3),
        (2.5, 1): FloatDistribution(1, 2.5),
        (0.5, 0.25): FloatDistribution(0.25, 0.5),
        (True,): CategoricalDistribution([False, True]),
        ("b", "a"): CategoricalDistribution(["b", "a"]),
        (None, 2): CategoricalDistribution([None, 2]),
    }
    for values, distribution in found.items():
        assert _distributions(store.record, {f"{one}": {"path": one} for one in values})["path"] == distribution


def test_values_are_written_as_optuna_takes_them(store: FakeStore) -> None:
    for value in (None, True, 3, 0.5, "text"):
        assert _scalar(value) is value
    assert _scalar({"b": [1], "a": {"d": 2, "c": None}}) == '{"a": {"c": null, "d": 2}, "b": [1]}'
    assert [len(_scalar(long)) for long in ("x" * 500, "x" * 501, ["x" * 501])] == [500] * 3
    space = {"switches": {"lr": {"one": {}}}, "tune": {"grid": {"lr": [1, 2]}}}
    variant = replace(store.record.variants[0], settings={"lr": "one"}, spec={"lr": 1})
    record = replace(store.record, space=space, variants=(variant,))
    assert _parameters(record, variant) == {"lr": "one", "lr (path)": 1}, "a path that is called as a switch is"

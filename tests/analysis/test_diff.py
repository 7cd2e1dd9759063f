"""Two variants, trials or spaces compared: what is read of each side, and where they differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_samples import ENVIRONMENT, SPACE, Log, ScriptedEngine, finish, planner
from ruamel.yaml import YAML
from scipy import stats

from ablate.analysis.diff import Comparison, Side, environment_differences, read_diff
from ablate.errors import NotFoundError
from ablate.execution.driver import run_study
from ablate.store import open_store
from ablate.store.records import TrialState


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with the sample study, whose trials differ by seed alone."""
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "a.db") as opened:
        run_study(planner(tmp_path), opened, ScriptedEngine(finish), ENVIRONMENT, Log())
    return tmp_path / "a.db"


def test_a_side_is_a_variant_a_trial_or_a_space(store: Path) -> None:
    with open_store(store) as opened:
        record = opened.study("sample")
    key = next(one.key for one in record.planned if (one.variant, one.seed) == ("norm=none", 1))
    YAML().dump(SPACE, Path("b.yaml"))
    named = {"sample/baseline": "variant", "sample/norm=none": "variant", key[:12]: "trial", "b.yaml": "space"}
    sides = {name: read_diff(name, "sample/baseline", store).sides[0] for name in named}
    assert {name: side.kind for name, side in sides.items()} == named
    assert [side.name for side in sides.values()] == list(named)
    assert [side.variant for side in sides.values()] == ["baseline", "norm=none", "norm=none", ""]
    assert [sorted(side.trials) for side in sides.values()] == [[0, 1], [0, 1], [1], []]
    sizes = {variant.name: variant.parameters for variant in record.variants}
    assert [side.parameters for side in sides.values()] == [
        *map(sizes.get, ("baseline", "norm=none", "norm=none")),
        None,
    ]
    found = read_diff("sample/baseline", key, store)
    assert [change.path for change in found.spec if "norm" in change.path]
    assert (found.seeds, found.environment, found.ran, found.is_paired) == ((1,), (), True, True)
    assert found.metrics == found.shared_metrics == ("val_loss",)
    assert not read_diff("b.yaml", key, store).ran
    assert read_diff("b.yaml", "sample/baseline", store).spec == (), "of a space, that of its baseline"
    YAML().dump({**SPACE, "question": "Another?"}, Path("c.yaml"))
    assert [change.path for change in read_diff("b.yaml", "c.yaml", store).spec] == ["question"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sample", "a study is not compared as a whole.*Did you mean `sample/baseline`"),
        ("sampel", "nothing here is called 'sampel'.*Did you mean `sample/baseline`"),
        ("other", "nothing here is called 'other'.*`ablate list` shows"),
        ("sample/norm=non", "has no variant 'norm=non'; expected one of sample/norm=none"),
        ("sample/?", "expected one of sample/baseline, sample/values=identity, sample/norm=none"),
    ],
)
def test_what_is_not_there_is_named_with_the_nearest(store: Path, name: str, said: str) -> None:
    with pytest.raises(NotFoundError, match=said):
        read_diff("sample/baseline", name, store)


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_is_that_of_the_seeds_that_finished(store: Path, paired: bool) -> None:
    first, second = (
        read_diff(f"sample/{name}", "sample/baseline", store).sides[0] for name in ("baseline", "norm=none")
    )
    losses = {"one": {6: 2.0, 7: 2.5, 8: 3.5, 9: 4.0}, "two": {8: 3.0, 9: 4.5, 7: 2.75, 5: 9.0}}

    def made(side: Side, name: str) -> Side:
        trial = next(iter(side.trials.values()))
        trials = {seed: replace(trial, metrics={"val_loss": loss, name: 1.0}) for seed, loss in losses[name].items()}
        trials[4] = replace(trial, metrics={"val_loss": 1.0, "early": 1.0}, state=TrialState.PRUNED)
        trials[3] = replace(trial, metrics={"val_loss": float("inf")})
        return replace(side, trials=trials, is_paired=paired or name == "one")

    found = Comparison((made(first, "one"), made(second, "two")))
    assert (found.is_paired, found.seeds) == (paired, (3, 7, 8, 9))
    assert (found.metrics, found.shared_metrics) == (("val_loss", "one", "two"), ("val_loss",))
    assert found.sides[0].states == {"finished": 5, "pruned": 1}
    ours, theirs = (np.array(list(losses[name].values())) for name in ("two", "one"))
    shown = found.difference(found.sides[1], "val_loss")
    expected = (0.25 - 0.5 + 0.5) / 3 if paired else ours.mean() - theirs.mean()
    assert (shown.difference, shown.n) == (pytest.approx(expected), 3 if paired else shown.n)
    interval = found.interval(found.sides[0], "val_loss")
    assert (interval.low, interval.high) == pytest.approx(stats.t.interval(0.95, 3, theirs.mean(), stats.sem(theirs)))
    units = tuple(replace(side, units={7: name, 8: "b"}) for side, name in zip(found.sides, "ac", strict=True))
    assert not Comparison(units).is_paired, "a seed that stands for another task on each side"


def test_places_differ_whatever_command_ran_there() -> None:
    other = replace(ENVIRONMENT, command="another", host="there", versions={"python": "3.x", "torch": "2"})
    assert environment_differences([ENVIRONMENT], [replace(ENVIRONMENT, command="another")]) == ()
    found = environment_differences([ENVIRONMENT], [other, ENVIRONMENT])
    assert {change.path: change.values for change in found} == {
        "host": {0: "here", 1: ["here", "there"]},
        "versions.torch": {1: "2"},
    }

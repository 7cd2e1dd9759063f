"""What two sides of a comparison have measured, and how far they differ; tests of the command hold what it reads."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_store import fake_store
from scipy import stats

from ablate.analysis.diff import (
    Comparison,
    Difference,
    Side,
    differences,
    environment_differences,
    read_comparison,
    read_diff,
)
from ablate.errors import AblateError, NotFoundError
from ablate.store.records import Environment, JudgedRuns, TrialState

LOSSES = {"one": {6: 2.0, 7: 2.5, 8: 3.5, 9: 4.0}, "two": {8: 3.0, 9: 4.5, 7: 2.75, 5: 9.0}}


def side(name: str, *, is_paired: bool = True) -> Side:
    """Four trials that finished, one whose loss overflowed, and one that was ended early."""
    store = fake_store({name: ({}, 10)}, seeds=0)
    for seed, loss in [*LOSSES[name].items(), (3, math.inf)]:
        store.add(name, seed, {"val_loss": loss, name: 1.0})
    store.add(name, 4, {"val_loss": 1.0, "early": 1.0}, state=TrialState.PRUNED)
    return Side(
        name, "variant", {}, trials={one.seed: one for one in store.trial_records.values()}, is_paired=is_paired
    )


def test_spaces_are_compared_whole_and_one_beside_a_variant_by_its_baseline() -> None:
    one, two = (
        Side(name, "space", {"width": at}, {"model": {"width": at}, "seeds": at}) for name, at in (("a", 1), ("b", 2))
    )
    assert [found.path for found in Comparison((one, two)).spec] == ["model.width", "seeds"]
    assert [found.path for found in Comparison((one, replace(two, space=None))).spec] == ["width"]


@pytest.mark.parametrize(
    ("name", "said", "expected", "remedy"),
    [
        ("norm", "nothing here is called 'norm'", "STUDY/VARIANT", "Did you mean `norms/baseline`?"),
        ("norms", "a study is not compared as a whole", "STUDY/VARIANT", "Did you mean `norms/baseline`?"),
        ("zzz", "nothing here is called 'zzz'", "STUDY/VARIANT", "`ablate list` shows all studies."),
        ("norms/layr", "study 'norms' has no variant 'layr'", "one of norms/layer", "`ablate show norms` shows all"),
        (
            "norms/zzz",
            "study 'norms' has no variant 'zzz'",
            "norms/baseline, norms/rms, norms/layer",
            "`ablate show norms`",
        ),
    ],
)
def test_a_side_that_does_not_exist_is_refused_with_the_nearest(
    name: str, said: str, expected: str, remedy: str
) -> None:
    record = replace(fake_store({one: ({}, 1) for one in ("baseline", "rms", "layer")}).record, name="norms")
    store: Any = SimpleNamespace(studies=lambda: [record], study=lambda _: record, where="a.db")
    with pytest.raises(NotFoundError) as refused:
        read_comparison(store, [name])
    assert (refused.value.where, said in str(refused.value)) == ("a.db", True)
    assert expected in str(refused.value.expected)
    assert str(refused.value.remedy).startswith(remedy)
    assert refused.value.got == (None if "/" in name else repr(name))


def test_the_beginning_of_a_key_names_a_trial_unless_a_study_is_called_so(tmp_path: Path) -> None:
    made = fake_store({"baseline": ({}, 10)}, name="cafe")
    made.add("baseline", 1, {"val_loss": 1.0})
    (trial,), (variant,) = made.trial_records.values(), made.record.variants
    store: Any = SimpleNamespace(studies=lambda: [made.record], study=made.study, where="a.db")
    store.trial, store.variant = {"beef": trial}.__getitem__, {trial.variant_hash: variant}.__getitem__
    (found,) = read_comparison(store, ["beef"]).sides
    assert found == Side("beef", "trial", {}, variant="baseline", parameters=10, trials={1: trial})
    with pytest.raises(NotFoundError, match="not compared as a whole"):
        read_comparison(store, ["cafe"])
    with pytest.raises(AblateError):
        read_diff("cafe/baseline", "beef", tmp_path / "none.db")
    assert not [*tmp_path.iterdir()]


def test_a_side_that_ran_in_two_places_has_a_list_of_what_differs_there() -> None:
    here = Environment({"python": "3.11"}, "cpu", "here", None, None, "ablate study a.yaml")
    there = replace(here, versions={"python": "3.12"}, git_commit="abc", command="ablate resume a")
    assert environment_differences([here, here], [there, here]) == (
        Difference("versions.python", {0: "3.11", 1: ["3.11", "3.12"]}),
        Difference("git_commit", {0: None, 1: [None, "abc"]}),
    )


def test_a_path_that_is_missing_equals_one_that_is_null() -> None:
    found = differences({"a": 1, "b": {"c": None}, "e": 0}, {"d": 2, "a": 1, "e": 0}, {"a": 3, "e": 0})
    assert found == (Difference("a", {0: 1, 1: 1, 2: 3}), Difference("d", {1: 2}))


def test_judged_sides_are_paired_by_what_their_seeds_stand_for() -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "one", "two")}, 2)
    for name in ("baseline", "one", "two"):
        made.add(name, 1, {"val_loss": 1.0})
    units = {0: "arc", 1: "boolq"}
    for judged, paired in ((None, ["one", "two"]), ({"one"}, ["one"]), (set(), [])):
        runs = None if judged is None else JudgedRuns("task", frozenset(judged), "2 tasks", units=units)
        made.record = replace(made.record, judged=runs)
        pairs = {name: read_comparison(made, ["a_study/baseline", f"a_study/{name}"]) for name in ("one", "two")}  # type: ignore[arg-type]
        assert [name for name, found in pairs.items() if found.is_paired] == paired
        for name, found in pairs.items():
            trials = {1: made.trial_records[f"{name}/1"]}
            assert found.sides[1] == Side(
                f"a_study/{name}",
                "variant",
                {},
                variant=name,
                parameters=10,
                trials=trials,
                is_paired=name in paired,
                units={} if judged is None else units,
            )


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_is_that_of_the_seeds_that_finished(paired: bool) -> None:
    found = Comparison((side("one"), side("two", is_paired=paired)))
    assert (found.is_paired, found.seeds, found.ran) == (paired, (3, 7, 8, 9), True)
    assert (found.metrics, found.shared_metrics) == (("val_loss", "one", "two"), ("val_loss",))
    assert found.sides[0].states == {"finished": 5, "pruned": 1}
    assert not replace(found, sides=(found.sides[0], Side("planned", "variant", {}))).ran
    ours, theirs = (np.array(list(LOSSES[name].values())) for name in ("two", "one"))
    expected = (0.25 - 0.5 + 0.5) / 3 if paired else ours.mean() - theirs.mean()
    assert found.difference(found.sides[1], "val_loss").difference == pytest.approx(expected)
    interval = found.interval(found.sides[0], "val_loss")
    assert (interval.low, interval.high) == pytest.approx(stats.t.interval(0.95, 3, theirs.mean(), stats.sem(theirs)))
    units = tuple(replace(side, units={7: name}) for side, name in zip(found.sides, "ac", strict=True))
    assert not Comparison(units).is_paired, "a seed that stands for another task on each side"

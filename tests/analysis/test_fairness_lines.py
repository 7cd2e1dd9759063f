"""The lines of a report on tuning and matching, made from the numbers only."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_store import fake_store

from ablate.analysis.fairness import (
    MatchedBudgets,
    Spent,
    Tried,
    Tuned,
    Tuning,
    _at_edge,
    _by_task,
    early_ends,
    fairness_lines,
    longer_in_all,
    read_matching,
    read_tuning,
)
from ablate.analysis.runs import VariantRuns, read_runs
from ablate.analysis.study import read_study
from ablate.roles import TrialRole
from ablate.store.records import Environment, PlannedTrial, TrialState, VariantRecord

STEPS = MatchedBudgets("steps", None, {})


def matched(equal: str, path: str, **relative: float | None) -> MatchedBudgets:
    of = {
        name: Spent(100 + number, 64, 1000, None, None, None, share)
        for number, (name, share) in enumerate(relative.items())
    }
    return MatchedBudgets(equal, path, of)


def test_nothing_tuned_and_equal_steps_say_nothing() -> None:
    assert fairness_lines(None, STEPS, "val_loss") == ()


@pytest.mark.parametrize(
    ("relative", "words"),
    [
        ({"baseline": 1.0, "x": 1.0}, "steps from 100 to 101. All match the baseline exactly."),
        ({"baseline": 1.0, "x": 0.97, "y": 1.02}, "steps from 100 to 102. The furthest from the baseline: x, -3.00 %."),
        ({"baseline": 1.0, "x": 1.049}, "steps from 100 to 101. The furthest from the baseline: x, +4.90 %."),
        ({"baseline": 1.0, "x": None}, "steps from 100 to 101."),
        ({"baseline": None, "x": None}, "steps from 100 to 101."),
    ],
)
def test_how_near_the_budgets_came(relative: dict[str, float | None], words: str) -> None:
    budgets = matched("flops", "training.steps", **relative)
    assert fairness_lines(None, budgets, "val_loss") == (f"Matched: equal flops, by `training.steps`: {words}",)
    known = {name: share for name, share in relative.items() if share is not None}
    furthest = max(known, key=lambda name: abs(known[name] - 1), default=None)
    assert budgets.furthest == (None if furthest is None else (furthest, known[furthest]))


def test_budgets_that_are_not_equal_are_warned_of() -> None:
    assert fairness_lines(None, matched("seconds", "training.steps", baseline=1.0, x=1.3), "val_loss") == (
        "* Matched: equal seconds, by `training.steps` (timed on this study's machine; another machine gives other "
        "values): steps from 100 to 101. The furthest from the baseline: x, +30.00 %.",
    )


@pytest.mark.parametrize(
    ("path", "solved"),
    [("model.width", "widths from 64 to 64"), ("model.block.mlp.ratio", "hidden widths were solved")],
)
def test_what_was_solved_for_equal_parameters_is_said(path: str, solved: str) -> None:
    (line,) = fairness_lines(None, matched("parameters", path, baseline=1.0, x=0.9), "val_loss")
    assert line == f"* Matched: equal parameters, by `{path}`: {solved}. The furthest from the baseline: x, -10.00 %."


def test_edges_and_what_is_still_tuning_are_named() -> None:
    of = {"baseline": Tuned({"lr": 1}, ("lr",), ()), "x": Tuned({"lr": 2}, (), ()), "y": Tuned(None, (), ())}
    tuning = Tuning({"lr": [1, 2, 3]}, (1000,), of)
    assert tuning.edges == ("baseline",)
    assert fairness_lines(tuning, STEPS, "val_loss") == (
        "Tuned for each variant over the same grid: lr over 1, 2, 3, by the mean val_loss on validation over seeds "
        "(1000) that no comparison uses.",
        "Still tuning: y.",
        "* The best value lies at the edge of the grid for baseline: a better one may lie outside. Widen the grid "
        "before you rely on a difference.",
    )


def test_tuning_is_read_with_each_value_that_was_tried_and_the_seeds_that_were_lost() -> None:
    """`x` was tuned to the end of the grid; `y` is not compared yet, since a trial of its grid runs."""
    store, lr = fake_store({name: ({"of": name}, 10) for name in ("baseline", "x", "y")}), "training.optimizer.lr"
    chosen, scouts, planned = {"baseline": 0.2, "x": 0.4, "y": 0.2}, list[VariantRecord](), list[PlannedTrial]()
    specs = {name: {"training": {"optimizer": {"lr": rate}, "steps": 7}} for name, rate in chosen.items()}
    variants = tuple(replace(one, spec=specs[one.name]) for one in store.record.variants)
    for variant in variants:
        for rate in (0.1, 0.2, 0.4):
            scouts.append(
                replace(variant, name=f"{variant.name} {rate}", spec={"training": {"optimizer": {"lr": rate}}})
            )
            planned += [PlannedTrial(f"{scouts[-1].name}/{seed}", scouts[-1].name, seed, TrialRole.TUNING)
                        for seed in (1008, 1001)]  # fmt: skip
            for seed, loss in ((1001, rate), (1008, rate + 0.5)):
                store.add(scouts[-1].name, seed, {"val_loss": loss, "accuracy": 1 - rate})
    store.add("baseline 0.1", 1001, state=TrialState.DIVERGED)
    store.add("baseline 0.1", 1008, state=TrialState.FAILED)
    store.add("y 0.4", 1008, state=TrialState.RUNNING)
    timing = PlannedTrial("timing/3000", "timing", 3000, TrialRole.TIMING)
    store.record = replace(
        store.record,
        space={
            "tune": {"grid": {lr: [0.1, 0.2, 0.4]}, "seeds": 2},
            "tuned": {"training.steps": {"baseline": 7, "x": 7}},
        },
        variants=variants,
        planned=tuple(one for one in store.record.planned if one.variant != "y"),
        scout_variants=(*scouts, replace(variants[0], name="timing")),
        scout_trials=(*planned, timing),
    )

    def tried(rate: float) -> Tried:
        losses = {1001: rate, 1008: rate + 0.5}
        metrics = {"val_loss": losses, "accuracy": dict.fromkeys(losses, 1 - rate)}
        return Tried({lr: rate}, pytest.approx(rate + 0.25), 2, 0, 2, losses, metrics)

    lost = Tried({lr: 0.1}, None, 0, 2, 2)
    running = replace(tried(0.4), mean=0.4, finished=1, by_seed={1001: 0.4},
                      metrics={"val_loss": {1001: 0.4}, "accuracy": {1001: 0.6}})  # fmt: skip
    assert read_tuning(store, store.record) == Tuning(
        {"training.steps": [7], lr: [0.1, 0.2, 0.4]},
        (1001, 1008),
        {
            "baseline": Tuned({"training.steps": 7, lr: 0.2}, (), (lost, tried(0.2), tried(0.4))),
            "x": Tuned({"training.steps": 7, lr: 0.4}, (lr,), (tried(0.1), tried(0.2), tried(0.4))),
            "y": Tuned(None, (), (tried(0.1), tried(0.2), running)),
        },
        ("training.steps",),
    )
    assert read_tuning(store, replace(store.record, space={})) is None


@pytest.mark.parametrize(
    ("grid", "edges"),
    [([2, 1, 3.5], {1, 3.5}), ([1], {1}), ([1, True, 3], set()), (["a", "b"], set()), ([1, "b", 3], set())],
)
def test_the_edges_of_a_grid_are_its_least_and_its_greatest_number(grid: list[Any], edges: set[float]) -> None:
    assert {value for value in grid if _at_edge(value, grid)} == edges


@pytest.mark.parametrize(
    ("match", "path", "relative"),
    [
        ({"equal": "tokens"}, "training.steps", 350 / 150),
        ({"equal": "seconds"}, "training.steps", 45 / 15),
        ({"equal": "flops"}, "training.steps", 5.0 / 1.5),
        ({"equal": "parameters"}, "model.width", 900 / 1000),
        ({"equal": "parameters", "by": "width"}, "model.width", 900 / 1000),
        ({"equal": "parameters", "by": "mlp"}, "model.block.mlp.ratio", 900 / 1000),
    ],
)
def test_a_matched_budget_is_that_of_the_mean_trial_over_the_baselines(
    match: dict[str, str], path: str, relative: float
) -> None:
    store = fake_store({"baseline": ({}, 1000), "x": ({}, 900), "y": ({}, 800)}, seeds=2)
    spec = {"training": {"steps": 7}, "model": {"width": 64}}
    variants = tuple(replace(one, spec=spec) for one in store.record.variants)
    store.record = replace(store.record, space={"match": match}, variants=variants)
    for seed in range(2):
        store.add(
            "baseline", seed, {"val_loss": 2.0}, tokens=100 + 100 * seed, seconds=10.0 + 10 * seed, flops=1.0 + seed
        )
        store.add("x", seed, {"val_loss": 2.0}, tokens=300 + 100 * seed, seconds=40.0 + 10 * seed, flops=4.0 + 2 * seed)
    found = read_matching(store.record, read_runs(store, store.record, "val_loss"))
    assert (found.equal, found.path, found.axis) == (
        match["equal"],
        path,
        match["equal"].replace("parameters", "steps"),
    )
    assert found.of["x"] == Spent(7, 64, 900, 350.0, 45.0, 5.0, pytest.approx(relative))
    assert found.of["baseline"].relative == 1.0
    assert found.of["y"].relative == (0.8 if match["equal"] == "parameters" else None), "no trial of it has ended"


def trial(**amounts: float) -> Any:
    return SimpleNamespace(**amounts)


@pytest.mark.parametrize(
    ("axis", "ours", "said"),
    [
        ("steps", 10, ""),
        ("steps", 11, "trained 1 step more than the baseline"),
        ("steps", 8, "trained 2 steps less than the baseline"),
        ("tokens", 104, ""),
        ("tokens", 96, ""),
        ("tokens", 106, "trained on 1.06 times the tokens of the baseline"),
        ("flops", 94, "trained on 0.94 times the flops of the baseline"),
    ],
)
def test_what_stages_add_to_a_training_is_said_where_it_matters(axis: str, ours: int, said: str) -> None:
    """Steps exactly, other budgets where they differ by more than a twentieth."""
    variants = fake_store({"baseline": ({}, 1), "x": ({}, 1)}).record.variants
    whole = {"baseline": 100 if axis != "steps" else 10, "x": ours}
    of, runs = {}, {}
    for variant in variants:
        total = whole[variant.name]
        stages = [trial(**{axis: 2}), trial(**{axis: 1})] if variant.name == "x" else [trial(**{axis: 5})]
        last = total - sum(getattr(stage, axis) for stage in stages)
        of[variant.name] = replace(variant, spec={"training": {"steps": last}})
        finished = {} if axis == "steps" else {3: trial(**{axis: last})}
        runs[variant.name] = VariantRuns({}, finished, {}, {}, stages={3: tuple(stages)})
    assert longer_in_all(of["x"], of["baseline"], runs["x"], runs["baseline"], axis) == said
    assert longer_in_all(of["x"], of["baseline"], *[VariantRuns({}, {}, {}, {})] * 2, axis) == "", "without stages"
    alone = longer_in_all(of["x"], of["baseline"], runs["x"], replace(runs["baseline"], stages={}), axis)
    assert axis != "steps" or alone == f"trained {ours - 5} steps more than the baseline", "its stage was 5 steps"
    for waiting in runs if axis != "steps" else ():
        sides = [
            replace(runs[name], finished={} if name == waiting else runs[name].finished) for name in ("x", "baseline")
        ]
        assert longer_in_all(of["x"], of["baseline"], *sides, axis) == "", "a side has only its stages"


@pytest.mark.parametrize(
    ("asked", "ended", "said"),
    [
        ((100, 100), ((100, 60), (100, 100)), {"x": "seed 1 measured at step 60 of 100"}),
        ((100, 100), ((70, 60), (100, 50)), {"x": "seeds 0 and 1 measured at steps 60 to 70 of 100",
                                             "y": "seed 1 measured at step 50 of 100"}),
        ((1000, 1000), ((949, 949), (949, 949)), dict.fromkeys("xy", "seeds 0 and 1 measured at step 949 of 1,000")),
        ((1000, 1000), ((950, 950), (950, 950)), {}),
        ((1000, 1000), ((960, 960), (960, 950)), {"y": "seed 1 measured at step 950 of 960"}),
        ((100, "length"), ((100, 100), (50, 50)), {}),
        ((50, "length"), ((50, 50), (50, 40)), {"y": "seed 1 measured at step 40 of 50"}),
        ((None, None), ((20, 20), (20, 10)), {"y": "seed 1 measured at step 10 of 20"}),
        ((100, None), ((100, 100), (20, 20)), {}),
    ],
)  # fmt: skip
def test_results_of_an_earlier_step_than_others_that_were_asked_for_as_many_are_told(
    asked: tuple[Any, ...], ended: tuple[tuple[int, ...], ...], said: dict[str, str]
) -> None:
    """Both of 50 steps where `length` says so; where none comes near what was asked for, that counts."""
    specs = {name: {"trainer": {"steps": steps}, "length": 50} for name, steps in zip("xy", asked, strict=True)}
    known = fake_store({name: ({}, 1) for name in ("x", "y", "z", "own")}).record.variants
    variants = [replace(one, spec=specs.get(one.name, {"trainer": {}} if one.name == "z" else {})) for one in known]
    finished = {name: {seed: trial(steps=at) for seed, at in reversed(list(enumerate(of)))}
                for name, of in zip("xy", ended, strict=True)}  # fmt: skip
    assert early_ends(variants, finished | {"z": {}, "own": {0: trial(steps=1)}}) == said


def test_what_was_tuned_before_the_study_is_distinguished_from_what_it_tunes() -> None:
    of = {"baseline": Tuned({"lr": 1, "wd": 2}, (), ())}
    (line,) = fairness_lines(Tuning({"lr": [1, 2]}, (), of, before=("lr",)), STEPS, "val_loss")
    assert line == "Tuned for each variant before this study: lr, to the values in the space."
    both = fairness_lines(Tuning({"lr": [1, 2], "wd": [2, 3]}, (1000,), of, before=("lr",)), STEPS, "val_loss")
    assert both[0] == line
    assert "wd over 2, 3" in both[1]
    assert "lr over" not in both[1]


@pytest.mark.parametrize(("devices", "warned"), [(("cpu: A", "cpu: A"), False), (("cpu: A", "cuda: 1 x B"), True)])
def test_steps_that_were_timed_on_several_devices_are_a_warning(devices: tuple[str, str], warned: bool) -> None:
    """The store keeps timings: a variant that is added on another machine is timed there, the baseline was not."""
    store = fake_store({"baseline": ({}, 100), "x": ({}, 100)}, seeds=2)
    for name in ("baseline", "x"):
        for seed in range(2):
            store.add(name, seed, {"val_loss": 2.0 + seed / 100})
    scouts = [replace(variant, name=f"{variant.name} (timing)") for variant in store.record.variants]
    planned = tuple(PlannedTrial(f"{scout.name}/3000", scout.name, 3000, TrialRole.TIMING) for scout in scouts)
    store.record = replace(store.record, scout_variants=tuple(scouts), scout_trials=planned)
    for scout, device in zip(scouts, devices, strict=True):
        store.add(scout.name, 3000, {"val_loss": 3.0})
        key = f"{scout.name}/3000"
        environment = Environment({}, device, "lab", None, None, "")
        store.trial_records[key] = replace(store.trial_records[key], environment=environment)
    said = [warning for warning in read_study(store, "a_study").answer.warnings if warning.key == "timing"]
    assert [warning.text for warning in said] == (["steps were timed on 2 devices"] if warned else [])


def test_tuned_values_are_told_by_task_only_where_tasks_have_different_ones() -> None:
    tuned = {"lr": {"x": 1.0, "y": 1.0, "y@task=copy": 2.0}}
    space = {"tasks": {"recall": {}, "copy": {}}, "tuned": tuned}
    assert _by_task(space, "x") == {}
    assert _by_task(space, "y") == {"lr": {"recall": 1.0, "copy": 2.0}}

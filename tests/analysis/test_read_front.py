"""The front of a study against brute force over its stored trials."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from designed_study import on_off, run
from fake_store import FakeStore, fake_store
from test_target import studied as reaching

from ablate.analysis.fairness import Tried, Tuned, Tuning
from ablate.analysis.pareto import _p_as_good, _significant, read_front
from ablate.analysis.runs import UNITS, words_for
from ablate.errors import AblateError
from ablate.metrics import COSTS
from ablate.stats import Direction, summarise
from ablate.stats.bounds import NO_ALLOWANCE, p_below
from ablate.stats.schedule import ERROR, SeedSchedule
from ablate.store.records import TrialState

SEARCH = {"kind": "search", "sampler": "nsga2", "points": 24, "seeds": 3, "objectives": ["objective", "parameters"]}


def loss(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
    if settings["e"] == settings["a"] == "off":
        return None
    return 3 + sum(0.1 * "adcbe".index(name) for name, setting in settings.items() if setting == "off")


def brute_force(made: FakeStore) -> set[str]:
    """Names of the variants that no other dominates: at most the loss and at most the parameters, and less of one."""
    means = {}
    for variant in made.record.variants:
        trials = [made.trial_records[f"{variant.name}/{seed}"] for seed in range(3)]
        if all(trial.state is TrialState.FINISHED for trial in trials):
            means[variant.name] = (statistics.fmean(t.metrics["val_loss"] for t in trials), variant.parameters)
    return {
        name
        for name, (own, parameters) in means.items()
        if not any(o <= own and p <= parameters and (o, p) != (own, parameters) for o, p in means.values())
    }


@pytest.mark.parametrize("draw", range(3))
def test_against_brute_force(draw: int) -> None:
    made = run(SEARCH, on_off(*"abcde"), loss, noise=0.1, draw=draw)
    front = read_front(made, "a_study")
    assert front is not None
    assert front.quantities == ("val_loss", "parameters")
    assert {point.variant for point in front.points if point.on_front} == brute_force(made)
    by_name = {point.variant: point for point in front.points}
    for point in front.points:
        assert (point.dominated_by is None) == point.on_front
        if point.dominated_by:
            above = by_name[point.dominated_by]
            pairs = [(above.values[name].mean, point.values[name].mean) for name in front.quantities]
            assert all(one <= other for one, other in pairs)  # type: ignore[operator]
    gone = {name for name in (v.name for v in made.record.variants) if name not in by_name}
    assert set(front.left_out) == gone != set()
    means = [point.values["val_loss"].mean or 0.0 for point in front.points]
    assert means == sorted(means)
    base = by_name["baseline"].values["val_loss"].mean or 0.0
    assert front.limit == pytest.approx(base + made.record.objective["margin"])


def test_dominance_by_noise_is_not_significant() -> None:
    """Two twins, and one that is plainly worse and larger; of many draws a twin is significant in 5 %."""
    sure, draws = {"baseline": 0, "twin": 0, "worse": 0}, 1000
    for draw in range(draws):
        made = fake_store({"baseline": ({}, 100), "twin": ({}, 100), "worse": ({}, 120)}, seeds=4)
        rng = np.random.default_rng(draw)
        for seed, (name, effect) in itertools.product(range(4), {"baseline": 0.0, "twin": 0.0, "worse": 1.0}.items()):
            made.add(name, seed, {"val_loss": 3 + effect + float(rng.normal(0, 0.1))})
        front = read_front(made, "a_study", ("objective", "parameters"))
        assert front is not None
        points = {point.variant: point for point in front.points}
        for name in sure:
            sure[name] += points[name].significant
    assert sure["worse"] == draws
    assert abs((sure["baseline"] + sure["twin"]) / draws - 0.05) <= 3 * (0.05 * 0.95 / draws) ** 0.5


def null_study(rng: np.random.Generator, variants: int, seeds: int) -> FakeStore:
    """Variants of one true mean that differ in parameters."""
    sizes = rng.permutation(variants)
    made = fake_store({f"v{at}": ({}, 100 + int(size)) for at, size in enumerate(sizes)}, seeds=seeds)
    for seed in range(seeds):
        shared = float(rng.normal())
        for at in range(variants):
            made.add(f"v{at}", seed, {"val_loss": 3 + shared + float(rng.normal())})
    return made


@pytest.mark.parametrize("seeds", [2, 4])
def test_at_most_one_null_study_in_twenty_finds_anything_significant(seeds: int) -> None:
    rng, studies, wrong = np.random.default_rng(0), 400, 0
    for _ in range(studies):
        front = read_front(null_study(rng, 12, seeds), "a_study")
        assert front is not None
        wrong += any(point.significant for point in front.points)
    assert wrong / studies <= 0.05 + 3 * (0.05 * 0.95 / studies) ** 0.5


@pytest.mark.parametrize(("variants", "seeds"), [(12, 6), (3, {"start": 3, "max": 6})])
def test_a_strong_effect_is_found_among_many_variants(variants: int, seeds: object) -> None:
    """Two are worse and larger by far; the others differ by chance alone."""
    found, worse = 0, {f"v{variants - 2}", f"v{variants - 1}"}
    for draw in range(50):
        rng = np.random.default_rng(draw)
        made = fake_store({f"v{at}": ({}, 100 + at) for at in range(variants)}, seeds=6)
        made.record = replace(made.record, space={"design": {"kind": "leave_one_out", "seeds": seeds}})
        for seed, at in itertools.product(range(6), range(variants)):
            made.add(f"v{at}", seed, {"val_loss": 3 + 0.8 * (at >= variants - 2) + float(rng.normal(0, 0.05))})
        front = read_front(made, "a_study")
        assert front is not None
        found += {point.variant for point in front.points if point.significant} == worse
    assert found >= 47


def test_the_named_dominating_variant_is_the_significant_one() -> None:
    """The best in the mean varies from seed to seed; another one is better by the same at each."""
    made = fake_store({"loser": ({}, 120), "wild": ({}, 110), "steady": ({}, 100)}, seeds=5)
    for seed, off in enumerate((1.0, -1.0, 2.0, -2.0, 0.0)):
        made.add("loser", seed, {"val_loss": 5.0 + seed / 1000})
        made.add("wild", seed, {"val_loss": 3.9 + off})
        made.add("steady", seed, {"val_loss": 4.0})
    front = read_front(made, "a_study")
    assert front is not None
    (loser,) = [point for point in front.points if point.variant == "loser"]
    assert [point.variant for point in front.points if point.on_front] == ["wild", "steady"]
    assert (loser.significant, loser.dominated_by) == (True, "steady")


def test_speed_is_better_when_larger_and_three_quantities_are_possible() -> None:
    made = fake_store({"baseline": ({}, 100), "fast": ({}, 100), "slow": ({}, 100)}, seeds=2)
    for seed, name in itertools.product(range(2), ("baseline", "fast", "slow")):
        made.add(name, seed, {"val_loss": 3.0}, tokens=1000, seconds=1.0 + seed, flops=7.0)
    assert read_front(made, "a_study", ("val_loss", "tokens_per_second", "flops")) is None, "none was timed"
    made.time("fast", [200.0, 196.0], [100.0, 100.0])
    made.time("slow", [50.0, 51.0], [100.0, 100.0])
    front = read_front(made, "a_study", ("val_loss", "tokens_per_second", "flops"))
    assert front is not None
    assert [point.variant for point in front.points if point.on_front] == ["fast"]
    assert front.directions == ("minimize", "maximize", "minimize")
    aims = ("objective", "tokens_per_second", "flops", "parameters")
    two = read_front(made, "a_study", aims[:2])
    for number, expected in (
        (1, None),
        (2, two),
        (3, front),
        (4, front),
    ):  # a front has at most three axes
        searched = replace(made, record=replace(made.record, space={"design": {"objectives": aims[:number]}}))
        assert read_front(searched, "a_study") == expected
    fast = front.points[[p.variant for p in front.points].index("fast")]
    assert fast.values["tokens_per_second"].mean == pytest.approx(198.0)
    assert read_front(made, "a_study") is None, "the variants differ in no cost that follows from the spec"


def test_a_maximised_metric_with_a_mean_of_0_has_its_best_first() -> None:
    made = fake_store({"baseline": ({}, 100), "worse": ({}, 120), "best": ({}, 120)}, seeds=4, direction="maximize")
    for seed, (name, by) in itertools.product(range(4), {"baseline": 0.0, "worse": -1.0, "best": 1.0}.items()):
        made.add(name, seed, {"val_loss": (-0.5, 0.5, -0.25, 0.25)[seed] + by * (1 + 0.01 * seed)})
    front = read_front(made, "a_study")
    assert front is not None
    assert (front.quantities, front.directions) == (("val_loss", "parameters"), ("maximize", "minimize"))
    assert (front.limit, front.left_out) == (-made.record.objective["margin"], ())
    points = [(one.variant, one.on_front, one.dominated_by, one.significant) for one in front.points]
    assert points == [("best", True, None, False), ("baseline", True, None, False), ("worse", False, "best", True)]


def test_one_seed_that_diverged_or_was_pruned_or_never_arrived_leaves_a_variant_out() -> None:
    names = ("baseline", "a", "pruned", "b", "c")
    made = fake_store({name: ({}, 100 + at) for at, name in enumerate(names)}, seeds=2)
    for seed, name in itertools.product(range(2), names):
        made.add(name, seed, {"val_loss": 3.0})
    made.add("baseline", 1, state=TrialState.DIVERGED)
    made.add("pruned", 1, state=TrialState.PRUNED)
    front = read_front(made, "a_study")
    assert front is not None
    assert (front.left_out, front.limit) == (("baseline", "pruned"), None)
    made.add("c", 1, state=TrialState.DIVERGED)
    assert read_front(made, "a_study") is None, "two are left"
    front = read_front(
        reaching({"baseline": [600, 610], "a": [700, 710], "b": [500, 510], "c": [600, 9000]}), "a_study"
    )
    assert front is not None
    assert (front.left_out, front.limit) == (("c",), None), "margins are shares of the baseline"


@pytest.mark.parametrize(("p_value", "found"), [(ERROR / 4, {(0, 2)}), (ERROR / 3.99, set())])
def test_dominance_is_significant_for_a_family_of_all_pairs_whose_first_costs_at_most_as_much(
    p_value: float, found: set[tuple[int, int]]
) -> None:
    """Of three variants of which two have the same size these are four pairs."""
    rows = [[3.0, 100], [2.0, 100], [1.0, 120]]
    asked: dict[str, Direction] = {"val_loss": "minimize", "parameters": "minimize"}
    assert _significant([[], [], [0]], lambda _, index: p_value, rows, asked) == found


def test_looks_count_in_the_order_of_the_seeds_and_not_for_timings() -> None:
    gaps, schedule = {6: -0.1, 7: -0.11, 8: -0.12, 9: 0.05}, SeedSchedule(3, 6)
    none = dict.fromkeys(gaps, 0.0)
    first, all_four = (p_below(summarise([*gaps.values()][:n]), 0.0) for n in (3, 4))
    overall = schedule.overall({3: first, 4: all_four})
    assert _p_as_good([gaps], [none], {"val_loss": "minimize"}, schedule, NO_ALLOWANCE) == overall < ERROR
    assert _p_as_good([none], [gaps], {"tokens_per_second": "maximize"}, schedule, NO_ALLOWANCE) == all_four > ERROR


@pytest.mark.parametrize(
    ("quantities", "message"),
    [
        (
            ("val_loss",),
            "^Pareto front: it is seen by two or three different quantities; got val_loss. Name two or",
        ),
        (("val_loss", "objective"), "two or three different quantities; got val_loss, val_loss"),
        (("parameters", "flops", "seconds", "val_loss"), "different quantities; got parameters, flops, seconds, val_"),
        (
            ("val_loss", "beauty"),
            "^Pareto front: which way this quantity is better is not known; expected one of val_loss, .*; got `beauty`",
        ),
    ],
)
def test_refuses(quantities: tuple[str, ...], message: str) -> None:
    made = run({"kind": "grid", "seeds": 2}, on_off("a", "b"), lambda s, v: 1.0)
    with pytest.raises(AblateError, match=message):
        read_front(made, "a_study", quantities)


@pytest.mark.parametrize(
    "open_to", ["a failed trial", "a trial that waits", "its tuning", "no learning", "no spread", "nothing"]
)
def test_dominance_is_not_significant_where_no_verdict_would_be(open_to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fake_store({"baseline": ({}, 100), "worse": ({}, 120), "other": ({}, 90)}, seeds=4)
    for seed, (name, effect) in itertools.product(range(4), {"baseline": 0.0, "worse": 1.0, "other": 2.0}.items()):
        made.add(name, seed, {"val_loss": 3 + effect + 0.01 * seed * effect * (open_to != "no spread")})
    if open_to == "a failed trial":
        made.add("baseline", 3, state=TrialState.FAILED)
    elif open_to == "a trial that waits":
        del made.trial_records["worse/3"]
    elif open_to == "its tuning":
        tried = tuple(Tried({"lr": at}, 0.1 * at, 1, 0, 1, {1000: 0.1 * at}) for at in range(2))
        tuning = Tuning({"lr": [0, 1]}, (1000,), {"worse": Tuned({"lr": 0}, (), tried)})
        monkeypatch.setattr("ablate.analysis.pareto.read_tuning", lambda store, record: tuning)
    elif open_to == "no learning":
        made.record = replace(made.record, trivial={"bigram": {"val_loss": 2.0}})
    front = read_front(made, "a_study", ("objective", "parameters"))
    assert front is not None
    (point,) = (point for point in front.points if point.variant == "worse")
    assert (point.dominated_by, point.significant) == ("baseline", open_to == "nothing")


def test_a_study_at_several_lengths_has_the_front_of_its_own_length() -> None:
    names = {
        f"{name}{end}": 100 + 10 * at for end in ("", "@budget=2") for at, name in enumerate(("baseline", "a", "b"))
    }
    made = fake_store({name: ({}, parameters) for name, parameters in names.items()}, seeds=2)
    made.record = replace(made.record, space={"budgets": [1, 2]})
    for seed, (at, name) in itertools.product(range(2), enumerate(names)):
        made.add(name, seed, {"val_loss": 3.0 + 0.1 * at + 0.01 * seed})
    front = read_front(made, "a_study")
    assert front is not None
    assert [point.variant for point in front.points] == ["baseline", "a", "b"]


def test_every_cost_is_called_in_words_and_has_a_unit_unless_it_is_a_count() -> None:
    words = {cost: words_for(cost) for cost in COSTS if cost != "parameters"}
    assert all(said != cost and "_" not in said for cost, said in words.items())
    assert len(set(words.values())) == len(words)
    assert UNITS.keys() == words.keys()

"""Effects and importances of studies whose truth is known, run by the real designs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from designed_study import on_off, run, runs_of
from fake_store import NOON, fake_store
from vega import marks, rows

from ablate.analysis.answer import answer_of
from ablate.analysis.effects import (
    EffectRow,
    StudyEffects,
    effects_of,
    read_effects,
    read_importances,
    setting_means,
    trials_by_effect,
)
from ablate.analysis.fairness import Tried, Tuned, Tuning
from ablate.analysis.headline import average_sentence, headline, number_of_pairs, pair_sentences
from ablate.analysis.next_steps import next_steps
from ablate.analysis.status import read_overview
from ablate.analysis.study import read_study
from ablate.render.figures.effects import changes_by_first, draw_means, draw_pairs, draw_sides, draws_pairs
from ablate.render.figures.style import PAPER
from ablate.render.formats.html import effects_table
from ablate.store.records import Declaration, TrialState

ABC = on_off("a", "b", "c")


def landscape(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
    off = {name: setting == "off" for name, setting in settings.items()}
    return 3.0 + 0.5 * off["a"] - 0.2 * off["b"] + 0.4 * (off["a"] and off["b"])


def flat(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
    return 3.0


def estimates(found: StudyEffects | None) -> dict[str, float]:
    assert found is not None
    return {row.name: row.estimate for row in (*found.main, *found.interactions)}


def test_effects_of_a_grid_are_averages_and_differences_of_differences() -> None:
    found = read_effects(run({"kind": "grid", "seeds": 2}, ABC, landscape), "a_study")
    assert estimates(found) == pytest.approx(
        {"a=off": 0.7, "b=off": 0.0, "c=off": 0.0, "a=off:b=off": 0.4, "a=off:c=off": 0.0, "b=off:c=off": 0.0},
        abs=1e-9,
    )
    assert found is not None
    assert (found.trials, found.diverged, found.counted_as, found.interactions_left_out) == (16, 0, None, False)
    for direction, worse in (("minimize", [False, False, True]), ("maximize", [True, False, False])):
        assert [replace(found, direction=direction).is_worse(change) for change in (-0.1, 0.0, 0.1)] == worse  # type: ignore[arg-type]


def test_a_fraction_names_aliases_beside_the_effect() -> None:
    """In half of the grid a main effect is the sum of itself and of the other two's interaction."""
    found = read_effects(run({"kind": "fractional", "resolution": "III", "seeds": 2}, ABC, landscape), "a_study")
    assert found is not None
    rows = {row.name: row for row in found.main}
    assert {name: row.aliases for name, row in rows.items()} == {
        "a=off": ("b=off:c=off",),
        "b=off": ("a=off:c=off",),
        "c=off": ("a=off:b=off",),
    }
    assert found.interactions == ()
    titles = {
        name: " × ".join(f"no {one[0]}" for one in name.split(":"))
        for row in found.main
        for name in (row.name, *row.aliases)
    }
    assert "no a, or the b with the c (+0.7" in average_sentence(replace(found, titles=titles))
    # At three factors with the defining relation abc, the interaction's column is minus or plus half the main one's.
    assert abs(rows["c=off"].estimate) == pytest.approx(0.2)
    assert rows["a=off"].estimate == pytest.approx(0.7)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_narrowed_effect_has_a_share_of_its_interval_around_the_same_estimate(share: float) -> None:
    row = EffectRow((("a", "off"),), 1.0, -1.0, 5.0, ("b=off",), 0.5, 0.1, 0.2)
    assert row.narrowed(share) == replace(row, low=1.0 - 2 * share, high=1.0 + 4 * share)
    assert row.narrowed(1.0) == row
    open_ended = replace(row, low=None)
    assert open_ended.narrowed(share) == open_ended
    assert open_ended.bounds is None


@pytest.mark.parametrize(
    ("hidden", "low", "high"),
    [(1e-9, -1.5, 5.25), (-1e-9, -1.5, 5.25), (-2e-9, -math.inf, 5.25), (2e-9, -1.5, math.inf)],
)
def test_what_diverged_opens_the_side_to_which_it_would_move_an_effect(hidden: float, low: float, high: float) -> None:
    """Differences of rounding open none."""
    assert EffectRow((("a", "off"),), 1.0, -1.0, 5.0, (), hidden, fall=0.5, rise=0.25).bounds == (low, high)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    truth = {"a=off": 0.7, "b=off": 0.0, "c=off": 0.0, "a=off:b=off": 0.4, "a=off:c=off": 0.0, "b=off:c=off": 0.0}
    hits = trials = 0
    for draw in range(60):
        found = read_effects(run({"kind": "grid", "seeds": 2}, ABC, landscape, noise=0.3, draw=draw), "a_study")
        assert found is not None
        for row in (*found.main, *found.interactions):
            assert row.low is not None
            assert row.high is not None
            hits += row.low <= truth[row.name] <= row.high
            trials += 1
    assert abs(hits / trials - 0.95) < 4 * (0.95 * 0.05 / trials) ** 0.5


def test_a_search_has_effects_and_too_few_variants_leave_interactions_out() -> None:
    switches = on_off(*"abcdef")
    few = read_effects(
        run({"kind": "search", "sampler": "random", "points": 14, "seeds": 2}, switches, landscape), "a_study"
    )
    assert few is not None
    assert few.interactions_left_out
    assert few.interactions == ()
    many = read_effects(
        run({"kind": "search", "sampler": "random", "points": 50, "seeds": 2}, switches, landscape), "a_study"
    )
    assert estimates(many)["a=off"] == pytest.approx(0.7, abs=1e-6)
    assert estimates(many)["a=off:b=off"] == pytest.approx(0.4, abs=1e-6)


def test_interactions_are_estimated_as_long_as_they_are_few_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    made = run({"kind": "grid", "seeds": 2}, {**ABC, "d": ("on", "half", "off")}, landscape)
    whole = read_effects(made, "a_study")
    assert whole is not None
    for most in (len(whole.interactions), len(whole.interactions) - 1):
        monkeypatch.setattr("ablate.analysis.effects.MOST_TERMS", most)
        found = read_effects(made, "a_study")
        assert found is not None
        assert found.interactions_left_out == (most < len(whole.interactions))


def test_one_switch_at_a_time_has_no_effects_of_this_sort() -> None:
    made = run({"kind": "leave_one_out", "seeds": 2}, ABC, landscape)
    assert read_effects(made, "a_study") is None
    assert read_importances(made, "a_study") is None
    assert read_effects(replace(run({"kind": "grid"}, ABC, landscape), trial_records={}), "a_study") is None


@pytest.mark.parametrize(("direction", "worst"), [("minimize", max), ("maximize", min)])
def test_what_diverged_counts_as_the_worst_value_that_finished(direction: str, worst: Any) -> None:
    def diverging(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
        return None if settings["c"] == settings["a"] == "off" else landscape(settings, values)

    made = run({"kind": "grid", "seeds": 2}, ABC, diverging, direction=direction)
    found = read_effects(made, "a_study")
    assert found is not None
    finished = [t.metrics["val_loss"] for t in made.trial_records.values() if t.state is TrialState.FINISHED]
    assert (found.trials, found.diverged, found.counted_as) == (16, 4, worst(finished))
    shares = read_importances(made, "a_study")
    assert shares is not None
    assert (shares.variants, shares.diverged) == (8, 4)
    by_hand = dict(made.trial_records)
    for key, trial in by_hand.items():
        if trial.state is TrialState.DIVERGED:
            metrics = {"val_loss": worst(finished)}
            by_hand[key] = replace(trial, state=TrialState.FINISHED, metrics=metrics)
    written_in = replace(made, trial_records=by_hand)
    assert estimates(found) == pytest.approx(estimates(read_effects(written_in, "a_study")))
    left_out = {key: one for key, one in made.trial_records.items() if one.state is TrialState.FINISHED}
    flattered = estimates(read_effects(replace(made, trial_records=left_out), "a_study"))
    sign = 1 if direction == "minimize" else -1
    assert sign * estimates(found)["c=off"] > sign * flattered["c=off"]


def test_what_was_stopped_early_is_left_out_and_counted() -> None:
    made = run({"kind": "grid", "seeds": 2}, ABC, landscape)
    for key in ("c=off/0", "c=off/1"):
        made.trial_records[key] = replace(made.trial_records[key], state=TrialState.PRUNED, metrics={})
    found, shares = read_effects(made, "a_study"), read_importances(made, "a_study")
    assert found is not None
    assert shares is not None
    assert (found.trials, found.pruned, found.diverged, shares.pruned) == (14, 2, 0, 2)
    assert estimates(found)["a=off"] == pytest.approx(0.7)


def test_a_grid_that_is_still_running_has_the_effects_of_what_is_there() -> None:
    made = run({"kind": "grid", "seeds": 3}, ABC, landscape, most=15)
    found = effects_of(made.record, runs_of(made))
    assert found is not None
    assert found.trials == 15
    assert estimates(found)["a=off"] == pytest.approx(0.7)


def test_importances_rank_what_matters_and_leave_a_rest() -> None:
    found = read_importances(run({"kind": "grid", "seeds": 2}, on_off(*"abcd"), landscape, noise=0.02), "a_study")
    assert found is not None
    shares = {one.factor: one.share for one in found.factors}
    assert next(iter(shares)) == "a"
    # Over the grid: the main effects are 0.7 and 0, the interaction 0.4 times a quarter of the cells.
    total = (0.7 / 2) ** 2 + (0.4 / 4) ** 2
    assert shares["a"] == pytest.approx((0.7 / 2) ** 2 / total, abs=0.05)
    assert found.rest == pytest.approx((0.4 / 4) ** 2 / total, abs=0.05)
    assert (found.variants, found.seeds, found.diverged) == (16, 2, 0)


def test_importances_of_a_search_see_its_ranges_on_their_scale() -> None:
    import math

    def slope(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
        return math.log10(values.get("training.optimizer.lr", 1e2)) / 3 + (settings["a"] == "off")

    design = {"kind": "search", "sampler": "random", "points": 60, "seeds": 1, "batch": 10}
    design["ranges"] = {"training.optimizer.lr": {"low": 1e1, "high": 1e4, "log": True}}
    found = read_importances(run(design, on_off("a", "b"), slope), "a_study")
    assert found is not None
    shares = {one.factor: one.share for one in found.factors}
    assert shares["training.optimizer.lr"] == pytest.approx((1 / 12) / (1 / 12 + 1 / 4), abs=0.12)
    assert shares["a"] > 0.6
    assert shares["b"] < 0.05


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1.0), ("maximize", -1.0)])
def test_what_diverged_is_on_no_good_side_of_what_it_counts_as(direction: str, sign: float) -> None:
    """Two settings that are bad alone and diverge together count as the worse of both, which is below their sum."""

    def diverging(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
        off = {name: setting == "off" for name, setting in settings.items()}
        return None if off["a"] and off["b"] else 3.0 + sign * (1.0 * off["a"] + 1.2 * off["b"])

    switches = on_off("a", "b")
    found = read_effects(
        run({"kind": "grid", "seeds": 3}, switches, diverging, noise=0.01, direction=direction), "a_study"
    )
    assert found is not None
    sides = {row.name: found.side(row) for row in (*found.main, *found.interactions)}
    assert sides == {"a=off": "worse", "b=off": "worse", "a=off:b=off": "undecided"}


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(
    "open_to", ["trials that wait", "no learning", "tuning", "seeds added after results", "nothing"]
)
def test_effects_are_on_a_side_only_where_verdicts_would_be(
    open_to: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = 1.0 if direction == "minimize" else -1.0

    def sided(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
        return 3.0 + sign * (landscape({**settings, "c": "on"}, values) - 3.0)

    made = run({"kind": "grid", "seeds": 4}, on_off("a", "b"), sided, noise=0.01, direction=direction)
    if open_to == "trials that wait":
        made.trial_records = {key: one for key, one in made.trial_records.items() if one.seed < 3}
    elif open_to == "no learning":
        made.record = replace(made.record, trivial={"bigram": {"val_loss": 3.0 - sign * 99}})
    elif open_to == "tuning":
        tried = tuple(Tried({"lr": at}, 0.1 * at, 1, 0, 1, {1000: 0.1 * at}) for at in range(2))  # bounds nothing
        tuning = Tuning(
            {"lr": [0, 1]}, (1000,), {one.name: Tuned({"lr": 0}, (), tried) for one in made.record.variants}
        )
        monkeypatch.setattr("ablate.analysis.effects.read_tuning", lambda store, record: tuning)
    elif open_to == "seeds added after results":
        before = Declaration(made.record.objective, [], NOON, 8, 3, pairs=3)
        made.record = replace(made.record, declared_before=(before,))
    found = read_effects(made, "a_study")
    assert found is not None
    sides = {row.name: found.side(row) for row in (*found.main, *found.interactions)}
    if open_to in ("nothing", "seeds added after results"):
        assert sides == {"a=off": "worse", "b=off": "as good", "a=off:b=off": "worse than the sum"}
        assert read_overview(made, "a_study").verdicts == ("worse", "as good")
    else:
        assert set(sides.values()) == {"undecided"}
    drawn = draw_pairs(found, PAPER)
    assert {layer["encoding"]["x"]["axis"]["labelOverlap"] for layer in drawn["layer"]} == {False}, (
        "all names are shown"
    )
    coloured = [
        cell["effect"] for layer in marks(drawn, "rect") if "color" in layer["encoding"] for cell in rows(layer)
    ]
    assert set(coloured) == {found.titles[name] for name, side in sides.items() if side != "undecided"}
    assert all(found.titles[name] in effects_table(found, 9, PAPER) for name in sides)
    plain = replace(made.record, declared_before=())
    widths = [effects_of(record, runs_of(made)).main[0] for record in (plain, made.record)]  # type: ignore[union-attr]
    fixed, shown = ((row.high or 0.0) - (row.low or 0.0) for row in widths)
    assert (shown > 1.5 * fixed) == (open_to == "seeds added after results")


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_tuning_of_a_variant_moves_effects_by_its_weight_in_them(direction: str) -> None:
    """Against the extremes of the effect when each value may be better by its regret, 0 where nothing was tuned."""
    settings = [dict(zip("ab", pair, strict=True)) for pair in itertools.product(("on", "off"), repeat=2)]
    values, regrets, sign = [3.0, 3.5, 2.9, 3.9], [0.1, 0.2, 0.0, 0.4], 1.0 if direction == "minimize" else -1.0
    names = ["baseline", "b=off", "a=off", "a=off,b=off"]
    made = fake_store({name: (of, 10) for name, of in zip(names, settings, strict=True)}, seeds=2, direction=direction)
    made.record = replace(made.record, space={"switches": {name: {"on": {}, "off": {}} for name in "ab"}})
    for name, value in zip(names, values, strict=True):
        for seed in range(2):
            made.add(name, seed, {"val_loss": value})
    # Two seeds without spread: the regret is how much better the rival was.
    tuned = {}
    for name, regret in [of for of in zip(names, regrets, strict=True) if of[1]]:
        ends = (0.0, -sign * regret)
        tried = [Tried({"lr": at}, end, 2, 0, 2, dict.fromkeys((1000, 1001), end)) for at, end in enumerate(ends)]
        tuned[name] = Tuned({"lr": 0}, (), tuple(tried))
    found = effects_of(made.record, runs_of(made), Tuning({"lr": [0, 1]}, (1000, 1001), tuned))
    assert found is not None
    weights = {"a=off": [-0.5, -0.5, 0.5, 0.5], "b=off": [-0.5, 0.5, -0.5, 0.5], "a=off:b=off": [1, -1, -1, 1]}
    for row in (*found.main, *found.interactions):
        moved = [
            sum(w * (value - sign * taken) for w, value, taken in zip(weights[row.name], values, some, strict=True))
            for some in itertools.product(*((0.0, regret) for regret in regrets))
        ]
        ends = (row.estimate - row.fall, row.estimate + row.rise)
        assert ends == pytest.approx((min(moved), max(moved)))


def test_pairs_that_are_not_told_apart_are_all_counted_and_have_no_cell_of_their_own() -> None:
    """In a half fraction of four switches each of three interactions is that of the other two."""
    design = {"kind": "fractional", "resolution": "IV", "seeds": 2}
    made = run(design, on_off("a", "b", "c", "d"), landscape)
    found = read_effects(made, "a_study")
    assert found is not None
    assert (len(found.interactions), number_of_pairs(found)) == (3, 6)
    assert not draws_pairs(found)
    report = read_study(made, "a_study")
    quarter = run({"kind": "fractional", "resolution": "III", "seeds": 2}, ABC, landscape)
    (step,) = [step for step in next_steps(read_study(quarter, "a_study")) if "--design" in step.arguments]
    assert step.purpose.endswith(
        "the other 4 of 8 combinations, in a study of its own: tells the changes and 3 pairs apart"
    )
    (step,) = [step for step in next_steps(report) if "--design" in step.arguments]
    assert step.purpose.endswith("tells the 6 pairs apart")
    assert step.arguments == ("resume", "a_study", "--design", "grid")
    assert "the other 8 of 16 combinations" in step.purpose
    assert step.seconds == pytest.approx(math.fsum(row.seconds for row in report.variants)), "as many again"
    headline = " ".join(answer_of(report).headline)
    assert "At least 1 of 6 pairs interacts: a=off with b=off, or c=off with d=off (" in headline
    of_all = run({"kind": "grid", "seeds": 2}, on_off("a", "b", "c", "d"), landscape)
    assert not [step for step in next_steps(read_study(of_all, "a_study")) if "--design" in step.arguments]
    whole = read_effects(of_all, "a_study")
    assert whole is not None
    assert draws_pairs(whole)
    assert number_of_pairs(whole) == 6


def test_what_a_question_asks_for_comes_first() -> None:
    def loss(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
        skips, value, norms = (settings[name] == "off" for name in ("skips", "value", "norms"))
        return 3.0 + 0.9 * (skips and value) + 0.2 * (value and norms)

    made = run({"kind": "grid", "seeds": 2}, on_off("skips", "value", "norms"), loss, noise=0.001)
    for question, first in (
        ("What of each matters if it is off?", "skips"),
        ("Do the values and the norm agree?", "norms"),
    ):
        made.record = replace(made.record, question=question)
        report = read_study(made, "a_study")
        found, headline = report.effects, answer_of(report).headline
        assert found is not None
        pairs = found.ranked(found.interactions)
        assert {name for name, _ in pairs[0].settings} == {first, "value"}
        assert headline[0].startswith("value=off and norms=off interact: together worse") == (first == "norms")
        other = "1 other pair interacts: skips=off with value=off (+0.9"
        assert any(said.startswith(other) for said in headline) == (first == "norms"), "no interaction is left out"
        assert headline.count(average_sentence(found)) == 1
        drawn = effects_table(found, 9, PAPER)
        assert (drawn.index("Two together") < drawn.index("Each by itself")) == (first == "norms")
        assert read_overview(made, "a_study").verdicts == ("worse", "worse", "undecided"), "averages"
        assert "◀" not in drawn
        assert 'd="M10 ' not in drawn, "the axis holds every interval"


def test_a_question_asks_for_an_interaction_that_is_the_alias_of_another() -> None:
    made = run({"kind": "fractional", "resolution": "IV", "seeds": 2}, on_off("skips", "value", "norms", "heads"), flat)
    made.record = replace(made.record, question="Do norms and heads interact?")
    found = read_effects(made, "a_study")
    assert found is not None
    assert {row.name: row.aliases for row in found.interactions if row.name in found.asked} == {
        "skips=off:value=off": ("norms=off:heads=off",)
    }


def test_a_setting_is_compared_with_the_first_one_of_its_switch_alone() -> None:
    worse = {"on": 0.0, "half": 0.3, "off": 0.5}
    switches = {"a": tuple(worse), "b": ("on", "off")}
    made = run({"kind": "grid", "seeds": 2}, switches, lambda of, _: 3.0 + worse[of["a"]] + 0.2 * (of["b"] == "off"))
    found, runs = read_effects(made, "a_study"), runs_of(made)
    assert found is not None
    for row in found.main:
        setting, trials = row.settings[0][1], trials_by_effect(made.record, runs, found)
        means = setting_means(made.record, runs, row)
        change = worse[setting] if row.name.startswith("a") else 0.2
        assert (means[True,].mean or 0.0) - (means[False,].mean or 0.0) == pytest.approx(change)
        sides = [[value for of, value in trials if of.get(row.name) is side] for side in (False, True)]
        assert list(map(len, sides)) == ([4, 4] if row.name.startswith("a") else [6, 6])
        assert fmean(sides[1]) - fmean(sides[0]) == pytest.approx(change)


def test_importances_need_four_variants_that_cross_two_factors() -> None:
    made = run({"kind": "grid", "seeds": 2}, on_off("a", "b"), landscape)
    found = read_importances(made, "a_study")
    assert found is not None
    assert (found.variants, len(found.factors)) == (4, 2)
    three = {key: one for key, one in made.trial_records.items() if not key.startswith(made.record.variants[-1].name)}
    assert read_importances(replace(made, trial_records=three), "a_study") is None
    ranges = {"training.optimizer.lr": {"low": 1e1, "high": 1e4, "log": True}}
    design = {"kind": "search", "sampler": "random", "points": 8, "seeds": 1, "ranges": ranges}
    assert read_importances(run(design, {}, lambda _, values: sum(values.values())), "a_study") is None


def test_an_interaction_is_drawn_as_the_means_that_it_is_a_difference_of() -> None:
    made = run({"kind": "grid", "seeds": 3}, ABC, landscape, noise=1e-6)
    found, runs = read_effects(made, "a_study"), runs_of(made)
    assert found is not None
    pair = next(row for row in found.interactions if row.name == "a=off:b=off")
    assert all(setting_means(made.record, runs, row) for row in (*found.main, *found.interactions))
    means = setting_means(made.record, runs, pair)
    first = means[False, False].mean
    four = {active: (one.mean or 0.0) - (first or 0.0) for active, one in means.items()}
    assert four == pytest.approx(
        {(False, False): 0, (True, False): 0.5, (False, True): -0.2, (True, True): 0.7}, abs=1e-5
    )
    drawn = draw_means(found, {pair.name: means}, PAPER)
    sums = next(row["mean"] for unit in marks(drawn, "point") for row in rows(unit) if row["line"] == "sum of both")
    assert sums - (first or 0.0) == pytest.approx(0.5 - 0.2, abs=1e-5)
    trials = trials_by_effect(made.record, runs, found)
    solid = (unit for unit in marks(draw_sides(found, trials, PAPER), "line") if "strokeDash" not in unit["mark"])
    lines = [*map(rows, solid)]
    moved = [after["value"] - before["value"] for before, after in lines]
    assert moved == pytest.approx([row.estimate for row in found.ranked(found.main)])
    said = changes_by_first(found, trials)
    assert [float(number) for number in re.findall(r"[+-]\d\.\d+", said)] == pytest.approx([-0.2, 0, 0.2, 0], abs=1e-3)
    gone = next(name for name in runs if "a=off" in name)
    part = {name: replace(one, finished={}) if name == gone else one for name, one in runs.items()}
    assert setting_means(made.record, part, pair) == {}, "the effect is no difference of these means"


@pytest.mark.parametrize(
    ("interval", "reason"),
    [
        ((-0.02, 0.2, 0.0), ""),
        ((-0.02, 0.2, 0.5), "trials diverged, so one side has no bound"),
        ((None, None, 0.0), "too few trials for an interval"),
        ((0.11, 0.2, 0.0), ""),
        ((-0.2, 0.05, 0.0), "not worse than the sum"),
    ],
)
def test_an_effect_without_two_bounds_has_its_reason(
    interval: tuple[float | None, float | None, float], reason: str
) -> None:
    low, high, hidden = interval
    row = EffectRow((("a", "off"), ("b", "on")), 0.1, low, high, (), hidden)
    found = StudyEffects(
        "x", "minimize", 0.1, (), (row,), (), False, 0.1, 4, 8, 0, None, 0, (), False, "", {row.name: "a × b"}
    )
    assert found.open_because(row) == reason
    assert (f"<em>{reason}</em>" in effects_table(found, 9, PAPER)) == bool(reason)
    assert replace(found, withheld="no model beats a bigram").open_because(row) == ""
    assert (found.side(replace(row, settings=row.settings[:1])) == "as good") == (reason == "not worse than the sum")
    pair = replace(row, settings=(("a", "off"), ("b", "off")), estimate=-0.05)
    parts = replace(found, interactions=(pair,), titles={pair.name: "no a × no b"})
    alone = reason == "not worse than the sum"
    assert (parts.finding(pair) == "no replacement") == alone
    assert parts.open_because(pair) == ("may be below -0.1" if alone else reason)
    if low is not None and high is not None:
        turned = replace(pair, estimate=0.05, low=-high, high=-low, hidden=-hidden)
        negative = replace(parts, direction="maximize", interactions=(turned,))
        assert negative.open_because(turned) == ("may be above +0.1" if alone else reason)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(
    ("low", "high", "main", "pair"),
    [
        (0.1, 0.3, "undecided", "undecided"),
        (0.11, 0.3, "worse", "worse than the sum"),
        (-0.1, 0.1, "undecided", "undecided"),
        (-0.1, 0.09, "as good", "undecided"),
        (-0.09, 0.1, "undecided", "undecided"),
        (-0.09, 0.09, "as good", "within"),
        (-0.3, -0.1, "as good", "undecided"),
        (-0.3, -0.11, "better", "better than the sum"),
        (-0.3, 0.3, "undecided", "undecided"),
    ],
)
def test_a_bound_at_the_margin_shows_nothing(low: float, high: float, main: str, pair: str, direction: str) -> None:
    ends = (low, high) if direction == "minimize" else (-high, -low)
    row = EffectRow((("a", "off"),), sum(ends) / 2, *ends, ())
    found = StudyEffects("x", direction, 0.1, (row,), (), (), False, 0.1, 4, 8, 0, None, 0, (), False, "", {})  # type: ignore[arg-type]
    assert found.side(row) == main
    assert found.side(replace(row, settings=(("a", "off"), ("b", "off")))) == pair


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(
    ("low", "high", "of_parts", "of_others"),
    [
        (0.11, 0.3, "The a and the b replace each other: without both it is worse", "a and b interact: together worse"),
        (-0.3, -0.11, "The a and the b do not replace each other (-", "a and b interact: together better than the sum"),
        (-0.3, 0.05, "The a and the b do not replace each other (-", "Whether a and b interact is undecided (-"),
        (-0.05, 0.09, "The a and the b do not replace each other (+", "a and b do not interact (+"),
        (-0.05, 0.3, "Whether the a and the b replace each other is", "Whether a and b interact is undecided (+"),
    ],
)
def test_what_is_said_of_a_pair_that_is_asked_for(
    low: float, high: float, of_parts: str, of_others: str, direction: str
) -> None:
    """Parts may replace each other, and one bound says that they do not; other settings interact."""
    worse = 1.0 if direction == "minimize" else -1.0
    ends = sorted((worse * low, worse * high))
    row = EffectRow((("a", "off"), ("b", "off")), sum(ends) / 2, *ends, ())

    def said(row: EffectRow, title: str) -> str:
        titles, told = {row.name: title, "c:d": "c × d"}, (row.name,)
        found = StudyEffects(
            "x", direction, 0.1, (), (row,), (), False, 0.1, 4, 8, 0, None, 0, (), False, "", titles, told
        )
        (sentence,) = (one for one in pair_sentences(found) if " pair" not in one)
        return re.sub(r"\(.", lambda sign: sign[0] if worse > 0 else {"(+": "(-", "(-": "(+"}[sign[0]], sentence)

    parts = said(row, "no a × no b")
    assert parts.startswith(of_parts)
    assert (f"at {'most' if worse > 0 else 'least'} " in parts) == ("do not replace" in of_parts)
    for others in (said(row, "a × b"), said(replace(row, aliases=("c:d",)), "a × b")):
        assert others.startswith(of_others)


def standing(main: Mapping[str, str], pairs: Mapping[str, str] = {}, **fields: Any) -> StudyEffects:
    """Effects on a side each. Single letters are parts that are removed, and capitals other changes.

    A pair `ab/cd` is one that the trials do not tell from another.
    """
    ends = {"undecided": (-0.3, 0.5), "as good": (-0.04, 0.06), "within": (-0.04, 0.06)}
    minimized = fields.get("direction") != "maximize"

    def row(name: str, side: str) -> EffectRow:
        own, _, alias = name.partition("/")
        ends_here = ends.get(side) or ((-0.4, -0.2) if side.startswith("better") else (0.2, 0.4))
        low, high = ends_here if minimized else (-ends_here[1], -ends_here[0])
        aliases = (":".join(f"{letter}=off" for letter in alias),) * bool(alias)
        return EffectRow(tuple((letter, "off") for letter in own), (low + high) / 2, low, high, aliases)

    rows = [[row(name, side) for name, side in of.items()] for of in (main, pairs)]
    names = [name for of in rows for row in of for name in (row.name, *row.aliases)]
    titles = {
        name: " × ".join(f"no {one[0]}" if one[0].islower() else one[0] for one in name.split(":")) for name in names
    }
    known = StudyEffects(
        "x", "minimize", 0.1, *map(tuple, rows), (), False, 0.1, 4, 8, 0, None, 0, (), False, "", titles
    )
    return replace(known, **fields)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (
            {"a": "worse", "b": "as good"},
            "On average, removing the a (+0.30) is worse; removing the b (at most +0.06) is as good as keeping it.",
        ),
        (
            {"a": "as good", "b": "as good", "c": "better", "D": "better"},
            "On average, removing the c (-0.30) and D (-0.30) are better; removing the a (at most +0.06) and removing "
            "the b (at most +0.06) are as good as keeping them.",
        ),
        (
            {"a": "as good", "B": "as good", "c": "undecided"},
            "On average, removing the a (at most +0.06) and B (at most +0.06) are as good; removing the c is "
            "undecided.",
        ),
        (
            {"a": "worse", "b": "undecided", "c": "undecided"},
            "On average, removing the a (+0.30) is worse; the other 2 changes are undecided.",
        ),
        (
            dict.fromkeys("abc", "worse") | dict.fromkeys("def", "as good"),
            "On average, 3 of 6 are worse; 3 of 6 are as good.",
        ),
        (
            dict.fromkeys("abc", "worse") | {"d": "better"},
            "On average, the other 3 changes are worse; removing the d (-0.30) is better.",
        ),
        (dict.fromkeys("abc", "undecided"), "None of 3 average effects is decided."),
    ],
)
def test_averages_are_said_by_side(sides: Mapping[str, str], said: str, direction: str) -> None:
    found = average_sentence(standing(sides, direction=direction))
    if direction == "maximize":
        found = found.replace("at least", "at most").translate(str.maketrans("+-", "-+"))
    assert found == said


@pytest.mark.parametrize(
    ("sides", "asked", "said"),
    [
        (
            {"ab": "worse than the sum", "ac": "better than the sum", "bc": "within"},
            (),
            "2 of 3 pairs interact: the a with the b (+0.30 beyond the sum of both) and the a with the c (-0.30 beyond "
            "the sum of both).",
        ),
        (
            {"ab/cd": "worse than the sum", "ac": "worse than the sum"},
            (),
            "At least 2 of 3 pairs interact: the a with the b, or the c with the d (+0.30 beyond the sum of both) and "
            "the a with the c (+0.30 beyond the sum of both).",
        ),
        (dict.fromkeys(("ab", "ac", "bc"), "better than the sum"), (), "3 of 3 pairs interact."),
        ({"ab": "within", "ac": "undecided", "bc": "within"}, (), "No pair of 3 is known to interact."),
        (dict.fromkeys(("ab", "ac", "bc"), "undecided"), (), "Whether any of 3 pairs interacts is undecided."),
        (
            dict.fromkeys(("ab/cd", "ac/bd", "ad/bc"), "undecided"),
            (),
            "Whether any of 6 pairs interacts is undecided: the combinations trained mix them two by two.",
        ),
        (
            {"ab": "within", "ac": "undecided", "bc": "worse than the sum"},
            ("ab", "ac"),
            "The a and the b do not replace each other (+0.01 beyond the sum of both, at most +0.06). Whether the a "
            "and the c replace each other is undecided (+0.10 beyond the sum of both). 1 other pair interacts: the b "
            "with the c (+0.30 beyond the sum of both).",
        ),
        (
            {"ab": "within", "ac": "within", "bc": "worse than the sum"},
            ("ab", "ac", "bc"),
            "1 of 3 pairs interacts: the b with the c (+0.30 beyond the sum of both).",
        ),
    ],
)
def test_pairs_are_said_by_side(sides: Mapping[str, str], asked: tuple[str, ...], said: str) -> None:
    names = tuple(f"{one}=off:{other}=off" for one, other in asked)
    assert " ".join(pair_sentences(standing({}, sides, asked=names))) == said


@pytest.mark.parametrize(
    ("main", "words", "said"),
    [
        ("ab", ["needed"] * 3, "Keep both."),
        ("abc", ["needed"] * 7, "Keep all 3."),
        ("ab", ["needed", "undecided", "needed"], ""),
        ("aB", ["needed"] * 3, ""),
    ],
)
def test_all_parts_are_to_be_kept_where_no_combination_can_do_without_any(
    main: str, words: list[Any], said: str
) -> None:
    report = read_study(run({"kind": "grid", "seeds": 2}, on_off(*main.lower()), landscape, noise=0.01), "a_study")
    first, *others = report.variants
    assert len(others) == len(words)
    rows = [
        replace(row, verdict=row.verdict and replace(row.verdict, word=word))
        for row, word in zip(others, words, strict=True)
    ]
    found = replace(report, effects=standing(dict.fromkeys(main, "worse")), variants=(first, *rows))
    sentences = headline((), (), None, found)
    assert "".join(one for one in sentences if one.startswith("Keep")) == said
    running = replace(found, variants=(first, replace(rows[0], awaits="1 of 2 seeds has ended"), *rows[1:]))
    assert headline((), (), None, running)[0] == sentences[0].replace("average", "average so far")

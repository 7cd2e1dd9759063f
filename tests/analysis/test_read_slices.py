"""Slices along numeric axes, and the noise of a draw of validation data, in reports."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from designed_study import on_off, run
from fake_store import FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.columns import columns, legend
from ablate.analysis.runs import read_runs
from ablate.analysis.search import SAMPLERS, search_words
from ablate.analysis.slices import (
    Factors,
    axis_value,
    depths_of,
    factors_of,
    is_logarithmic,
    linear_axes,
    read_slices,
    searches,
    varied_paths,
    varied_values,
    varies,
)
from ablate.analysis.warnings import _rounded_up
from ablate.analysis.why import why
from ablate.designs.search import SamplerName
from ablate.render.as_json import study_json


def falling(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
    heads = values.get("model.heads", 1)
    if settings["a"] == "off" and heads == 8:
        return None
    return 4.0 - heads / 10 + (settings["a"] == "off") * heads / 4


def test_a_sweep_has_a_line_for_each_variant_and_gaps_to_the_first() -> None:
    design = {"kind": "sweep", "path": "model.heads", "values": [4, 1, 2, 8], "seeds": 2}
    (found,) = read_slices(run(design, on_off("a"), falling, variants={"plain": {"a": "off"}}), "a_study")
    assert (found.axis, found.logarithmic, found.scattered) == ("model.heads", True, False)
    assert [line.name for line in found.lines] == ["baseline", "plain"]
    assert [point.at for point in found.lines[0].points] == [1, 2, 4, 8]
    assert all(point.gap is None for point in found.lines[0].points)
    gaps = [point.gap.difference for point in found.lines[1].points if point.gap]
    assert gaps == pytest.approx([0.25, 0.5, 1.0])  # all seeds diverged at 8


def test_a_single_line_is_not_scattered_and_a_single_place_is_no_slice() -> None:
    design = {"kind": "sweep", "path": "model.heads", "values": [1, 2, 4], "seeds": 1}
    for trials, points in ((3, [1, 2, 4]), (2, [1, 2]), (1, [])):
        found = read_slices(run(design, on_off("a"), falling, most=trials), "a_study")
        assert [point.at for one in found for line in one.lines for point in line.points] == points
        assert not any(one.scattered for one in found)


@pytest.mark.parametrize("numbers", [("2", "4", "6"), ("0.5", "1", "1.5"), ("2", "3", "4", "5")])
def test_a_switch_of_numbers_is_an_axis(numbers: tuple[str, ...]) -> None:
    switches = {"depth": numbers, **on_off("a")}

    def landscape(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
        return 3.0 - float(settings["depth"]) / 10 + (settings["a"] == "off")

    (found,) = read_slices(run({"kind": "grid", "seeds": 2}, switches, landscape), "a_study")
    assert (found.axis, found.logarithmic) == ("depth", False)
    assert [line.name for line in found.lines] == ["baseline", "a=off"]
    assert [point.at for point in found.lines[1].points] == [float(number) for number in numbers]
    assert [point.gap.difference for point in found.lines[1].points if point.gap] == pytest.approx([1] * len(numbers))


def test_a_search_has_points_that_stand_alone() -> None:
    design = {"kind": "search", "sampler": "random", "points": 10, "seeds": 1}
    design["ranges"] = {"model.width": {"low": 8, "high": 128}}
    made = run(design, on_off("b", "a"), lambda s, v: 1.0)
    (found,) = read_slices(made, "a_study")
    assert found.scattered
    assert sum(len(line.points) for line in found.lines) == 9  # where the baseline stands is not known
    both = design | {"ranges": design["ranges"] | {"training.optimizer.lr": {"low": 1e-4, "high": 0.1, "log": True}}}
    assert linear_axes(replace(made.record, space={**made.record.space, "design": both})) == {"width"}
    assert set(SAMPLERS) == set(get_args(SamplerName))
    of_switches = "b (on, off); a (on, off); "
    of_ranges = "width (8 to 128); learning rate (0.0001 to 0.1, logarithmic)."
    for sampler, among in (("random", f"chance from: {of_switches}"), ("cmaes", "CMA-ES from: "), ("other", "")):
        record = replace(made.record, space={**made.record.space, "design": {**both, "sampler": sampler}})
        said = f"Up to 10 points with the baseline, proposed by {among}{of_ranges}" if among else ""
        assert search_words(record) == said, "CMA-ES samples no switches"


def test_budgets_vary_the_steps_and_nothing_else_does() -> None:
    record = run({"kind": "grid", "seeds": 2}, on_off("a"), lambda s, v: 1.0).record
    assert varied_paths(record) == ()
    assert varied_paths(replace(record, space={**record.space, "budgets": [1, 2]})) == ("training.steps",)
    scout = replace(record.variants[0], settings={"a": "on", "model.heads": "2", "block.mlp": "none"}, spec={})
    stage = {"training": {"init_from": {"stage": {"model.block.mlp": "glu", "task.pairs": 4}}}}
    scout.settings["model.rate"] = "0.5"
    others = {"tune": {"grid": {"training.lr": [1, 2]}}, "tuned": {"model.width": {}}, "match": {"equal": "flops"}}
    whole = replace(record, space=record.space | others, scout_variants=(scout, replace(scout, spec=stage)))
    paths = ("model.heads", "block.mlp", "model.rate", "task.pairs", "training.lr", "model.width", "training.steps")
    assert varied_paths(whole) == paths, "each once, as the first of them is written"
    for spec in ({}, {"model": "of another kind"}):
        of_texts = {"model.heads": 2, "block.mlp": "none", "model.rate": 0.5}
        assert varied_values(whole, replace(scout, spec=spec)) == of_texts, "where the spec has none"


@pytest.mark.parametrize(
    ("ends", "logarithmic"),
    [
        ((1.0, 8.0), True),
        ((1.0, 7.9), False),
        ((0.0, 8.0), False),
        ((0.5, 4.0), True),
        ((1.0, 2.0, 8.0), True),
        ((0.0, 8.0, 9.0), False),
    ],
)
def test_a_range_of_eight_or_more_above_0_is_logarithmic(ends: tuple[float, ...], logarithmic: bool) -> None:
    assert is_logarithmic(ends) == logarithmic


@pytest.mark.parametrize(
    ("setting", "spec", "value"),
    [
        ({"model.x": "2"}, {"model": {"x": 3}}, 2.0),
        ({}, {"model": {"x": 3}}, 3.0),
        ({}, {"model": {"x": "many"}}, None),
        ({}, {"model": {"x": math.inf}}, None),
        ({}, {"model": 3}, None),
        ({}, {}, None),
    ],
)
def test_a_place_on_an_axis_is_a_number_of_the_settings_or_of_the_spec(
    setting: dict[str, str], spec: dict[str, Any], value: float | None
) -> None:
    variant = replace(fake_store({"baseline": (setting, 1)}).record.variants[0], spec=spec)
    assert axis_value(variant, "model.x") == value


def test_factors_are_the_switches_and_numbers_of_which_variants_have_several() -> None:
    settings = [
        {"depth": depth, "kept": "on", "x": x, "same": "1"} for depth, x in (("2", "8"), ("4", "1"), ("2", "32"))
    ]
    record = fake_store({f"v{at}": (of, 1) for at, of in enumerate(settings)}).record
    record = replace(record, space={"switches": {"depth": {"2": {}, "4": {}, "6": {}}, "kept": {"on": {}, "off": {}}}})
    assert factors_of(record) == Factors({"depth": ("2", "4", "6")}, {"x": (1.0, 8.0, 32.0)})


@pytest.mark.parametrize(
    ("design", "switches", "varied"),
    [
        ({"kind": "grid"}, "ab", True),
        ({"kind": "grid"}, "a", False),
        ({"kind": "leave_one_out"}, "ab", False),
        ({"kind": "sweep", "path": "model.heads", "values": [1, 2]}, "a", True),
    ],
)
def test_switches_that_are_crossed_and_numbers_vary(design: dict[str, Any], switches: str, varied: bool) -> None:
    record = run(design, on_off(*switches), lambda settings, values: 1.0).record
    assert (varies(record), searches(record)) == (varied, False)
    assert searches(replace(record, traits=replace(record.traits, plans_points=False)))


@pytest.mark.parametrize(
    ("lines", "scattered"),
    [({"a": (1, 2, 3), "b": (3,)}, False), ({"a": (1, 2, 3), "b": (4,)}, True), ({"a": (1, 2)}, False)],
)
def test_lines_are_scattered_if_hardly_any_place_has_two(lines: dict[str, tuple[int, ...]], scattered: bool) -> None:
    names = {f"{name}@x={at},y=5": ({"x": str(at), "y": "5"}, 1) for name, of in lines.items() for at in of}
    made = fake_store(names, seeds=1)
    for name in names:
        made.add(name, 0, {"val_loss": 1.0})
    (found,) = read_slices(made, "a_study")
    assert {one.name: tuple(point.at for point in one.points) for one in found.lines} == {
        f"{name}@y=5": of for name, of in lines.items()
    }
    assert found.scattered == scattered


def test_other_designs_have_none() -> None:
    assert read_slices(run({"kind": "grid"}, on_off("a", "b"), lambda s, v: 1.0), "a_study") == ()
    for settings in (("0", "1", "2"), ("1", "2"), ("1", "2", "many")):
        made = run({"kind": "grid"}, {"depth": settings, **on_off("a")}, lambda s, v: len(s["depth"]))
        assert read_slices(made, "a_study") == ()


def studied(of_part: float) -> FakeStore:
    """Parts of the validation data on which the variants stand otherwise than on the whole."""
    rng = np.random.default_rng(2)
    made = fake_store({"baseline": ({"a": "on"}, 100), **{f"a={n}": ({"a": str(n)}, 90) for n in range(6)}}, seeds=3)
    for name in ("baseline", *(f"a={n}" for n in range(6))):
        effects = rng.normal(0, of_part if name != "baseline" else 0.0, 8)
        for seed in range(3):
            parts = 2.0 + effects + rng.normal(0, 0.001, 8)
            made.add(name, seed, {"val_loss": float(parts.mean())})
            key = f"{name}/{seed}"
            made.trial_records[key] = replace(made.trial_records[key], parts={"val_loss": tuple(parts.tolist())})
    spec = {"task": {"validation_windows": 128}}
    made.record = replace(made.record, variants=tuple(replace(one, spec=spec) for one in made.record.variants))
    return made


def test_a_draw_that_matters_is_reported_with_a_remedy() -> None:
    report = read_study(studied(0.02), "a_study")
    assert report.evidence.draw_sd == pytest.approx(0.02 / np.sqrt(8), rel=0.35)
    (said,) = [one for one in report.answer.sentences if "one draw of validation data" in one]
    assert "task.validation_windows: " in said
    windows = int(said.partition("windows: ")[2].partition("`")[0])
    assert windows == pytest.approx(128 * (report.evidence.draw_sd / 0.002) ** 2, rel=0.1)
    assert f"{100 * report.evidence.draw_sd / 0.02:.0f} % of the margin 0.02." in said
    assert study_json(report)["validation_draw"] == report.evidence.draw_sd
    assert "another draw of these windows" in legend(columns(report))[0]


@pytest.mark.parametrize(
    ("windows", "said"), [(7.2, 8), (57.2, 58), (99.1, 100), (123.4, 130), (999.0, 1000), (1201.0, 1300), (130.0, 130)]
)
def test_an_advised_number_of_windows_has_two_digits_and_suffices(windows: float, said: int) -> None:
    assert _rounded_up(windows) == said


def test_a_draw_that_hardly_matters_is_only_in_the_legend() -> None:
    report = read_study(studied(0.0005), "a_study")
    assert report.evidence.draw_sd is not None
    assert not [one for one in report.answer.sentences if "one draw of validation data" in one]
    assert "another draw of these windows" in legend(columns(report))[0]


def test_nothing_is_reported_for_trials_that_were_not_measured_in_parts() -> None:
    made = studied(0.02)
    made.trial_records = {key: replace(trial, parts={}) for key, trial in made.trial_records.items()}
    report = read_study(made, "a_study")
    assert report.evidence.draw_sd is None
    assert "another draw" not in legend(columns(report))[0]


def test_lengths_beyond_training_are_an_axis_with_the_trained_length_marked() -> None:
    """Each variant is a line; the metric without a length is that at the trained one."""
    made = fake_store({"baseline": ({}, 1), "m=b": ({}, 1)}, metric="val_accuracy_at_64", direction="maximize")
    spec = {"task": {"kind": "parity", "context": 16}, "training": {"evaluate_at": {"context": [64, 32]}}}
    made.record = replace(made.record, variants=tuple(replace(one, spec=spec) for one in made.record.variants))
    for seed in range(3):
        for name, lower in (("baseline", 0.0), ("m=b", 0.25)):
            of_lengths = {"val_accuracy": 1.0, "val_accuracy_at_32": 0.75 - lower, "val_accuracy_at_64": 0.5 + seed}
            made.add(name, seed, of_lengths | {"val_loss_at_32": 9.0})
    (found,) = read_slices(made, "a_study")
    assert (found.axis, found.metric, found.direction, found.trained) == ("context", "val_accuracy", "maximize", 16)
    assert (found.logarithmic, found.scattered) == (True, False)
    assert [line.name for line in found.lines] == ["baseline", "m=b"]
    assert [(point.at, point.objective.mean) for point in found.lines[1].points] == [(16, 1.0), (32, 0.5), (64, 1.5)]
    gaps = [point.gap.difference for point in found.lines[1].points if point.gap]
    assert gaps == [0.0, -0.25, 0.0]
    told = why(read_study(made, "a_study"), "m=b").facts["lengths"]
    means = [tuple(map(float, one)) for one in re.findall(r"at (\d+) (\S+) [^;]*baseline (\S+)", told)]
    assert means == [(32, 0.5, 0.75), (64, 1.5, 1.5)]
    other = {**spec, "task": {"kind": "parity", "context": 32}}
    first, second = made.record.variants
    made.record = replace(made.record, variants=(first, replace(second, spec=other)))
    assert read_slices(made, "a_study")[0].trained is None
    for task, axis in (({"kind": "of_a_plugin"}, "context"), (spec["task"], "rows")):
        unknown = {"task": task, "training": {"evaluate_at": {axis: [64, 32]}}}
        made.record = replace(made.record, variants=tuple(replace(one, spec=unknown) for one in made.record.variants))
        (found,) = read_slices(made, "a_study")
        assert (found.axis, found.trained, [point.at for point in found.lines[0].points]) == (axis, None, [32, 64])


def test_insides_are_lines_over_the_blocks() -> None:
    blocks = {"kurtosis": 2, "initial_stream_rms": 6}
    names = [f"inside_{measure}_block_{block}" for measure, number in blocks.items() for block in range(number)]
    names += ["inside_effective_rank_block_1"]  # one block is no line
    store = fake_store({"baseline": ({}, 100), "a=off": ({"a": "off"}, 100), "b=off": ({"b": "off"}, 100)}, 2)
    for shift, variant in enumerate(("baseline", "a=off")):
        for seed in (0, 1):
            insides = {name: 10.0 * shift + number + seed for number, name in enumerate(names)}
            store.add(variant, seed, {"val_loss": 1.0, "inside_kurtosis": 0.0} | insides)
    record = store.study("a_study")
    kurtosis, stream = depths_of(record, read_runs(store, record, "val_loss"))
    assert (kurtosis.axis, kurtosis.metric, stream.metric) == ("block", "inside_kurtosis", "inside_initial_stream_rms")
    assert (kurtosis.direction, kurtosis.logarithmic, kurtosis.scattered) == (None, False, False)
    assert [line.name for line in kurtosis.lines] == ["baseline", "a=off"], "b=off has no result"
    assert [(point.at, point.objective.mean) for point in stream.lines[1].points] == [(n, 12.5 + n) for n in range(6)]


def test_a_length_at_which_a_seed_overflows_has_no_point() -> None:
    made = fake_store({"baseline": ({}, 10), "a=off": ({}, 10)}, seeds=2)
    spec = {"training": {"evaluate_at": {"context": [64, 128]}}, "task": {"kind": "copy"}}
    made.record = replace(made.record, variants=tuple(replace(one, spec=spec) for one in made.record.variants))
    for seed, name in itertools.product(range(2), ("baseline", "a=off")):
        far = math.inf if (name, seed) == ("a=off", 1) else 5.0
        blocks = {"inside_rms_0": 1.0, "inside_rms_1": far}
        made.add(name, seed, {"val_loss": 3.0, "val_loss_at_64": 4.0, "val_loss_at_128": far, **blocks})
    (found,) = (one for one in read_slices(made, "a_study") if one.axis == "context")
    assert {line.name: [point.at for point in line.points] for line in found.lines} == {
        "baseline": [64.0, 128.0],
        "a=off": [64.0],
    }

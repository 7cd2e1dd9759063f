"""Slices along numeric axes: lines, places, gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from designed_study import on_off, run

from ablate.analysis.slices import read_slices


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


def test_a_switch_of_numbers_is_an_axis() -> None:
    switches = {"depth": ("2", "4", "6"), **on_off("a")}

    def landscape(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
        return 3.0 - int(settings["depth"]) / 10 + (settings["a"] == "off")

    (found,) = read_slices(run({"kind": "grid", "seeds": 2}, switches, landscape), "a_study")
    assert (found.axis, found.logarithmic) == ("depth", False)
    assert [line.name for line in found.lines] == ["baseline", "a=off"]
    assert [point.at for point in found.lines[1].points] == [2, 4, 6]
    assert [point.gap.difference for point in found.lines[1].points if point.gap] == pytest.approx([1, 1, 1])


def test_a_search_has_points_that_stand_alone() -> None:
    design = {"kind": "search", "sampler": "random", "points": 10, "seeds": 1}
    design["ranges"] = {"model.width": {"low": 8, "high": 128}}
    (found,) = read_slices(run(design, on_off("a", "b"), lambda s, v: 1.0), "a_study")
    assert found.scattered
    assert sum(len(line.points) for line in found.lines) == 9  # where the baseline stands is not known


def test_other_designs_have_none() -> None:
    assert read_slices(run({"kind": "grid"}, on_off("a", "b"), lambda s, v: 1.0), "a_study") == ()

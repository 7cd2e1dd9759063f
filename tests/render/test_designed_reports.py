"""Sections and figures of reports that only some designs have."""

from __future__ import annotations

import functools
import json
import math
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from designed_study import on_off, run
from matplotlib.axes import Axes

from ablate.analysis.findings import Findings, read_findings
from ablate.render.document import document
from ablate.render.figures import draw, pictures, save
from ablate.render.writing import render_report, write_report

SECTIONS = {"Path", "Along numeric axes", "Effects", "Importances", "Trade-offs"}
SWEEP = {"kind": "sweep", "path": "model.heads", "values": [1, 2, 4], "seeds": 2}
DESIGNS = {
    "leave_one_out": {"kind": "leave_one_out", "seeds": 2},
    "grid": {"kind": "grid", "seeds": 2},
    "fractional": {"kind": "fractional", "resolution": "III", "seeds": 2},
    "simplify": {"kind": "simplify", "seeds": 2, "beam": 2},
    "sweep": SWEEP,
    "search": {
        "kind": "search",
        "sampler": "random",
        "points": 6,
        "seeds": 2,
        "objectives": ["objective", "parameters"],
    },
}


def landscape(settings: Mapping[str, str], values: Mapping[str, Any]) -> float | None:
    off = {name for name, setting in settings.items() if setting == "off"}
    return (
        3.0 + 0.5 * ("a" in off) + 0.02 * ("b" in off) + 0.3 * ({"a", "b"} <= off) - values.get("model.heads", 0) / 10
    )


@functools.cache
def findings(kind: str) -> Findings:
    variants = {"plain": {"a": "off"}} if kind == "sweep" else {}
    made = run(DESIGNS[kind], on_off("a", "b", "c"), landscape, noise=0.01, variants=variants)
    return read_findings(made, "a_study")


def axes_of(name: str, kind: str) -> list[Axes]:
    figure = draw(name, findings(kind))
    assert save(figure, "svg").startswith(b"<?xml")
    return [axes for axes in figure.axes if axes.get_visible()]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("leave_one_out", {"Trade-offs"}),
        ("grid", {"Effects", "Importances", "Trade-offs"}),
        ("fractional", {"Effects", "Importances", "Trade-offs"}),
        ("sweep", {"Along numeric axes", "Importances", "Trade-offs"}),
    ],
)
def test_a_section_is_there_where_the_design_gives_it(kind: str, expected: set[str]) -> None:
    shown = pictures(findings(kind))
    made = document(findings(kind), shown)
    assert {section.title for section in made.sections} & SECTIONS == expected
    blocks = [block for section in made.sections for block in section.blocks]
    assert all(blocks.count(picture) == 1 for picture in shown), "each picture occurs once"


def test_the_sections_of_a_path_and_of_a_search() -> None:
    assert {one.title for one in document(findings("simplify")).sections} >= {"Path", "Trade-offs"}
    assert findings("search").front is not None


@pytest.mark.parametrize("kind", ["fractional", "simplify", "sweep", "search"])
def test_every_text_format_can_say_it(kind: str) -> None:
    for name in ("terminal", "md", "html", "latex", "json"):
        text = render_report(findings(kind), name)
        assert isinstance(text, str)
        assert "nan" not in text.lower().split()
    plain = json.loads(str(render_report(findings(kind), "json")))
    assert {"effects", "importances", "path", "front", "slices"} <= plain.keys()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
@pytest.mark.parametrize("kind", ["fractional", "simplify"])
def test_latex_compiles(kind: str, tmp_path: Path) -> None:
    write_report(findings(kind), "latex", tmp_path)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a_study.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]


def test_the_full_grid_is_priced_at_the_mean_cost_of_a_trial() -> None:
    found = findings("fractional").full_grid
    assert found is not None
    cost = findings("fractional").cost
    assert (found.combinations, found.trials, cost.trials) == (8, 16, 8)
    assert (found.seconds, found.times) == (pytest.approx(2 * cost.seconds), 2.0)
    assert findings("grid").full_grid is None


def test_effects_are_drawn_with_their_intervals_main_effects_first() -> None:
    (axes,) = axes_of("effects", "grid")
    found = findings("grid").effects
    assert found is not None
    rows = [*found.main, *sorted(found.interactions, key=lambda row: -abs(row.estimate))]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in rows]
    intervals = [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert [(row.low, row.high) for row in rows] == [each for each in intervals if each[0] != each[1]]
    verticals = {each[0] for each in intervals if each[0] == each[1]}
    assert verticals == {0, -found.margin, found.margin}


def test_the_heat_map_leaves_out_what_the_trials_cannot_tell() -> None:
    heat, _ = axes_of("interactions", "grid")
    cells = np.ma.filled(heat.images[0].get_array(), math.nan)
    found = findings("grid").effects
    assert found is not None
    assert list(np.diag(cells)) == [row.estimate for row in found.main]
    assert cells[1, 0] == found.interactions[0].estimate
    assert np.isnan(cells[np.triu_indices(3, 1)]).all()
    assert "interactions" not in {picture.name for picture in pictures(findings("fractional"))}


def test_importances_are_bars_that_make_up_the_whole() -> None:
    (axes,) = axes_of("importances", "grid")
    widths = [bar.get_width() for bar in axes.patches]
    assert sum(widths) == pytest.approx(100, abs=1)
    assert widths[:-1] == sorted(widths[:-1], reverse=True)
    assert axes.patches[-1].get_hatch(), "what is not explained looks different in grey too"


def test_the_path_is_a_column_for_each_step() -> None:
    loss, costs = axes_of("path", "simplify")
    path = findings("simplify").path
    assert path is not None
    labels = [label.get_text() for label in costs.get_xticklabels()]
    assert [label.split("\n")[0] for label in labels[1 : 1 + len(path.steps)]] == [
        f"- {one.switch}" for one in path.steps
    ]
    steps = [(line.get_xdata()[0], line.get_ydata()[0]) for line in loss.lines if line.get_marker() == "s"]
    assert steps[1:] == [
        (number, one.standing.difference.difference)  # type: ignore[union-attr]
        for number, one in enumerate(path.steps, 1)
    ]
    heights = [bar.get_height() for bar in costs.containers[0]]
    assert heights == [
        pytest.approx(100 * one.parameters / path.baseline.parameters)
        for one in (path.baseline, *(step.standing for step in path.steps))
    ]


def test_the_front_is_numbered_as_its_table() -> None:
    (axes,) = axes_of("front", "grid")
    front = findings("grid").front
    assert front is not None
    on_front = [point for point in front.points if point.on_front]
    places = {text.get_text(): text.xy for text in axes.texts}
    assert places == {
        str(number): (point.values["parameters"].mean, point.values["val_loss"].mean)
        for number, point in enumerate(on_front, 1)
    }


def test_slices_are_lines_over_their_places() -> None:
    (axes,) = axes_of("slices", "sweep")
    (found,) = findings("sweep").slices
    lines = [container.lines[0] for container in axes.containers]
    assert [container.get_label() for container in axes.containers] == [line.name for line in found.lines]
    for drawn, line in zip(lines, found.lines, strict=True):
        assert list(drawn.get_ydata()) == [point.objective.mean for point in line.points]
        assert list(drawn.get_xdata()) == pytest.approx([point.at for point in line.points], rel=0.01)
    assert len({line.get_marker() for line in lines}) == len(lines)


@pytest.mark.parametrize("most", [1, 3, 9])
@pytest.mark.parametrize("kind", ["grid", "simplify", "sweep", "search"])
def test_a_study_that_has_just_begun_can_be_reported(kind: str, most: int) -> None:
    variants = {"plain": {"a": "off"}} if kind == "sweep" else {}
    made = run(DESIGNS[kind], on_off("a", "b", "c"), lambda s, v: 3.0, variants=variants, most=most)
    begun = read_findings(made, "a_study")
    for name in ("terminal", "md", "json"):
        assert render_report(begun, name)
    for picture in pictures(begun):
        assert save(draw(picture.name, begun), "svg")

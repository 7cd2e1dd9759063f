"""Sections and figures of reports that only some designs have."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from contrast import faint
from designed_study import on_off, run
from vega import at, cut_texts, marks, rows, series

from ablate.analysis.findings import Findings, read_findings
from ablate.render.document import document
from ablate.render.figures import draw, pictures, save
from ablate.render.figures.axes import draw_parallel
from ablate.render.figures.style import PAPER, WIDTH, Palette, Spec, themed
from ablate.render.formats import render_report, write_report
from ablate.render.formats.html import path_table
from ablate.render.formats.slides import slides

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


def figure(name: str, kind: str) -> Spec:
    drawn = draw(name, findings(kind))
    assert save(drawn, "svg").startswith(b"<svg")
    return drawn


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


@pytest.mark.parametrize("kind", sorted(DESIGNS))
@pytest.mark.parametrize("width", [356, WIDTH])
def test_no_label_of_a_figure_is_cut_where_the_font_is_wide(kind: str, width: float) -> None:
    names = [f"{place}_around_the_whole_sub_layer" for place in ("attention_skip", "mixing", "gate")]
    made = run(DESIGNS[kind], on_off(*names), lambda settings, values: landscape({}, values), noise=0.01)
    found = read_findings(made, "a_study")
    for picture in pictures(found):
        assert not cut_texts(save(draw(picture.name, found, PAPER, width), "svg")), picture.name


def test_the_sections_of_a_path_and_of_a_search() -> None:
    assert {one.title for one in document(findings("simplify")).sections} >= {"Path", "Trade-offs"}
    assert findings("search").front is not None


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("kind", DESIGNS)
def test_every_word_mark_and_line_of_a_figure_contrasts_with_its_ground(kind: str, dark: bool) -> None:
    palette, columns = Palette(dark), {"lr": [1.0, 2.0, 3.0, 4.0], "loss": [3.0, 2.5, 2.0, None]}
    drawn = {"parallel": themed(draw_parallel(columns, "loss", palette, best=1, wide=[0]), palette)}
    for picture in pictures(findings(kind)):
        if picture.name != "interactions":  # whose words stand on coloured cells
            drawn[picture.name] = draw(picture.name, findings(kind), palette)
    low = {name: faint(save(spec, "svg"), palette.ground, palette.faint) for name, spec in drawn.items()}
    assert {name: found for name, found in low.items() if found} == {}


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
    drawn = figure("effects", "grid")
    found = findings("grid").report.effects
    assert found is not None
    kinds = (found.main, found.interactions)
    expected = [row for kind in kinds for row in sorted(kind, key=lambda row: -abs(row.estimate))]
    names = [row.name.replace(":", " × ") for row in expected]
    (points,) = marks(drawn, "point")
    assert [row["name"] for row in rows(points)] == names
    assert points["encoding"]["y"]["scale"]["domain"] == names
    intervals = rows(marks(drawn, "rule")[-1])
    assert [(row["low"], row["high"]) for row in intervals] == [(row.low, row.high) for row in expected]
    assert set(at(drawn, "x")) == {0, -found.margin, found.margin}


def test_the_heat_map_leaves_out_what_the_trials_cannot_tell() -> None:
    parts = marks(figure("interactions", "grid"), "rect")
    found = findings("grid").report.effects
    assert found is not None
    cells = {(row["line"], row["column"]): row["change"] for part in parts for row in rows(part)}
    names = ["=".join(row.settings[0]) for row in found.main]
    assert [cells[name, name] for name in names] == [row.estimate for row in found.main]
    assert cells[names[1], names[0]] == found.interactions[0].estimate
    assert len(cells) == 6, "nothing above the diagonal"
    assert "interactions" not in {picture.name for picture in pictures(findings("fractional"))}


def test_the_slides_of_a_grid_compare_what_their_headline_counts() -> None:
    shown = slides(findings("grid"))
    found = findings("grid").report.effects
    assert found is not None
    rows_of = shown.split("<section")[2]
    assert [title for title in found.titles.values() if title not in rows_of] == []
    assert "of their sum" not in rows_of, "no two effects are one here"


def test_importances_are_bars_that_make_up_the_whole() -> None:
    factors, rest = marks(figure("importances", "grid"), "bar")
    shares = [row["share"] for row in rows(factors)]
    assert sum(shares) + rows(rest)[0]["share"] == pytest.approx(100, abs=1)
    assert shares == sorted(shares, reverse=True)
    assert rest["mark"]["color"] == "transparent", "what is not explained looks different in grey too"


def test_the_path_is_a_column_for_each_step() -> None:
    drawn, path = figure("path", "simplify"), findings("simplify").path
    assert path is not None
    steps = rows(marks(drawn, "point")[0])
    assert [row["difference"] for row in steps[1:]] == [
        one.standing.difference.difference  # type: ignore[union-attr]
        for one in path.steps
    ]
    assert [row["at"] for row in steps] == ["baseline", *(f"− {one.switch}={one.setting}" for one in path.steps)]


def test_each_removal_that_was_tried_has_a_row_with_the_bounds_that_decide() -> None:
    path = findings("simplify").path
    assert path is not None
    shown = path_table(path, PAPER)
    rows_of_rounds = re.findall(r"<tr>(.*?)</tr>", shown)[1:]
    tried = [one for of in path.rounds for one in of]
    assert shown.count("<b>Round ") == len(path.rounds)
    for row, one in zip(rows_of_rounds, tried, strict=True):
        assert f'class="change">{one.words}' in row
        assert (" <span>chosen</span>" in row) == (
            one.standing.variant in {step.standing.variant for step in path.steps}
        )
        assert one.bounds is not None
        assert f">{one.bounds.low:+.2f} to {one.bounds.high:+.2f}<" in row


def test_the_front_names_its_points_and_the_baseline() -> None:
    texts = [row for labels in marks(figure("front", "grid"), "text") for row in rows(labels)]
    named = [row for row in texts if "label" in row]  # the others name the margin
    front = findings("grid").front
    assert front is not None
    told = [point for point in front.points if point.on_front or point.variant == "baseline"]
    assert {row["label"]: row["x"] for row in named} == {
        point.variant: point.values["parameters"].mean for point in told
    }


def test_slices_are_lines_over_their_places() -> None:
    drawn = figure("slices", "sweep")
    (found,) = findings("sweep").slices
    lines = series(marks(drawn, "line")[0])
    assert list(lines) == [line.name for line in found.lines]
    for line in found.lines:
        points = [(row["at"], row["mean"]) for row in lines[line.name]]
        assert points == [(point.at, point.objective.mean) for point in line.points]
    shapes = marks(drawn, "point")[0]["encoding"]["shape"]["scale"]["range"]
    assert len(set(shapes)) == len(lines)


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

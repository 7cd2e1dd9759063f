"""The figures: positions of the drawn artists; readable without colour and safe with any name."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_store import FakeStore, fake_store
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from ablate.analysis.findings import read_findings
from ablate.render.figures import LOOKS, draw, pictures, save
from ablate.store.records import CurvePoint, TrialState

EFFECTS = {"baseline": 0.0, "skip=removed": 0.4, "norm=none": -0.1, "$x_1$ <&>": 0.02}


def store(direction: str = "minimize", seeds: int = 4) -> FakeStore:
    sign, rng = (1 if direction == "minimize" else -1), np.random.default_rng(3)
    made = fake_store({name: ({}, 1000) for name in EFFECTS}, seeds=seeds, direction=direction, margin=0.05)
    for seed, (name, effect) in itertools.product(range(seeds), EFFECTS.items()):
        loss = 3.0 + seed / 10 + sign * (effect + rng.normal(0, 0.01))
        made.add(name, seed, {"val_loss": loss})
        made.curve_points[f"{name}/{seed}"] = tuple(
            CurvePoint(step, step * (1 + seed / 10), step * 8, step * 1e9, None, loss + 4 * math.exp(-step / 20))
            for step in (0, 25, 50, 75, 100)
        )
    return made


def axes_of(name: str, made: FakeStore) -> list[Axes]:
    figure = draw(name, read_findings(made, "a_study"))
    save(figure, "svg")  # lays it out
    return [axes for axes in figure.axes if axes.get_visible()]


def test_a_study_with_curves_has_four_figures_and_one_without_only_the_forest() -> None:
    made = store()
    names = [picture.name for picture in pictures(read_findings(made, "a_study"))]
    assert names == ["forest", "course", "loss_steps", "loss_flops"], "it was not timed"
    made.curve_points.clear()
    assert [picture.name for picture in pictures(read_findings(made, "a_study"))] == ["forest"]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_forest_shows_each_difference_its_interval_and_the_margin(direction: str) -> None:
    made = store(direction)
    findings = read_findings(made, "a_study")
    (axes,) = axes_of("forest", made)
    rows = {row.name: row for row in findings.report.variants if row.difference}
    heights = dict(zip([label.get_text() for label in axes.get_yticklabels()], axes.get_yticks(), strict=True))
    assert list(heights) == list(rows)
    worse = 0.05 if direction == "minimize" else -0.05
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"] == [worse]
    for name, row in rows.items():
        at = [line for line in axes.lines if set(np.atleast_1d(line.get_ydata())) == {heights[name]}]
        thin, thick, point = at
        assert row.difference is not None
        assert list(thin.get_xdata()) == [row.difference.low, row.difference.high]
        assert thin.get_linewidth() < thick.get_linewidth()
        # The thick bar is what decides: it keeps clear of the margin exactly if there is a verdict.
        low, high = thick.get_xdata()
        assert row.verdict is not None
        assert (low <= worse <= high) == (row.verdict.word == "undecided")
        assert point.get_xdata() == [row.difference.difference]
        assert (point.get_color(), point.get_marker()) == LOOKS[row.verdict.word]


def test_a_variant_that_diverged_has_no_interval_and_says_so() -> None:
    made = store()
    made.add("norm=none", 2, state=TrialState.DIVERGED, stopped_at=42)
    (axes,) = axes_of("forest", made)
    assert any("diverged: 1 of 4 seeds, first at step 42" in text.get_text() for text in axes.texts)
    point = next(line for line in axes.lines if line.get_marker() == LOOKS["diverged"][1])
    assert axes.transAxes.inverted().transform(point.get_transform().transform(point.get_xydata()))[0][0] > 0.9
    titles = [panel.get_title() for panel in axes_of("loss_steps", made)]
    assert "norm=none\n1 of 4 seeds diverged" in titles
    for seed in range(4):
        made.add("norm=none", seed, state=TrialState.DIVERGED)
    curves = next(found for found in pictures(read_findings(made, "a_study")) if found.name == "loss_steps")
    assert "there is no curve, of norm=none." in curves.caption
    assert "norm=none" not in " ".join(panel.get_title() for panel in axes_of("loss_steps", made))


@pytest.mark.parametrize(("name", "last"), [("loss_steps", 100), ("loss_flops", 100e9)])
def test_curves_are_means_over_seeds_in_a_band_from_lowest_to_highest(name: str, last: float) -> None:
    made = store()
    panel = axes_of(name, made)[0]
    assert panel.get_title() == "skip=removed"
    variant = panel.lines[1]
    finals = [made.trial_records[f"skip=removed/{seed}"].metrics["val_loss"] + 4 * math.exp(-5) for seed in range(4)]
    assert variant.get_xdata()[-1] == pytest.approx(last)
    assert variant.get_ydata()[-1] == pytest.approx(np.mean(finals))
    ends = [y for path in panel.collections[1].get_paths() for x, y in path.vertices if x == pytest.approx(last)]
    assert (min(ends), max(ends)) == (pytest.approx(min(finals)), pytest.approx(max(finals)))
    bottom, top = panel.get_ylim()
    assert bottom < min(finals)
    assert top < 6.5, "the first fall from 7 would press all differences flat"


def test_the_verdicts_differ_also_in_grey_and_to_the_colour_blind() -> None:
    assert len({marker for _, marker in LOOKS.values()}) == len(LOOKS)
    okabe_ito = {"#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000"}
    assert {colour for colour, _ in LOOKS.values()} <= okabe_ito
    # Machado, Oliveira, Fernandes (2009): deuteranopia, on linear RGB; needed and not needed stay far apart.
    deuteranopia = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    seen = [np.array(deuteranopia) @ np.array(to_rgb(LOOKS[word][0])) ** 2.2 for word in ("needed", "not needed")]
    assert np.linalg.norm(seen[0] - seen[1]) > 0.15


def test_names_are_drawn_as_they_are() -> None:
    made = store()
    (axes,) = axes_of("forest", made)
    label = axes.get_yticklabels()[-1]
    assert (label.get_text(), label.get_parse_math()) == ("$x_1$ <&>", False)
    odd = fake_store({"baseline": ({}, 1), "漢字\x1b[31m\nb": ({}, 1)}, seeds=2)
    for seed in range(2):
        odd.add("baseline", seed, {"val_loss": 1.0})
        odd.add("漢字\x1b[31m\nb", seed, {"val_loss": 1.1 + seed / 100})
    for kind in ("svg", "png", "pdf"):
        assert save(draw("forest", read_findings(odd, "a_study")), kind)


def test_files_are_what_they_are_called_and_always_the_same() -> None:
    findings = read_findings(store(), "a_study")
    svg = save(draw("loss_steps", findings), "svg")
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert svg == save(draw("loss_steps", findings), "svg")
    png = save(draw("loss_steps", findings), "png")
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") >= 1400  # 7 inches at 200 dots an inch
    assert save(draw("loss_steps", findings), "pdf").startswith(b"%PDF")

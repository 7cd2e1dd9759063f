"""The figures: what their marks show; readable without colour and safe with any name."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_store import FakeStore, fake_store
from vega import at, marks, rows, series

from ablate.analysis.findings import read_findings
from ablate.render.figures import draw, pictures, save
from ablate.render.figures.style import PAPER, Spec
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


def figure(name: str, made: FakeStore) -> Spec:
    drawn = draw(name, read_findings(made, "a_study"))
    save(drawn, "svg")  # Vega accepts it
    return drawn


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
    drawn = figure("forest", made)
    variants = {row.name: row for row in findings.report.variants if row.difference}
    _, thin, thick = (marks(drawn, "rule")[number] for number in (1, 2, 3))
    seeds, points = marks(drawn, "point")
    assert [row["variant"] for row in rows(points)] == list(variants)
    worse = 0.05 if direction == "minimize" else -0.05
    assert at(drawn, "x") == [0, worse]
    assert thin["mark"]["strokeWidth"] < thick["mark"]["strokeWidth"]
    shapes = points["encoding"]["shape"]["scale"]
    for name, row in variants.items():
        assert row.difference is not None
        assert row.verdict is not None
        (place,) = [one for one in rows(points) if one["variant"] == name]
        assert (place["low"], place["high"]) == (row.difference.low, row.difference.high)
        # The thick bar is what decides: it keeps clear of the margin exactly if there is a verdict.
        assert (place["least"] <= worse <= place["most"]) == (row.verdict.word == "undecided")
        assert place["difference"] == row.difference.difference
        assert [one["seed"] for one in rows(seeds) if one["name"] == place["name"]] == [*row.difference.values]
        look = PAPER.verdict(row.verdict.word)
        assert dict(zip(shapes["domain"], shapes["range"], strict=True))[place["verdict"]] == look.mark


def test_a_variant_that_diverged_has_no_interval_and_says_so() -> None:
    made = store()
    made.add("norm=none", 2, state=TrialState.DIVERGED, stopped_at=42)
    drawn = figure("forest", made)
    (place,) = [row for row in rows(marks(drawn, "point")[1]) if row["variant"] == "norm=none"]
    assert "diverged: 1 of 4 seeds, first at step 42" in place["sentence"]
    assert (place["low"], place["least"], place["seeds"]) == (None, None, [])
    low, high = marks(drawn, "point")[1]["encoding"]["x"]["scale"]["domain"]
    assert place["difference"] == high > low
    assert rows(marks(drawn, "text")[1]) == [place], "its sentence stands beside it"
    titles = set(series(marks(figure("loss_steps", made), "line")[0], "panel"))
    assert "norm=none\n1 of 4 seeds diverged" in titles
    for seed in range(4):
        made.add("norm=none", seed, state=TrialState.DIVERGED)
    curves = next(found for found in pictures(read_findings(made, "a_study")) if found.name == "loss_steps")
    assert "there is no curve, of norm=none." in curves.caption
    assert "norm=none" not in " ".join(series(marks(figure("loss_steps", made), "line")[0], "panel"))


@pytest.mark.parametrize(("name", "last"), [("loss_steps", 100), ("loss_flops", 100e9)])
def test_curves_are_means_over_seeds_in_a_band_from_lowest_to_highest(name: str, last: float) -> None:
    made = store()
    line = marks(figure(name, made), "line")[0]
    first, *_ = series(line, "panel").items()
    assert first[0] == "skip=removed"
    end = [row for row in first[1] if row["name"] == "variant"][-1]
    finals = [made.trial_records[f"skip=removed/{seed}"].metrics["val_loss"] + 4 * math.exp(-5) for seed in range(4)]
    assert end["x"] == pytest.approx(last)
    assert end["mean"] == pytest.approx(np.mean(finals))
    assert (end["low"], end["high"]) == (pytest.approx(min(finals)), pytest.approx(max(finals)))
    bottom, top = line["encoding"]["y"]["scale"]["domain"]
    assert bottom < min(finals)
    assert top < 6.5, "the first fall from 7 would press all differences flat"


def test_names_are_drawn_as_they_are() -> None:
    made = store()
    assert b">$x_1$ &lt;&amp;&gt;<" in save(figure("forest", made), "svg")
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

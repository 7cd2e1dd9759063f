"""The figures: what their marks show, readable without colour, safe with any name; and those of the dashboard."""

from __future__ import annotations

import io
import itertools
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_store import FakeStore, fake_store
from PIL import Image
from vega import at, marks, rows, series, units

from ablate.analysis.curves import WHOLE, Band, Line, MixingMap, block_recordings
from ablate.analysis.findings import read_findings
from ablate.render.figures import draw, pictures, save
from ablate.render.figures.axes import draw_parallel
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import PAPER, Spec, themed
from ablate.store.records import WINDOWS, CurvePoint, Recording, TrialState
from dashboard.shared.recordings import draw_maps

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


def norms(scale: float) -> dict[str, dict[str, float | None]]:
    parts = {f"block {n} {part}": scale * n * size for n in (1, 2) for part, size in (("mixer", 3.0), ("mlp", 4.0))}
    return {"weights": {**parts, "block 3 mixer": scale * 9.0}}


def test_norms_of_parts_join_to_that_of_a_block() -> None:
    begin = Recording(0, norms(1.0))
    end = Recording(5, {**norms(2.0), "gradients": {**norms(0.1)["weights"], "block 2 mlp": None}})
    found = block_recordings([begin, end])
    assert found is not None
    assert (found.blocks, found.parts, found.maps) == (("block 1", "block 2", "block 3"), ("mixer", "mlp"), ())
    lines = found.lines("weights", WHOLE)
    heights = {"block 1": (5.0, 10.0), "block 2": (10.0, 20.0), "block 3": (9.0, 18.0)}
    assert {block: one.y for block, one in lines.items()} == heights
    assert found.lines("weights", "mlp")["block 2"].x == (0.0, 5.0)
    gradients = found.lines("gradients", WHOLE)
    finite = {name: Line((5,), (5.0,), (pytest.approx(norm),)) for name, norm in (("block 1", 0.5), ("block 3", 0.9))}
    assert gradients == finite, "a part of block 2 was not finite"
    assert found.parts_with("gradients") == (WHOLE, "mixer", "mlp")
    assert found.parts_with("spread") == ()
    assert block_recordings([]) is block_recordings([Recording(0, {WINDOWS: {"val_loss": 1.0}})]) is None


@pytest.mark.parametrize(
    ("rows", "own", "reach"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], 1.0, 0.0),
        ([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], 0.0, 1.0),
        ([[0.0, 0.0, 1.0], [0.0, None, 0.0], [3.0, 0.0, 0.0]], 0.0, 2.0),
        ([[1.0, 1.0, 1.0]], None, None),
        ([[None, None], [None, None]], None, None),
    ],
    ids=["identity", "shift", "corners", "not square", "no number"],
)
def test_a_map_in_numbers(rows: list[list[float | None]], own: float | None, reach: float | None) -> None:
    begin, end = Recording(0, {"weights": {"block 1 mixer": 1.0}}), Recording(2, {"map": {"block 1 mixer": rows}})
    found = block_recordings([begin, Recording(1, {"spread": {}}), end])
    assert found is not None
    highest = max((value for row in rows for value in row if value is not None), default=0.0)
    assert found.maps == (MixingMap("block 1 mixer", tuple(map(tuple, rows)), own, reach, highest),)
    assert found.parts == ("mixer",)


def test_maps_have_colour_where_they_are_large() -> None:
    entries = tuple(tuple(1.0 if i == j else None for j in range(8)) for i in range(8))
    figure = draw_maps([MixingMap(f"block {n} mixer", entries, 1.0, 0.0, 1.0) for n in range(5)], PAPER)
    assert [panel["title"] for panel in figure["concat"]] == [f"block {n} mixer, to 1" for n in range(5)]
    assert all([(row["output"], row["input"]) for row in rows(unit)] == [(i, i) for i in range(1, 9)]
               for unit in units(figure))  # fmt: skip
    picture = np.asarray(Image.open(io.BytesIO(save(themed(figure, PAPER), "png"))).convert("L"))
    assert (picture < 245).mean() > 0.01


def test_parallel_lines_stand_where_their_values_are() -> None:
    columns = {"norm": ["rms", "none", "rms"], "heads": [1, 4, 7], "val_loss": [2.0, 3.0, None]}
    figure = draw_parallel(columns, "val_loss", PAPER)
    known, _, wide, lost = marks(figure, "line")
    places = [[row["at"] for row in line] for line in (*series(known, "line").values(), *series(lost, "line").values())]
    assert places == [[0.0, 0.0, 0.0], [1.0, 0.5, 1.0], [0.0, 1.0]]
    assert len(places[2]) == 2, "one that diverged reaches no place on the axis of the objective"
    assert lost["mark"]["strokeDash"]
    assert not rows(wide)
    texts = marks(figure, "text")
    halos, ticks = ([row for unit in texts if ("stroke" in unit["mark"]) is halo for row in rows(unit)]
                    for halo in (True, False))  # fmt: skip
    assert {row["text"] for row in ticks} == {"rms", "none", "1", "4", "7", "2", "3"}
    near = draw_parallel({"lr": [1.0, 1.3, 1.6, 9.0, 2.0], "loss": [1.0] * 5}, "loss", PAPER, best=4)
    told = {row["text"] for unit in marks(near, "text") for row in rows(unit) if row["axis"] == "lr (log)"}
    assert told == {"1", "2", "9"}, "both ends and the best, not what is next to it"
    assert (halos, texts[0]["mark"]["stroke"]) == (ticks, "#ffffff"), "no line runs through a label"
    assert figure["layer"].index(texts[0]) > figure["layer"].index(lost)


def test_parallel_axes_of_a_narrow_page_lie_below_each_other() -> None:
    columns = {"query_key_norm": ["kept", "removed"], "streams": ["a", "b"], "val_loss": [2.0, 3.0]}
    across, down = (draw_parallel(columns, "val_loss", PAPER, wide=[1], down=down) for down in (False, True))
    for figure, axis in ((across, "x"), (down, "y")):
        thin, rim, wide = marks(figure, "line")
        assert thin["encoding"][axis]["field"] == "axis"
        assert [{row["line"] for row in rows(line)} for line in (thin, wide)] == [{0}, {1}]
        assert thin["mark"]["strokeWidth"] < wide["mark"]["strokeWidth"] < rim["mark"]["strokeWidth"]
        assert [row["order"] for row in rows(thin)] == [0, 1, 2], "a line goes from axis to axis"


def test_parallel_lines_end_in_their_names_and_an_outlier_does_not_make_the_others_alike() -> None:
    losses = [2.0, 1.9, 1.95, 1.98, 2.02, 9.0]
    variants = ["baseline", *"abcd", "a name that is longer than an end of a line has room for, which ends so"]
    columns = {"norm": ["rms"] * 6, "val_loss": losses}
    figure = draw_parallel(columns, "val_loss", PAPER, variants, wide=[0], best=1)
    thin, best, _, wide = marks(figure, "line")
    assert [{row["line"] for row in rows(line)} for line in (thin, best, wide)] == [{2, 3, 4, 5}, {1}, {0}]
    assert best["mark"]["strokeWidth"] > wide["mark"]["strokeWidth"], "where they meet both are seen"
    places = {row["value"]: row["at"] for row in rows(thin) if row["axis"] == "val_loss"}
    assert (max(places) < 3, places[1.98] > 0.15) == (True, True), "one far off stands at the end of the axis"
    others, *marked = (rows(layer) for layer in marks(figure, "text")[-3:])
    marked = [end for of in marked for end in of]
    assert [end["text"] for end in marked] == ["2.00 baseline", "1.90 a"]
    assert [end["text"] for end in others][:3] == ["1.95 b", "1.98 c", "2.02 d"]
    assert others[3]["text"].endswith("…")
    heights = sorted(end["at"] for end in (*others, *marked))
    assert min(after - before for before, after in itertools.pairwise(heights)) > 0.039, "no name covers another"
    many = draw_parallel({"val_loss": [*losses] * 5}, "val_loss", PAPER, variants * 5, wide=[0], best=1)
    told = {row["text"] for layer in marks(many, "text") for row in rows(layer) if row["axis"] == "val_loss"}
    assert told == {"1.9", "≥ 2.23", "2.0 baseline", "1.9 best"}, "of many lines the marked ones have names"


def test_all_parallel_axes_are_named_and_no_label_reaches_the_next_axis() -> None:
    names = [f"{word}_norm_{number}" for number, word in enumerate(["query", "value", "output", "logit"] * 3)]
    columns = {name: ["kept_as_it_is", "warmup_stable_decay"] for name in names}
    drawn = save(themed(draw_parallel({**columns, "val_loss": [2.0, 3.0]}, "val_loss", PAPER), PAPER), "svg")
    placed = []  # horizontal place and width of each line of text; a letter of 10 pixels is about 5.5 wide
    for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text"):
        pieces = [piece.text or "" for piece in text.iter("{http://www.w3.org/2000/svg}tspan")] or [text.text or ""]
        (left,) = re.findall(r"translate\(([-\d.]+)", text.attrib["transform"])
        placed.append((float(left), 5.5 * max(map(len, pieces)), "".join(pieces).replace(" ", "")))
    assert {said for *_, said in placed} >= set(names)
    starts = sorted({left for left, _, said in placed if said == "warmupstabledecay"})
    apart = min(after - before for before, after in itertools.pairwise(starts))
    assert len(starts) == len(names)
    assert all(width <= apart for _, width, said in placed if said in {*names, "keptasitis", "warmupstabledecay"})


def test_curves_are_cut_at_the_top_unless_all_is_wanted() -> None:
    falls = (9.0, 2.0, 1.6, 1.3, 1.0)
    band = Band((0.0, 1.0, 2.0, 3.0, 4.0), falls, falls, falls, 1)
    cut, whole = (
        marks(draw_bands({"a": band}, {"a": PAPER.look(0)}, PAPER, ("steps", "x"), whole=all_, stepped=all_), "line")[0]
        for all_ in (False, True)
    )
    assert cut["encoding"]["y"]["scale"]["domain"][1] < 3
    low, high = whole["encoding"]["y"]["scale"]["domain"]
    assert low == 0.0
    assert high > 9
    assert whole["mark"]["interpolate"] == "step-after", "between two that ended none did"
    assert "interpolate" not in cut["mark"]

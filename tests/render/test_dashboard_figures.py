"""The figures that only the dashboard offers as files, and what was recorded inside a trial, read for them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from vega import marks, rows, series, units

from ablate.analysis.curves import WHOLE, Band, MixingMap, block_recordings
from ablate.render.figures import save
from ablate.render.figures.axes import draw_parallel
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import PAPER, themed
from ablate.store.records import Recording
from dashboard.shared.inside import draw_maps


def norms(scale: float) -> dict[str, dict[str, float | None]]:
    parts = {f"block {n} {part}": scale * n * size for n in (1, 2) for part, size in (("mixer", 3.0), ("mlp", 4.0))}
    return {"weights": dict(parts)}


def test_norms_of_parts_join_to_that_of_a_block() -> None:
    begin = Recording(0, norms(1.0))
    end = Recording(5, {**norms(2.0), "gradients": {**norms(0.1)["weights"], "block 2 mlp": None}})
    found = block_recordings([begin, end])
    assert found is not None
    assert (found.blocks, found.parts, found.maps) == (("block 1", "block 2"), ("mixer", "mlp"), ())
    lines = found.lines("weights", WHOLE)
    assert {block: one.y for block, one in lines.items()} == {"block 1": (5.0, 10.0), "block 2": (10.0, 20.0)}
    assert found.lines("weights", "mlp")["block 2"].x == (0.0, 5.0)
    gradients = found.lines("gradients", WHOLE)
    assert list(gradients) == ["block 1"], "a part of the other was not finite"
    assert gradients["block 1"].steps == (5,)
    assert found.parts_with("gradients") == (WHOLE, "mixer", "mlp")
    assert found.parts_with("spread") == ()
    assert block_recordings([]) is None


@pytest.mark.parametrize(
    ("rows", "own", "reach"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], 1.0, 0.0),
        ([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], 0.0, 1.0),
        ([[0.0, 0.0, 1.0], [0.0, None, 0.0], [3.0, 0.0, 0.0]], 0.0, 2.0),
        ([[1.0, 1.0, 1.0]], None, None),
    ],
    ids=["identity", "shift", "corners", "not square"],
)
def test_a_map_in_numbers(rows: list[list[float | None]], own: float | None, reach: float | None) -> None:
    told = Recording(1, {"weights": {"block 1 mixer": 1.0}, "map": {"block 1 mixer": rows}})
    found = block_recordings([told])
    assert found is not None
    (one,) = found.maps
    assert (one.own, one.reach) == (own, reach)
    assert one.highest == max(value for row in rows for value in row if value is not None)


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
    known, lost = marks(figure, "line")
    places = [[row["at"] for row in line] for line in (*series(known, "line").values(), *series(lost, "line").values())]
    assert places == [[0.0, 0.0, 0.0], [1.0, 0.5, 1.0], [0.0, 1.0]]
    assert len(places[2]) == 2, "one that diverged reaches no place on the axis of the objective"
    assert lost["mark"]["strokeDash"]
    (ticks,) = marks(figure, "text")
    assert {row["text"] for row in rows(ticks)} >= {"rms", "none", "1", "4", "7", "2", "3"}
    assert save(themed(figure, PAPER), "svg")


def test_curves_are_cut_at_the_top_unless_all_is_wanted() -> None:
    band = Band((0.0, 1.0, 2.0), (9.0, 2.0, 1.0), (9.0, 2.0, 1.0), (9.0, 2.0, 1.0), 1)
    cut, whole = (
        marks(draw_bands({"a": band}, {"a": PAPER.look(0)}, PAPER, ("steps", "x"), whole=all_), "line")[0]
        for all_ in (False, True)
    )
    assert cut["encoding"]["y"]["scale"]["domain"][1] < 3
    low, high = whole["encoding"]["y"]["scale"]["domain"]
    assert low == 0.0
    assert high > 9

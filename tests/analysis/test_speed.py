"""The relative speed of a variant: from rounds that were timed in turns with the baseline, and from nothing else."""

from __future__ import annotations

import io
import math
import random

import pytest
from fake_store import FakeStore, fake_store
from rich.console import Console
from scipy import stats
from vega import marks, series

from ablate.analysis.findings import read_findings
from ablate.analysis.study import read_study
from ablate.render.as_json import study_json
from ablate.render.figures import curves
from ablate.render.figures.style import PAPER
from ablate.render.formats import Place, find_format
from ablate.render.table import print_study


def study() -> FakeStore:
    """The variant finished in a tenth of the baseline's time, beside other work."""
    made = fake_store({"baseline": ({"a": "on"}, 100), "a=off": ({"a": "off"}, 90)}, seeds=3)
    for seed in range(3):
        for name, seconds in (("baseline", 100.0), ("a=off", 10.0 + seed)):
            curve = [(step, 3.0 - step / 100 + seed / 50) for step in (10, 20, 30)]
            made.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve, seconds=seconds)
    return made


def shown(made: FakeStore) -> str:
    out = Console(file=io.StringIO(), width=160)
    print_study(read_study(made, "a_study"), out)
    findings = read_findings(made, "a_study")
    texts = [str(find_format(name).render(findings, Place())) for name in ("md", "html", "latex", "slides")]
    return "\n".join([out.file.getvalue(), *texts])  # type: ignore[attr-defined]


def test_the_clocks_of_trials_reach_no_table_no_figure_and_no_latex() -> None:
    made = study()
    report = read_study(made, "a_study")
    assert [row.relative_speed for row in report.variants] == [None, None]
    assert "speed" not in shown(made)
    assert study_json(report)["variants"][1]["relative_speed"] is None
    assert all(picture.name != "loss_seconds" for picture in curves.pictures(read_findings(made, "a_study")))


def test_rounds_in_turns_give_a_ratio_with_its_interval_and_the_load_of_the_machine_cancels() -> None:
    made, noise = study(), random.Random(4)
    loads = [noise.uniform(0.2, 1.0) for _ in range(12)]  # of the machine, five times as much at some rounds
    ours = [1.25 * 1000 * load * noise.gauss(1, 0.02) for load in loads]
    theirs = [1000 * load for load in loads]
    made.time("a=off", ours, theirs)
    report = read_study(made, "a_study")
    speed = report.variants[1].relative_speed
    assert speed is not None
    logarithms = [math.log(one / other) for one, other in zip(ours, theirs, strict=True)]
    low, high = stats.ttest_1samp(logarithms, 0).confidence_interval(0.95)
    assert (speed.low, speed.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    assert speed.mean == pytest.approx(stats.gmean(ours) / stats.gmean(theirs))
    assert speed.low < 1.25 < speed.high
    text = shown(made)
    assert "1.2" in text.partition("speed:")[0]
    assert "in turns in one process" in " ".join(text.split())


def test_curves_over_seconds_are_drawn_at_the_timed_rates() -> None:
    made = study()
    for key, points in made.curve_points.items():
        made.curve_points[key] = tuple(point._replace(tokens=100 * point.step, seconds=9.0) for point in points)
    made.time("a=off", [200.0, 200.0], [100.0, 100.0])
    findings = read_findings(made, "a_study")
    assert any(picture.name == "loss_seconds" for picture in curves.pictures(findings))
    spec = curves.FIGURES["loss_seconds"](findings, PAPER)
    lines = series(marks(spec, "line")[0])
    assert [row["x"] for row in lines["baseline"]] == pytest.approx([10.0, 20.0, 30.0])
    assert [row["x"] for row in lines["variant"]] == pytest.approx([5.0, 10.0, 15.0])

"""How numbers are written."""

from __future__ import annotations

import io
from functools import partial

import numpy as np
import pytest
from fake_store import fake_store
from rich.console import Console

from ablate.analysis.findings import read_findings
from ablate.analysis.numbers import count, decimals_for, fixed, percent, times, times_within, with_interval
from ablate.analysis.study import read_study
from ablate.render.formats import render_report
from ablate.render.table import print_study
from ablate.stats import Interval


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (812, "812"), (999, "999"), (1000, "1.00k"), (81_249, "81.2k"), (868_512, "869k"), (999_600, "1.00M"),
     (8_120_000, "8.12M"), (124_439_808, "124M"), (1_300_000_000, "1.30B")],
)  # fmt: skip
def test_count(value: int, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(None, "-"), (0.0, "0%"), (0.00001, "0%"), (-0.00001, "0%"), (-0.127, "-13%"), (0.064, "+6.4%"), (2.5, "+250%")],
)
def test_percent(fraction: float | None, text: str) -> None:
    assert percent(fraction) == text


def test_fixed() -> None:
    assert fixed(None, 3) == "-"
    assert fixed(-0.00001, 3, sign=True) == "+0.000"
    assert fixed(0.1316, 3, sign=True) == "+0.132"
    assert fixed(12.7, 0) == "13"


def test_times() -> None:
    assert [times(value) for value in (None, 1.0, 0.954, 12.4)] == ["-", "1.00x", "0.95x", "12x"]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(1.02, 1.15, "1.08x [1.02, 1.15]"), (0.8, 1.6, "1.08x [0.80, 1.60]"), (0.8, 1.61, "-"), (0.01, 167.0, "-")],
)
def test_a_speed_within_more_than_a_factor_of_two_is_no_measurement(low: float, high: float, shown: str) -> None:
    assert times_within(Interval(1.08, low, high, 4)) == shown


def test_decimals_show_the_margin_and_the_interval() -> None:
    assert decimals_for(0.02, []) == 3
    assert decimals_for(0.02, [0.3, 0.08]) == 3
    assert decimals_for(0.02, [0.0004, 0.0005, 0.0006]) == 4
    assert decimals_for(50.0, [30.0]) == 0
    assert decimals_for(0.02, [1e-12]) == 8
    for margin in (1e-11, 3e-9, 2e-7, 0.05):
        assert float(fixed(margin, decimals_for(margin, [0.0]))) == pytest.approx(margin, rel=0.1), "and not 0.00000000"


@pytest.mark.parametrize(
    ("mean", "low", "high", "text"),
    [
        (0.5, 0.4, 0.6, "+0.50 ± 0.10"),
        (0.5, 0.4 + 1e-12, 0.6, "+0.50 ± 0.10"),
        (0.5, 0.4004, 0.6001, "+0.50 ± 0.10"),
        (0.5, 0.35, 0.55, "+0.50 [+0.35, +0.55]"),
        (-0.5, -0.71, -0.4, "-0.50 [-0.71, -0.40]"),
        (0.5, None, None, "+0.50"),
        (None, None, None, "-"),
    ],
)
def test_an_interval_shows_both_ends(mean: float | None, low: float | None, high: float | None, text: str) -> None:
    assert " ".join(with_interval(mean, low, high, partial(fixed, decimals=2, sign=True))) == text


def test_every_table_shows_both_ends_of_a_bootstrapped_interval() -> None:
    """From 30 seeds on, and skewed: what is printed is what was worked out."""
    made = fake_store({"baseline": ({}, 100), "other": ({}, 90), "third": ({}, 110)}, seeds=30, margin=0.1)
    skewed = np.random.default_rng(0).exponential(1, (3, 30)) ** 2
    for seed in range(30):
        for at, variant in enumerate(("baseline", "other", "third")):
            made.add(variant, seed, {"val_loss": float(skewed[at, seed])})
    found = read_findings(made, "a_study").report.variants[1]
    mean, paired = found.metrics["val_loss"], found.difference
    assert paired is not None
    ends = f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]"
    difference = f"{paired.difference:+.2f} [{paired.low:+.2f}, {paired.high:+.2f}]"
    text = render_report(read_findings(made, "a_study"), "md")
    assert isinstance(text, str)
    assert text.replace("\\", "").count(ends) == 2, "in the table of variants and in that of trade-offs"
    assert difference in text.replace("\\", "")
    console = Console(width=200, file=io.StringIO())
    with console.capture() as shown:
        print_study(read_study(made, "a_study"), console)
    assert ends in shown.get()
    assert difference in shown.get()
    assert "[low, high] where it is not symmetric" in shown.get()

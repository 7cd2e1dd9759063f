"""How numbers are written."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fake_store import fake_store
from rich.console import Console

from ablate.analysis.findings import read_findings
from ablate.analysis.numbers import (
    about,
    bound_text,
    count,
    counted,
    decimals_for,
    duration,
    few,
    fixed,
    fixed_beside,
    interval_words,
    listed,
    new_part,
    percent,
    plural,
    replaced,
    scaled,
    times,
    times_within,
    with_interval,
)
from ablate.analysis.sentences import _settle
from ablate.analysis.study import read_study
from ablate.render.formats import render_report
from ablate.render.table import print_study
from ablate.stats import Interval


def plural_trials(number: int) -> str:
    return plural(number, "trial")


WRITTEN: dict[Callable[[Any], Any], dict[Any, Any]] = {
    count: {None: "-", 0: "0", 812: "812", 999: "999", 1000: "1.00k", 81_249: "81.2k", 868_512: "869k",
            999_499: "999k", 999_500: "1.00M", 8_120_000: "8.12M", 124_439_808: "124M", 1_300_000_000: "1.30B",
            999_499_999: "999M", 999_500_000_000: "1.00T", -1500: "-1.50k"},
    percent: {None: "-", 0.0: "0%", 0.00001: "0%", -0.00001: "0%", 0.0004: "0%", 0.0006: "+0.1%", -0.127: "-13%",
              0.064: "+6.4%", 0.0994: "+9.9%", 0.1: "+10%", -0.1: "-10%", 0.104: "+10%", 2.5: "+250%"},
    times: {None: "-", 1.0: "1.00x", 0.954: "0.95x", 9.99: "9.99x", 9.995: "10x", 12.4: "12x"},
    duration: {None: "-", 0: "0 s", 1e-9: "< 1 s", 0.5: "< 1 s", 0.51: "1 s", 59.4: "59 s", 59.6: "1 min 00 s",
               185: "3 min 05 s", 3599: "59 min 59 s", 3600: "1 h 00 min", 7629: "2 h 07 min",
               86_399: "23 h 59 min", 86_400: "1 d 0 h", 277_199: "3 d 4 h"},
    about: {0.2: "about < 1 s", 59.4: "about 59 s", 59.6: "about 1 min", 1080: "about 18 min", 3599: "about 60 min",
            3600: "about 1 h 00 min"},
    counted: {(("failed", 3), ("pruned", 0), ("diverged", 1)): ["3 failed", "1 diverged"]},
    scaled: {-1500: "-1.5 k", 0: "0 ", 999.4: "999 ", 999.5: "1 k", 12.3e12: "12.3 T", 2e17: "200 P", 1e18: "1 E"},
    plural_trials: {0: "0 trials", 1: "1 trial", 2: "2 trials", 1000: "1,000 trials"},
    listed: {("a",): "a", ("a", "b"): "a and b", tuple("abcdefghi"): "a, b, c, d, e, f, g, h and i",
             tuple("abcdefghij"): "a, b, c, d, e, f, g, h and 2 others"},
    few: {("a",): "a", ("a", "b"): "a, b", ("a", "b", "c"): "a and 2 others"},
    replaced: {("a → b", "a → c"): "a", ("a → b",): "", ("a → b", "c → b"): "", ("a", "b"): "", ("a → b", "a"): ""},
    new_part: {"ReLU → GELU": "GELU", "keys → normalised ones": "keys → normalised ones",
               "a → b → one": "a → b → one", "a → b → c": "c", "heads → those of 2": "heads → those of 2",
               "no MLP": "no MLP", "ReLU → GELU + bias → none": "ReLU → GELU + bias → none"},
}  # fmt: skip
"""Functions that write a number or names, and what they write: on both sides of each place where the form changes."""


@pytest.mark.parametrize(
    ("write", "value", "text"), [(write, *one) for write, cases in WRITTEN.items() for one in cases.items()]
)
def test_a_value_is_written_as_a_person_reads_it(write: Callable[[Any], Any], value: Any, text: Any) -> None:
    assert write(value) == text


def test_fixed() -> None:
    assert fixed(None, 3) == "-"
    assert fixed(-0.00001, 3, sign=True) == "+0.000"
    assert fixed(0.1316, 3, sign=True) == "+0.132"
    assert fixed(12.7, 0) == "13"


@pytest.mark.parametrize(
    ("value", "margin", "text"),
    [(0.25, 0.25, "+0.25"), (-0.25, 0.25, "-0.25"), (0.0, 0.25, "+0.0"), (0.249, 0.25, "+0.2"), (-0.01, 0.25, "-0.01"),
     (0.5000002, 0.5, "+0.5000002"), (0.50000002, 0.5, "+0.5")],
)  # fmt: skip
def test_a_number_has_as_many_as_six_decimals_more_where_they_tell_it_from_a_margin(
    value: float, margin: float, text: str
) -> None:
    assert fixed_beside(value, margin, 1) == text


def test_a_bound_is_rounded_outward_and_never_onto_the_margin() -> None:
    bounds = {0.0: "0", 0.1001: "+0.1001", -0.0999: "-0.0999", 0.333: "+0.33", -0.333: "-0.34"}
    assert {bound: bound_text(bound, upper=False, margin=0.1) for bound in bounds} == {
        bound: f"≥ {text}" for bound, text in bounds.items()
    }
    assert bound_text(0.333, upper=True, margin=0.1) == "≤ +0.34"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(None, 1.0, "-"), (1.0, None, "-"), (-math.inf, math.inf, "-"), (-math.inf, 1.0, "+1.0 or less"),
     (1.0, math.inf, "+1.0 or more"), (-1.0, 1.0, "-1.0 to +1.0"), (-0.5002, 0.5, "-0.5002 to +0.5"),
     (-0.04, 0.49, "-0.04 to +0.49"), (0.1 + 0.2, 0.5 + 1e-16, "+0.3 to +0.5")],
)  # fmt: skip
def test_an_interval_in_words_has_the_ends_that_are_known(low: float | None, high: float | None, text: str) -> None:
    assert interval_words(low, high, margin=0.5, decimals=1) == text


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(1.02, 1.15, "1.08x [1.02, 1.15]"), (0.8, 1.6, "1.08x [0.80, 1.60]"), (0.8, 1.61, "-"), (0.01, 167.0, "-"),
     (1.08, 1.08, "1.08x"), (None, 1.1, "-"), (1.0, None, "-")],
)  # fmt: skip
def test_a_speed_within_more_than_a_factor_of_two_is_no_measurement(
    low: float | None, high: float | None, shown: str
) -> None:
    assert times_within(Interval(1.08, low, high, 4)) == shown


def test_decimals_show_the_margin_and_the_interval() -> None:
    assert (decimals_for(0.02, []), decimals_for(0.1, [])) == (3, 2)
    assert decimals_for(0.02, [0.3, 0.08]) == decimals_for(0.09, []) == 3
    assert decimals_for(0.02, [0.0006, 1e-9, 0.0005, 0.0]) == 4, "the middle one of three that are not 0"
    assert decimals_for(0.02, [1e-9, 0.0005]) == 4, "the larger of two"
    assert decimals_for(50.0, [30.0]) == decimals_for(500.0, [300.0]) == 0
    assert decimals_for(0.02, [1e-12]) == 8
    for margin in (1e-11, 3e-9, 2e-7, 0.05):
        assert float(fixed(margin, decimals_for(margin, [0.0]))) == pytest.approx(margin, rel=0.1), "and not 0.00000000"


@pytest.mark.parametrize(
    ("mean", "low", "high", "text"),
    [
        (0.5, 0.4, 0.6, "+0.50 ± 0.10"),
        (0.5, 0.4 + 1e-12, 0.6, "+0.50 ± 0.10"),
        (0.5, 0.4004, 0.6001, "+0.50 ± 0.10"),
        (0.5, 0.39500001, 0.60500001, "+0.50 ± 0.11"),
        (0.5, 0.35, 0.55, "+0.50 [+0.35, +0.55]"),
        (-0.5, -0.71, -0.4, "-0.50 [-0.71, -0.40]"),
        (0.5, None, None, "+0.50"),
        (0.5, None, 0.6, "+0.50"),
        (0.5, 0.4, None, "+0.50"),
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


@pytest.mark.parametrize(
    ("further", "scheduled", "said"),
    [
        ([(1, 0.6)], False, "About 1 more seed would settle it with a chance of 60 %"),
        ([(3, 0.6), (1, 0.8)], False, "About 3 more seeds would settle each of them with a chance of at least 60 %"),
        (
            [(2, 0.6), (None, None)],
            True,
            "About 2 more seeds would settle 1 of them with a chance of 60 %, the others would require more than the "
            "schedule has",
        ),
        ([(None, None)], False, "More than 100 more seeds would be required"),
        ([(None, None)], True, "More seeds than the schedule has would be required"),
    ],
)
def test_how_many_seeds_settle_what_is_undecided(
    further: list[tuple[int | None, float | None]], scheduled: bool, said: str
) -> None:
    """The most that one comparison needs, with the least chance of any."""
    assert _settle(further, scheduled, "seed") == said

"""How numbers are written."""

from __future__ import annotations

import pytest

from ablate.report.numbers import count, decimals_for, fixed, percent, times


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


def test_decimals_show_the_margin_and_the_interval() -> None:
    assert decimals_for(0.02, []) == 3
    assert decimals_for(0.02, [0.3, 0.08]) == 3
    assert decimals_for(0.02, [0.0004, 0.0005, 0.0006]) == 4
    assert decimals_for(50.0, [30.0]) == 0
    assert decimals_for(1e-30, [0.0]) == 8

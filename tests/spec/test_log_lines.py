"""Numbers of a line of a log: whole, or refused; and those that are not finite are found by every pattern."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.spec.log_lines import CutNumberError, groups_of_line


@pytest.mark.parametrize(
    ("pattern", "line", "text"),
    [
        (r"loss (?P<x>[\d.]+)", "loss 0.5", "0.5"),
        (r"loss (?P<x>[\d.]+)", "loss nan", "nan"),
        (r"loss (?P<x>\d+\.\d{4})", "loss -inf", "nan"),
        (r"loss=(?P<x>[\d.]+),", "loss=3.28, lr=1", "3.28"),
        (r"time (?P<x>[\d.]+)s", "time 3.2s", "3.2"),
        (r"step:(?P<x>\d+)/\d+", "step:3/100", "3"),
        (r"step-(?P<x>\d+)", "step-30", "30"),
        (r"step 0*(?P<x>\d+)", "step 00030", "30"),
        (r"\d+:\d+\.(?P<x>\d+)", "12:34.56", "56"),
        (r"reward (?P<x>-?[\d.]+)", "reward -3.2", "-3.2"),
        (r"(?P<y>\d)(?P<x>\d+)", "1234", "234"),
    ],
)
def test_whole_numbers(pattern: str, line: str, text: str) -> None:
    found = groups_of_line(re.compile(pattern), line)
    assert found is not None
    assert found["x"] == text


def test_a_number_that_is_not_finite_leaves_the_others_as_they_are() -> None:
    pattern = re.compile(r"step (?P<step>\d+) loss (?P<loss>[\d.]+) of (?P<rows>\d+)")
    assert groups_of_line(pattern, "step 3 loss nan of 7") == {"step": "3", "loss": "nan", "rows": "7"}


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"loss (?P<x>[\d.]+)", "loss 9.1e-05"),
        (r"loss (?P<x>[\d.]+).*acc (?P<y>\S+)", "loss 9.1e-05 acc 0.5"),
        (r"loss.*(?P<x>\d+\.\d+)", "loss 12.34"),
        (r"loss.*(?P<x>[\d.]+)", "loss 12.34"),
        (r"reward\D+(?P<x>[\d.]+)", "reward: -3.2"),
        (r"loss (?P<x>\d+)", "loss 3.28"),
        (r"loss (?P<x>\d\.\d)", "loss 3.28"),
        (r"loss (?P<x>[\d.]+)", "loss -3.28"),
        (r"loss.*(?P<x>\S+)", "loss 1e-05"),
        (r"loss.*(?P<x>\d+)", "loss 1e-5"),
        (r"loss (?P<x>\d+\.\d+) acc (?P<y>\S+)", "loss 9.1e-05 acc 0.5"),
    ],
)
def test_parts_of_numbers_are_refused(pattern: str, line: str) -> None:
    with pytest.raises(CutNumberError):
        groups_of_line(re.compile(pattern), line)


def test_a_line_of_something_else_is_none() -> None:
    for line in ("nan in the gradients", "lr 1e-05", "begin at 2026-01-02 with -3", "loss was: -3"):
        assert groups_of_line(re.compile(r"loss (?P<x>[\d.]+)"), line) is None


@given(
    st.floats(),
    st.sampled_from([r"[\d.]+", r"-?[\d.]+", r"\S+", r"[-\d.e]+", r"\d+\.\d+", r"[-+.\deE]+"]),
    st.sampled_from([r"loss\s(?P<x>%s)$", r"loss (?P<x>%s)", r"loss\D*?(?P<x>%s)", r"loss.*(?P<x>%s)"]),
)
def test_what_is_read_is_what_was_written(number: float, group: str, pattern: str) -> None:
    """Whatever the pattern takes: the number, or a refusal; never another number, and no line is skipped."""
    try:
        found = groups_of_line(re.compile(pattern % group), f"step 1 loss {number!r}")
        assert found is not None
        read = float(found["x"])
    except ValueError:
        return
    assert read == number or (not math.isfinite(read) and not math.isfinite(number))

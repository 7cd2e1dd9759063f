"""Names in tables: whole, and broken where a reader would break them."""

from __future__ import annotations

import pytest

from ablate.terminal.names import in_lines


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("baseline", 26, ["baseline"]),
        ("mlp=gone,skip=gone,mixer=linear", 40, ["mlp=gone,skip=gone,mixer=linear"]),
        ("mlp=gone,skip=gone,mixer=linear", 20, ["mlp=gone,skip=gone,", "mixer=linear"]),
        ("baseline@model.width=16", 16, ["baseline", "@model.width=16"]),
        (
            "skip=gone (training.optimizer.lr=0.001, timing)",
            20,
            ["skip=gone", "(training.optimizer.lr=0.001,", "timing)"],
        ),
        ("a_very_long_name_of_one_word", 8, ["a_very_long_name_of_one_word"]),
    ],
)
def test_a_name_is_broken_at_its_commas(name: str, width: int, lines: list[str]) -> None:
    assert in_lines(name, width).splitlines() == lines

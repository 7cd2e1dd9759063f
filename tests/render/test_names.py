"""Names in tables: whole, and broken where a reader would break them."""

from __future__ import annotations

import pytest
from rich.console import Console

from ablate.render.blocks import Grid
from ablate.render.cells import in_lines
from ablate.render.formats.terminal import _print


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
            ["skip=gone", "(training.optimizer.lr=", "0.001, timing)"],
        ),
        ("attention_skip=removed", 16, ["attention_skip=", "removed"]),
        ("a_very_long_name_of_one_word", 8, ["a_very_long_name_of_one_word"]),
    ],
)
def test_a_name_is_broken_at_its_commas(name: str, width: int, lines: list[str]) -> None:
    assert in_lines(name, width).splitlines() == lines


def test_rows_of_a_table_are_distinguished_however_long_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("mlp=gone,skip=gone,mixer=linear", "mlp=gone,skip=gone,mixer=retention")
    grid = Grid(
        ("number", "variant", "value"), (tuple(("1", name, "2.125 ± 0.125") for name in names),), frozenset({1})
    )
    _print(grid, Console(width=50))
    lines = capsys.readouterr().out.split()
    assert {"mixer=linear", "mixer=retention"} <= set(lines)

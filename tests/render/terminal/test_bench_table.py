"""The statements of `ablate bench` about measured times, and when it makes none."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from ablate.render.terminal.bench import print_bench
from ablate.timing import Setting, Timing


def printed(*rows: Timing) -> str:
    console = Console(file=StringIO(), width=200)
    print_bench(rows, Setting(width=8, heads=1, batch=1, device="cpu", whole=False), console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def row(block: str, length: int, seconds: float, spread: float) -> Timing:
    return Timing(block, length, True, seconds=seconds, spread=spread, tokens=1.0, flops=1.0, share=0.1, ratio=1.0)


@pytest.mark.parametrize(("spread", "told"), [(0.05, True), (0.6, False)])
def test_growth_is_reported_where_it_is_larger_than_the_noise(spread: float, told: bool) -> None:
    text = printed(row("we", 16, 1e-3, spread), row("we", 64, 2e-3, spread))
    assert ("Time grows as we L^0.50." in text) == told
    assert ("How the time of we grows is lost in noise" in text) == (not told)


def test_each_block_is_judged_by_its_own_noise() -> None:
    calm = row("he", 16, 1e-3, 0.01), row("he", 32, 2e-3, 0.01)
    wild = row("we", 16, 2e-3, 29.44), row("we", 32, 1e-3, 0.5)
    text = printed(*calm, *wild)
    assert "Time grows as he L^1.00." in text
    assert "we L^" not in text
    assert "> 100%" in text
    assert "2944" not in text
    assert "1 head," in text

"""What a person sees on a terminal: a live display in colour that leaves nothing behind but the answer."""

from __future__ import annotations

import re

import pexpect
import pytest
from cli_runs import ABLATE, Finished, Workplace

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(place: Workplace, *arguments: str, columns: int = 100) -> str:
    child = pexpect.spawn(
        ABLATE,
        list(arguments),
        cwd=str(place.folder),
        env=place.environment,
        dimensions=(40, columns),
        timeout=300,
        encoding="utf-8",
    )
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    seen: str = child.before
    return seen


def test_the_live_display_shows_what_trains(place: Workplace) -> None:
    seen = on_terminal(place, "study", place.space(steps=1000, seeds=1), "--workers", "1")
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m|\x1b\[38;5;", seen), "colour"
    assert "\x1b[?25l" in seen, "the cursor is hidden while it moves"
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")
    plain = CODES.sub("", seen)
    assert "0 of 3 trials" in plain
    assert re.search(
        r"(baseline|values=identity|norm=none) +seed 0 +step \d+/1000 +loss \d\.\d{3} +val_loss \d\.\d{3}", plain
    )
    assert "3 of 3 trials finished" in plain
    answer = seen[seen.index("Does a tiny") :]
    assert "\x1b[1A" not in answer, "nothing moves any more"


@pytest.mark.parametrize("columns", [80, 140])
def test_tables_fit_the_terminal(done: tuple[Workplace, Finished], columns: int) -> None:
    place = done[0]
    commands = (["show", "tiny"], ["list"], ["plan", "tiny.yaml"], ["kinds"], ["study", "--help"])
    for arguments in (*commands, ["diff", "tiny/baseline", "tiny/norm=none"], ["diff", "tiny.yaml", "tiny/norm=none"]):
        plain = CODES.sub("", on_terminal(place, *arguments, columns=columns))
        assert max(len(line.rstrip()) for line in plain.splitlines()) <= columns
        assert "…" not in plain

"""What a person sees on a terminal: a live display in colour that leaves nothing behind but the answer."""

from __future__ import annotations

import json
import re

import pexpect
import pytest
from cli_runs import Finished, Workplace, series_command

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(place: Workplace, *commands: list[str], columns: int = 100) -> list[str]:
    """What a person sees of each of these commands, run one after the other in one process."""
    program, *arguments = series_command(*commands)
    child = pexpect.spawn(
        program,
        arguments,
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
    shown, ends = seen.split("\x1e")[0:-1:3], seen.split("\x1e")[2:-1:3]
    assert [json.loads(end)[0] for end in ends] == [0] * len(commands)
    return shown


def test_the_live_display_shows_what_trains(place: Workplace) -> None:
    (seen,) = on_terminal(place, ["study", place.space(steps=400, seeds=1), "--workers", "1"])
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m|\x1b\[38;5;", seen), "colour"
    assert "\x1b[?25l" in seen, "the cursor is hidden while it moves"
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")
    plain = CODES.sub("", seen)
    assert "0 of 3 trials" in plain
    assert re.search(
        r"(baseline|values=identity|norm=none) +seed 0 +step \d+/400 +loss \d\.\d{3} +val_loss \d\.\d{3}", plain
    )
    assert "3 of 3 trials finished" in plain
    answer = seen[seen.index("Does a tiny") :]
    assert "\x1b[1A" not in answer, "nothing moves any more"


@pytest.mark.parametrize("columns", [80, 140])
def test_tables_fit_the_terminal(done: tuple[Workplace, Finished], columns: int) -> None:
    place = done[0]
    commands = (["show", "tiny"], ["list"], ["plan", "tiny.yaml"], ["kinds"], ["study", "--help"])
    differences = (["diff", "tiny/baseline", "tiny/norm=none"], ["diff", "tiny.yaml", "tiny/norm=none"])
    for seen in on_terminal(place, *commands, *differences, columns=columns):
        plain = CODES.sub("", seen)
        assert max(len(line.rstrip()) for line in plain.splitlines()) <= columns
        assert "…" not in plain

"""What a person sees on a terminal: a live display in colour that leaves nothing behind but the answer."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import termios
from contextlib import suppress

import pytest
from cli_runs import ABLATE, Finished, Workplace, wait_for

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(place: Workplace, *command: str, columns: int = 100) -> str:
    """What a person sees of a command that succeeds."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    running = place.fork(*command, stdout=theirs, stderr=theirs, place=own_terminal)
    os.close(theirs)
    seen = bytearray()
    with suppress(OSError), open(ours, "rb", buffering=0) as terminal:  # reading fails once nobody has it open
        while part := terminal.read(4096):
            seen += part
    assert wait_for(running).code == 0
    return seen.decode()


def test_the_live_display_shows_running_trials(place: Workplace) -> None:
    seen = on_terminal(place, "study", place.space(steps=400, seeds=1), "--workers", "1")
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m|\x1b\[38;5;", seen), "colour"
    assert "\x1b[?25l" in seen, "the cursor is hidden while it moves"
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")
    plain = CODES.sub("", seen)
    assert "0 of 3 trials" in plain
    assert re.search(r"(baseline|values=identity|norm=none) +0/1 +step \d+/400, loss \d\.\d{3}", plain), (
        "what trains now"
    )
    assert re.search(r"baseline +1/1 +val_loss \d\.\d+ +done", plain), "the mean of what has ended"
    assert "3/3 trials" in plain
    answer = seen[seen.index("Does a tiny") :]
    assert "\x1b[1A" not in answer, "nothing moves any more"


@pytest.mark.parametrize("columns", [80, 140])
def test_tables_fit_the_terminal(done: tuple[Workplace, Finished], columns: int) -> None:
    place = done[0]
    commands = (["show", "tiny"], ["list"], ["plan", "tiny.yaml"], ["kinds"], ["study", "--help"])
    differences = (["diff", "tiny/baseline", "tiny/norm=none"], ["diff", "tiny.yaml", "tiny/norm=none"])
    for command in (*commands, *differences):
        plain = CODES.sub("", on_terminal(place, *command, columns=columns))
        lines = [line.rstrip() for line in plain.splitlines() if ABLATE not in line]  # a command is never broken
        assert max(map(len, lines)) <= columns
        assert "…" not in plain

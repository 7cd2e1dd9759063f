"""Every command where its output cannot be printed, and what a person sees on a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import sys
import termios
import traceback
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

import optuna  # noqa: F401 - once for all commands, which are forked from this process
import pytest
from cli_runs import ABLATE, Finished, Workplace, wait_for

from ablate.cli.app import COMMAND_NAMES, main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a command is a forked process")

SPACE = """\
name: uni
question: "Größe – brauchen wir λ, 块?"
task: {kind: copy, span: 4, symbols: 4, validation_rows: 8}
model: {family: decoder, depth: 1, width: 8, heads: 2, block: pre_ln}
training: {steps: 4, batch_size: 2, save_weights: true, optimizer: {kind: adamw, lr: 3.0e-3}}
switches:
  größe: {kept: {}, λ: {block.skips.mixer: 0}}
  块: {保留: {}, 去归: {block.norm: none}}
design: {kind: leave_one_out, seeds: 2}
objective: {metric: val_loss, margin: 0.05}
claims: [{id: skip, says: λ ist nötig, expect: worse, left: größe=λ, right: baseline, margin: 0.05}]
"""
COMMANDS: dict[tuple[str, ...], int] = {
    ("study", "uni.yaml", "--workers", "1"): 0,
    ("plan", "uni.yaml"): 0,
    ("status",): 0,
    ("list",): 0,
    ("list", "--json"): 0,
    ("check-store",): 0,
    ("show", "uni"): 0,
    ("show", "uni", "--json"): 0,
    ("report", "uni"): 0,
    ("report", "uni", "--format", "md"): 0,
    ("claims", "uni"): 0,
    ("judge", "größe.csv", "--metric", "loss", "--direction", "lower", "--baseline", "λ", "--margin", "0.1"): 0,
    ("calibrate", "uni"): 0,
    ("resume", "größe"): 2,
    ("gate", "uni", "--variant", "größe=λ"): 3,
    ("ideas",): 0,
    ("rename", "größe", "uni"): 2,
    ("delete", "größe"): 2,
    ("export-study", "größe"): 2,
    ("import-study", "größe"): 2,
    ("diff", "uni/baseline", "uni/größe=λ"): 0,
    ("export", "uni", "--optuna", "sqlite:///optuna.db"): 0,
    ("reproduce", "größe"): 2,
    ("evaluate", "größe"): 2,
    ("generate", "größe"): 2,
    ("translate", "größe"): 2,
    ("validate", "uni.yaml"): 0,
    ("validate", "größe.yaml"): 2,
    ("schema",): 0,
    ("data", "uni.yaml"): 0,
    ("kinds",): 0,
    ("cost", "pre_ln", "--width", "8", "--heads", "2", "--context", "8"): 0,
    ("bench", "λ"): 2,
    ("inspect", "λ"): 2,
    ("doctor", "--nothing-of-this-name"): 2,
    ("draw", "pre_ln"): 0,
    ("check-kind", "plain_λ"): 2,
    ("check-transfer", "größe"): 2,
    ("import", "größe"): 2,
    ("new", "größe"): 2,
    ("dashboard", "--port", "λ"): 2,
    ("site", "größe", "λ"): 2,
    ("mcp", "--max-seconds", "λ"): 2,
    ("--help",): 0,
}
"""Every command, and its exit code."""
SLOW = ("schema", "kinds")
"""Commands that are tried in one test alone."""


def run_all(streams: Callable[[], None], commands: Iterable[tuple[str, ...]], ended: int) -> None:
    """In a process of its own: run all commands in turn on these standard streams, and write down how they ended."""
    codes: list[object] = []
    for command in commands:
        streams()
        sys.argv = ["ablate", *command]
        try:
            main()
        except SystemExit as end:
            codes.append(end.code or 0)
        except BaseException:
            codes.append(traceback.format_exc())
        sys.stdout.flush()
    os.write(ended, json.dumps(codes).encode())


def encoded(encoding: str) -> None:
    """Standard streams as Python makes them with this PYTHONIOENCODING."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(number, "wb", closefd=False)), encoding, "strict")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def lost() -> None:
    """No standard input and no standard error, and nobody reads the standard output."""
    reading, writing = os.pipe()
    os.close(reading)
    encoded("ascii")
    os.dup2(writing, 1)
    os.close(writing)
    for number, name in ((0, "stdin"), (2, "stderr")):
        os.close(number)
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)


def ends_of(
    place: Workplace, streams: Callable[[], None], left_out: Collection[str]
) -> tuple[list[tuple[tuple[str, ...], object]], str]:
    """The commands that ended with another exit code than usual, and what all of them printed."""
    commands = {command: code for command, code in COMMANDS.items() if command[0] not in left_out}
    (place.folder / "uni.yaml").write_text(SPACE, encoding="utf-8")
    runs = "".join(f"{name},{seed},{seed + more}\n" for name, more in (("λ", 0.0), ("größe", 0.5)) for seed in range(3))
    (place.folder / "größe.csv").write_text(f"variant,seed,loss\n{runs}", encoding="utf-8")
    ended = place.folder / "ended"

    def run() -> None:
        run_all(streams, commands, os.open(ended, os.O_WRONLY | os.O_CREAT, 0o600))

    running = place.fork(run=run)
    printed = running.communicate()  # of both streams
    assert running.returncode == 0, printed
    codes = json.loads(ended.read_text(encoding="utf-8"))
    others = [(command, code) for command, code in zip(commands, codes, strict=True) if code != commands[command]]
    return others, "".join(printed)


def test_every_command_is_tried() -> None:
    assert {command[0] for command in COMMANDS} == {*COMMAND_NAMES, "--help"}


def test_characters_that_the_stream_cannot_hold_are_replaced(place: Workplace) -> None:
    others, printed = ends_of(place, partial(encoded, "ascii"), ())
    assert others == []
    assert "Gr??e ? brauchen wir ?, ??" in printed
    assert "Traceback" not in printed
    assert len(place.trials("finished")) == 6


def test_streams_that_cannot_be_written_stop_nothing(place: Workplace) -> None:
    others, printed = ends_of(place, lost, SLOW)
    assert others == []
    assert "Traceback" not in printed
    assert len(place.trials("finished")) == 6


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

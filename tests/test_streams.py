"""Printing on standard streams that are closed, full, without a reader, or too small for the characters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ablate

PRINTS = """
import os, subprocess, sys
from ablate.processes import keep_printing, lost_output
keep_printing()
keep_printing()  # again changes nothing
for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
    print("Größe λ 块 \\udce9", file=stream, flush=True)
print("n" * 300_000)
sys.stdout.flush()
subprocess.run([sys.executable, "-ISc", "import os; os.fstat(0); os.fstat(1); os.fstat(2); print('child')"], check=True)
assert sys.stdin.read() == ""
with open(os.devnull) as file:
    assert file.fileno() > 2, "no other file takes the number of a standard stream"
sys.exit(10 + bool(lost_output(sys.stdout)))
"""
TEXT = "Größe λ 块 \udce9\n"


def run(shell: str, *options: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A shell line in which `"$@"` stands for a program that prints."""
    command = ["bash", "-c", shell, "bash", sys.executable, *options, "-c", PRINTS]
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONIOENCODING", "PYTHONUTF8")}
    root = str(Path(ablate.__file__).parents[1])
    return subprocess.run(
        command, env=plain | {"PYTHONPATH": root} | environment, capture_output=True, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    ("encoding", "option"), [("ascii", "-B"), ("ascii", "-u"), ("latin-1", "-B"), ("utf-8", "-B"), ("utf-16-le", "-B")]
)
def test_characters_that_a_stream_cannot_hold_are_replaced(encoding: str, option: str) -> None:
    done = run('"$@"', option, PYTHONIOENCODING=encoding)
    text = TEXT.encode(encoding, "replace")
    assert done.returncode == 10, done.stderr
    assert done.stdout.startswith(2 * text + "n".encode(encoding))
    assert b"child" in done.stdout
    assert TEXT[:2] in done.stderr.decode(encoding, "replace")
    assert b"Error" not in done.stderr


def test_a_handler_that_a_person_chose_is_kept() -> None:
    done = run('"$@"', PYTHONIOENCODING="ascii:xmlcharrefreplace")
    assert done.stdout.startswith(b"Gr&#246;&#223;e")


@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ('"$@" >&-', 10),
        ('"$@" 2>&-', 10),
        ('"$@" <&-', 10),
        ('"$@" <&- >&- 2>&-', 10),
        ('"$@" > /dev/full 2> /dev/full', 11),
        ('("$@"; echo $? > code) | head -c 1; test "$(cat code)" = 10', 0),
        ('("$@" 2>&1 >&3; echo $? > code) 3>&1 | true; test "$(cat code)" = 10', 0),
        ('("$@"; echo $? > code) 1< /dev/null; test "$(cat code)" = 11', 0),  # open for reading alone
    ],
)
def test_a_stream_that_cannot_be_written_ends_the_printing_alone(
    shell: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(shell)
    assert done.returncode == code, done.stderr
    assert b"Error" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_full_pipe_that_does_not_block_is_waited_for() -> None:
    """A program beside ours may make the pipe that they share non-blocking, as node does."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    root = str(Path(ablate.__file__).parents[1])
    code = "from ablate.processes import keep_printing\nkeep_printing()\nprint('n' * 300_000)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": root}
    ) as printing:
        os.close(writing)
        with open(reading, "rb") as pipe:
            assert pipe.read() == b"n" * 300_000 + b"\n"
    assert printing.returncode == 0


def test_every_program_of_ours_keeps_printing() -> None:
    root = Path(ablate.__file__).parent
    programs = [
        file
        for file in (*root.rglob("*.py"), *(root.parent / "dashboard").rglob("*.py"))
        if '\nif __name__ == "__main__":' in file.read_text(encoding="utf-8")
    ]
    names = {str(file.relative_to(root.parent)) for file in programs}
    assert {"ablate/__main__.py", "ablate/execution/worker.py", "ablate/execution/ranks.py"} <= names
    keeps = re.compile(r"^ +keep_printing\(\)|sys\.stdout\.buffer|import main$", re.MULTILINE)
    unsafe = {
        str(file.relative_to(root.parent)) for file in programs if not keeps.search(file.read_text(encoding="utf-8"))
    }
    made_by_developers = {"ablate/stats/calibrate.py", "ablate/trained/hugging_face/settings.py"}
    silent = {"ablate/execution/guard.py"}
    assert unsafe <= made_by_developers | silent, "tables that are part of the package"

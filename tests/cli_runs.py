"""Run commands in a process of their own, as a person would, or in this one; with a space that trains in a second."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest
import torch
from forked_command import ForkedCommand, own_group

from ablate.cli import main
from ablate.cli.app import OLD_COMMANDS
from ablate.render.terminal.outputs import output_schema
from benchmarks.forked_workers import forked_workers

ABLATE = str(Path(sysconfig.get_path("scripts")) / "ablate")
COLOUR = ("FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS", "LINES")

SERIES = """
import json, os, sys
from ablate.cli import main
from ablate.cli.app import OLD_COMMANDS
from ablate.render.terminal.outputs import output_schema
stdout = os.dup(1)
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["ablate", *arguments]
    before = set(sys.modules)
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    console = sys.modules.get("ablate.render.terminal.console")
    if console is not None and console._json_output not in (None, sys.stdout):
        console._json_output.close()  # a command with --json keeps standard output to itself until its process ends
        console._json_output = None
        os.dup2(stdout, 1)
    print(end="\\x1e", flush=True)
    ended = json.dumps([code, sorted(set(sys.modules) - before)])
    print("\\x1e" + ended, end="\\x1e", file=sys.stderr, flush=True)
"""
"""Runs several commands in turn. A record separator (0x1e) ends the output of each; on stderr, the exit code
and the newly imported modules follow."""

SPACE = """\
name: {name}
question: Does a tiny model need its maps?
task: {{kind: language_model, data: "file:text", tokenizer: {{kind: bytes}}, context: 16, validation_windows: 8}}
model: {{family: decoder, depth: 1, width: 16, heads: 2, block: pre_ln}}
training:
  steps: {steps}
  batch_size: 2
  optimizer: {{kind: adamw, lr: 1.0e-2}}
switches:
  values: {{dense: {{}}, identity: {{block.mixer.value: identity}}}}
  norm: {{rms: {{}}, none: {{block.norm: none}}}}
design: {{kind: leave_one_out, seeds: {seeds}}}
objective: {{metric: val_loss, direction: minimize, margin: {margin}}}
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """The exit code of a command, what it printed, and in a series the modules that it was the first to import."""

    code: int
    out: str
    err: str
    imported: tuple[str, ...] = ()

    @property
    def last_object(self) -> dict[str, Any]:
        """The JSON object on the last line of stdout."""
        plain: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return plain


class Workplace:
    """A folder with a text corpus in which commands are run."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.cache = cache
        self.store = folder / "studies" / "ablate.db"
        text = folder / "text"
        text.mkdir()
        numbers = random.Random(0)
        for name in range(8):
            lines = [f"def f{numbers.randrange(99)}(x): return x + {numbers.randrange(999)}\n" for _ in range(30)]
            (text / f"{name}.py").write_text("".join(lines))

    @property
    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name not in COLOUR}
        return plain | {"ABLATE_CACHE": str(self.cache), "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}

    def space(self, name: str = "tiny", *, steps: int = 6, seeds: int = 2, margin: float = 0.05) -> str:
        """Write a space of three variants and return the name of its file."""
        file = self.folder / f"{name}.yaml"
        file.write_text(SPACE.format(name=name, steps=steps, seeds=seeds, margin=margin))
        return file.name

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, as a shell does."""
        return subprocess.Popen(
            [ABLATE, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def run(self, *arguments: str) -> Finished:
        """Run a command to its end as a program: where its start, pipes or imports are tested."""
        return wait_for(self.start(*arguments))

    def fork(
        self,
        *arguments: str,
        stdout: int | None = None,
        stderr: int | None = None,
        place: Callable[[], None] = own_group,
        run: Callable[[], None] = main,
        **environment: str,
    ) -> ForkedCommand:
        """Start a command, or `run`, in a fork of this process: for tests that interrupt it or give it plugins.

        That saves the time in which Python and torch start, twice: the workers of a study are forked too.
        """
        variables = self.environment | environment
        return ForkedCommand([ABLATE, *arguments], self.folder, variables, quick_workers, stdout, stderr, place, run)

    def series(self, *commands: Sequence[str], python: Sequence[str] = (), **environment: str) -> list[Finished]:
        """Run several commands, one after the other, in one process of their own."""
        done = subprocess.run(
            series_command(*commands, python=python),
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outs, errs = done.stdout.split("\x1e")[:-1], done.stderr.split("\x1e")[:-1]
        assert len(outs) == len(commands)
        ends = map(json.loads, errs[1::2])
        return [
            Finished(code, out, err, tuple(imported))
            for out, err, (code, imported) in zip(outs, errs[0::2], ends, strict=True)
        ]

    def call(self, *arguments: str, columns: int | None = None) -> Finished:
        """Run a command to its end within this process, without the time that Python and torch take to start.

        The same holds for the workers of a study; that they start as programs is seen where `run` and `start` are used.
        """
        out, err = io.StringIO(), io.StringIO()
        interrupt = signal.getsignal(signal.SIGINT)
        environment = self.environment | ({} if columns is None else {"COLUMNS": str(columns)})
        try:
            with (
                contextlib.chdir(self.folder),
                patch.dict(os.environ, environment, clear=True),
                patch.object(sys, "argv", [ABLATE, *arguments]),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                quick_workers(),
                pytest.raises(SystemExit) as end,
            ):
                main()
        finally:
            signal.signal(signal.SIGINT, interrupt)
        finished = Finished(int(end.value.code or 0), out.getvalue(), err.getvalue())
        if "--json" in arguments:
            fits_schema(arguments[0], finished)
        return finished

    def shell(self, command: str) -> Finished:
        """Run a line of shell."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the store holds, read without our own code; nothing before there is a store."""
        if not self.store.exists():
            return []
        with closing(sqlite3.connect(self.store, timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def trials(self, state: str) -> dict[str, tuple[Any, ...]]:
        """The trials in a state: key to when they ended, their metrics and their curve."""
        try:
            trials = self.rows(f"SELECT key, finished_at, metrics, steps FROM trials WHERE state = '{state}'")
            return {key: (*rest, *self.curve(key)) for key, *rest in trials}
        except sqlite3.OperationalError:  # no tables yet
            return {}

    def curve(self, key: str) -> list[tuple[Any, ...]]:
        """The learning curve of a trial: step, tokens, training and validation loss."""
        columns = "step, tokens, flops, train_loss, val_loss"
        return self.rows(f"SELECT {columns} FROM curves WHERE trial_key = '{key}' ORDER BY step")


@contextlib.contextmanager
def quick_workers() -> Iterator[None]:
    """Within it workers are forked from this process, where this is possible: on Linux, and not beside a GPU.

    Plans measure the speed of this machine for a moment: by one step of a variant instead of twenty.
    """
    forks = sys.platform == "linux" and not torch.cuda.is_available()
    briefly = patch.multiple("ablate.planning.forecast", _SECONDS=0.0, _MATMUL_SECONDS=0.02)
    with briefly, forked_workers() if forks else contextlib.nullcontext():
        yield


def fits_schema(command: str, finished: Finished) -> None:
    """What a command printed with `--json` is as `ablate schema --output` says, its error too."""
    if finished.out:
        try:
            printed = [json.loads(finished.out)]
        except json.JSONDecodeError:  # a line for each
            printed = [json.loads(line) for line in finished.out.splitlines()]
        for plain in printed:
            _validator(OLD_COMMANDS.get(command, command)).validate(plain)
    if finished.code == 2:
        _validator("error").validate(json.loads(finished.err.splitlines()[-1]))


@cache
def _validator(command: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(output_schema(command))


def series_command(*commands: Sequence[str], python: Sequence[str] = ()) -> list[str]:
    """The command line of a process that runs several commands; `python` holds options of the interpreter."""
    return [sys.executable, *python, "-c", SERIES, json.dumps(commands)]


def wait_for(process: subprocess.Popen[str] | ForkedCommand, timeout: float = 800.0) -> Finished:
    """The end of a command."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Finished(process.returncode, out, err)


def eventually(condition: Callable[[], object], timeout: float = 600.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "this never came to hold"
        time.sleep(0.02)

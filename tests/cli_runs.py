"""Runs the real command in a process of its own, as a person would, on a space that trains in a second."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sysconfig
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ABLATE = str(Path(sysconfig.get_path("scripts")) / "ablate")
COLOUR = ("FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS", "LINES")

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
    """What a command left: exit code and what it printed."""

    code: int
    out: str
    err: str

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
        """Run a command to its end."""
        return wait_for(self.start(*arguments))

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


def wait_for(process: subprocess.Popen[str], timeout: float = 300.0) -> Finished:
    """The end of a command."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Finished(process.returncode, out, err)


def eventually(condition: Callable[[], object], timeout: float = 180.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "this never came to hold"
        time.sleep(0.02)

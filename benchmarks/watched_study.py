"""A tiny study whose processes are killed: it is started, waited for and read. `Watch` tells whether a run hangs."""

from __future__ import annotations

import os
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import alembic.context  # noqa: F401 - a driver needs it
import psutil
import torch
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

import ablate
from ablate.cli import main as ablate_main
from ablate.errors import AblateError
from ablate.store import TrialRecord, TrialState, open_store
from benchmarks.forked_workers import FORKED, forked_workers
from benchmarks.scheduling import scheduled, told

_PATIENCE = 180.0
"""Seconds after which a run of a study hangs, without those in which its processes waited for a core. It takes less
than ten where it has one to itself."""
_LONGEST = 900.0
"""Seconds after which it hangs in any case."""
_CPU_SECONDS = 120.0
"""Seconds of processor time after which a run hangs. It takes five, or twenty with Ray."""
_RUNS = 5
"""Most times that the command is run again."""
_ROWS = 20
"""Rows of metrics that the trainer of `OWN_TRAINER` writes."""
_WORKER = re.compile(r"-m ablate\.[a-z.]*worker |^ray::(JobTrainable|IDLE)")
"""In the command line of a worker of the local engine, or of a process of Ray that trains or is about to."""
_PRELOADED = ("cli", "execution", "kinds", "nn", "planning", "render", "spec", "tasks", "trained", "training")
"""The packages of ablate that drivers and workers import."""

OWN_MODEL = """\
name: tiny
question: Does a tiny model need its maps?
task: {kind: recall, context: 16, pairs: 2, symbols: 64, validation_rows: 16}
model: {family: decoder, depth: 1, width: 16, heads: 2, block: pre_ln}
training: {steps: 40, batch_size: 4, optimizer: {kind: adamw, lr: 1.0e-2}}
switches:
  rate: {usual: {}, small: {training.optimizer.lr: 1.0e-3}}
  values: {dense: {}, identity: {block.mixer.value: identity}}
design: {kind: leave_one_out, seeds: 4}
objective: {metric: val_loss, direction: minimize, margin: 0.05}
"""
_COMMAND = '["{python}", train.py, "{rate}", "{values}", "{seed}", "{checkpoint}"]'
OWN_TRAINER = f"""\
name: tiny
question: Does a trainer of its own survive?
trainer:
  command: {_COMMAND}
  parameters: {{rate: usual, values: dense}}
  metrics: {{file: "{{checkpoint}}/metrics.jsonl"}}
  steps: {_ROWS}
switches:
  rate: {{usual: {{}}, small: {{rate: small}}}}
  values: {{dense: {{}}, identity: {{values: identity}}}}
design: {{kind: leave_one_out, seeds: 4}}
objective: {{metric: val_loss, direction: minimize, margin: 0.05}}
"""
_TRAINER = f"""\
import json, os, random, sys, time

numbers, kept = random.Random(repr(sys.argv[1:4])), sys.argv[4] + "/step"
begin = int(open(kept).read()) if os.path.exists(kept) else 0
losses = [numbers.random() for _ in range({_ROWS})]
for step in range(begin, {_ROWS}):
    time.sleep(0.02)
    with open(sys.argv[4] + "/metrics.jsonl", "a") as file:
        print(json.dumps({{"step": step + 1, "val_loss": losses[step]}}), file=file)
    with open(kept + ".new", "w") as file:
        file.write(str(step + 1))
    os.replace(kept + ".new", kept)
"""
"""A script that goes on from where it was killed, and writes a row again if it was killed after the row."""


class HangError(Exception):
    """A run took longer than it may."""


_FORKS = get_context("forkserver")


def preload(*, ray: bool = False) -> None:
    """Let the process that drivers are forked from import what drivers and workers need, those on Ray too."""
    modules = [__name__]
    for package in _PRELOADED:
        found = pkgutil.walk_packages([str(Path(ablate.__path__[0]) / package)], f"ablate.{package}.")
        modules += [one.name for one in found if not one.name.startswith("ablate.execution.ray")]
    if ray:
        modules += ["ray.tune", "ablate.execution.ray.engine"]
    _FORKS.set_forkserver_preload([name for name in modules if not name.endswith("__main__")])


def _drive(line: Sequence[str], folder: str, own_interpreters: bool) -> None:
    """Become a driver: the command line, in a session and a folder of its own."""
    os.setsid()
    os.chdir(folder)
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    sys.argv = ["ablate", *line]
    with nullcontext() if own_interpreters else forked_workers():
        ablate_main()


class Study:
    """The study in a folder of its own, with a store.

    Attributes:
        text: Of the space file.
        beside: Others whose trials must be those of this one, and their processes.

    Args:
        folder: Made here.
        options: Of the command.
        store: A path or a URL.
        own_interpreters: Whether workers are started with an interpreter of their own.
        name: Studies of different names have the same trials.
        space: `OWN_MODEL` or `OWN_TRAINER`.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        store: str,
        own_interpreters: bool = False,
        name: str = "tiny",
        space: str = OWN_MODEL,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.store = store
        self.name = name
        self.options = options
        self.cache = folder.parent.parent / "cache"
        self.beside: list[tuple[Study, BaseProcess | None]] = []
        self._own_interpreters = own_interpreters
        self._space = folder / "space.yaml"
        self._line = ["study", self._space.name, "--store", store, *options, "--cache", str(self.cache)]
        self.text = space.replace("tiny", name, 1)
        self.write_space(self.text)
        (folder / "train.py").write_text(_TRAINER)

    def write_space(self, text: str) -> None:
        """Replace the text of the space file."""
        self._space.write_text(text)

    def halve_space(self) -> None:
        """Leave half of the space file, as an editor does that is saving it."""
        self.write_space(self.text[: len(self.text) // 2])

    def start(self) -> BaseProcess:
        """Start the command in a process of its own."""
        process = _FORKS.Process(target=_drive, args=(self._line, str(self.folder), self._own_interpreters))
        process.start()
        return process

    def wait(self, process: BaseProcess) -> int:
        """The exit code of a run.

        Raises:
            HangError: It does not end, or takes more of the processor than it may.
        """
        watch = Watch()
        while process.exitcode is None:
            process.join(1.0)
            if process.exitcode is None and watch.is_late():
                kill_family(process)
                raise HangError(watch.told())
        return process.exitcode

    def finish(self) -> int:
        """Run the command until it has nothing left to do; the last exit code."""
        self.write_space(self.text)
        code = -1
        for _ in range(_RUNS):
            code = self.wait(self.start())
            if code == 0:
                break
        return code

    def trials(self) -> dict[str, TrialRecord]:
        """The trials that have finished, by key; none where there is no store yet, or where it does not answer."""
        with suppress(AblateError), open_store(self.store, create=False) as store:
            keys = [planned.key for planned in store.study(self.name).planned]
            return {key: one for key, one in store.trials(keys).items() if one.state is TrialState.FINISHED}
        return {}

    def end_rivals(self) -> None:
        """End the processes of those beside."""
        for _, process in self.beside:
            if process is not None:
                kill_family(process)

    @property
    def output(self) -> str:
        """All that its runs have printed."""
        output = self.folder / "output"
        return output.read_text(errors="replace") if output.exists() else ""


@contextmanager
def finished_count(store: str) -> Iterator[Callable[[], int]]:
    """A function that counts the finished trials of a store, at a fraction of the time of opening it."""
    url = store if "://" in store else f"sqlite:///file:{store}?mode=ro&uri=true"
    engine: Engine = create_engine(url, poolclass=NullPool)

    def count() -> int:
        with suppress(SQLAlchemyError), engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM trials WHERE state = 'finished'")).scalar_one())
        return 0

    yield count
    engine.dispose()


class Watch:
    """Tells a run that hangs from one whose machine is busy, by what all processes of the campaign use.

    Args:
        patience: Seconds that it may take, without those in which a process was ready and others had the cores.
        longest: Seconds that it may take in any case.
        cpu: Seconds of processor time that it may take.
    """

    def __init__(self, patience: float = _PATIENCE, longest: float = _LONGEST, cpu: float = _CPU_SECONDS) -> None:
        self._patience, self._longest, self._cpu = patience, longest, cpu
        self._begun, self._before = time.monotonic(), _scheduled()
        self._used = {**self._before}

    def is_late(self) -> bool:
        """Whether it takes longer than it may."""
        self._used |= {pid: now for pid, now in _scheduled().items() if any(now)}
        seconds, ran, waited = self._totals()
        return seconds > min(self._longest, self._patience + waited) or ran > self._cpu

    def told(self) -> str:
        """What it has used."""
        return told(*self._totals())

    def _totals(self) -> tuple[float, float, float]:
        used = [(*now, *self._before.get(pid, (0.0, 0.0))) for pid, now in self._used.items()]
        ran = sum(now - then for now, _, then, _ in used)
        waited = sum(now - then for _, now, _, then in used)
        return time.monotonic() - self._begun, ran, waited


def _scheduled() -> dict[int, tuple[float, float]]:
    """What each process that this one has started was given."""
    return {one.pid: scheduled(one.pid) for one in psutil.Process().children(recursive=True)}


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it has started, if it lives."""
    try:
        found = psutil.Process(pid)
        return [found, *found.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_family(process: BaseProcess) -> None:
    """End a process and all that it has started."""
    for one in family(process.pid or 0):
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.join()


def is_worker(process: psutil.Process) -> bool:
    """Whether a process trains, or is about to."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return process.name() == FORKED or _WORKER.search(" ".join(process.cmdline())) is not None
    return False


def is_trainer(process: psutil.Process) -> bool:
    """Whether a process is the script of `OWN_TRAINER`."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return bool(process.cmdline()[1:2] == ["train.py"])
    return False

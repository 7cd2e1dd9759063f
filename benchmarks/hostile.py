"""Hostile input: shipped spaces, blocks, claims, stores, data and command lines, changed at random.

`python -m benchmarks hostile [--quick] [--json] [--cases N] [--seed N]`. Each case is one call of the command line in a
process of its own, which may take 10 s and 2 GB. It must end with exit code 0 or 2 (or one that the command documents),
without a traceback, and leave the store that it only reads as it was. The exit code is 1 if a case does not.
`--only configurations` tries configurations of models of `transformers` in its place (`hostile_configurations.py`).
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ablate.cli import main as ablate_main
from ablate.execution.driver import run_study
from ablate.execution.engine import Observer
from ablate.planning.planner import Planner
from ablate.spec.reading import load_space
from ablate.store import Environment, open_store
from benchmarks.driver import InstantEngine
from benchmarks.forked_process import exit_as_program
from benchmarks.hostile_cases import IMPORT, LINES, TINY, Case, around, cases
from benchmarks.hostile_configurations import FAULTS, in_words, walk
from benchmarks.hostile_printing import NAMED, printing_cases
from benchmarks.hostile_surroundings import surrounding_cases
from benchmarks.scheduling import scheduled, told

SECONDS = 10.0
BYTES = 2 << 30
CASES = 10_000
CONFIGURATIONS = 100
QUICK_SECONDS = 110.0
_TOGETHER = 250
"""Cases that are drawn from one seed; the next are drawn from the next seed."""
OTHERS = ((printing_cases, NAMED), (surrounding_cases, TINY))
"""Further cases, each with the space whose study their store holds."""
_ALLOWED = {0, 2}
_VERDICTS = {"claims": {1}, "diff": {1}}
"""Commands whose exit code 1 is an answer: a claim is refuted, two things differ."""


@dataclass(slots=True)
class Tally:
    """What a campaign has counted."""

    tried: int = 0
    lost: int = 0
    hangs: int = 0
    tracebacks: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    worst: list[str] = field(default_factory=list)

    def add(self, kind: str, verdict: str) -> None:
        """Count a case, and what went wrong with it: `lost`, `hangs` or `tracebacks`."""
        self.tried += 1
        self.kinds[kind] += 1
        if verdict != "tried":
            setattr(self, verdict, getattr(self, verdict) + 1)

    def __iadd__(self, other: Tally) -> Tally:
        """Add what another part of the campaign has counted."""
        for name, count in other.counts().items():
            setattr(self, name, getattr(self, name) + count)
        self.kinds += other.kinds
        self.worst += other.worst
        return self

    def counts(self) -> dict[str, int]:
        """The four numbers that are printed."""
        return {"tried": self.tried, "lost": self.lost, "hangs": self.hangs, "tracebacks": self.tracebacks}

    def table(self) -> str:
        """How many cases of each kind were tried, and the four numbers."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.kinds.items()))
        return f"{kinds}\n{', '.join(f'{name} {count:,}' for name, count in self.counts().items())}"


def tiny_store(folder: Path, space: str = TINY) -> bytes:
    """A store with the study of a space, whose trials have all finished."""
    (folder / "text").mkdir(parents=True)
    for name in "ab":
        (folder / "text" / f"{name}.txt").write_text(f"This is text {name}, of some length. " * 40)
    file = folder / "tiny.yaml"
    file.write_text(space.replace("file:text", f"file:{folder}/text"), encoding="utf-8")
    path = folder / "studies.db"
    with open_store(path) as store, InstantEngine() as engine:
        planner = Planner(load_space(file), folder / "cache", lambda line: None)
        run_study(
            planner, store, engine, Environment({"python": "3.x"}, "cpu: none", "here", None, None, ""), Observer()
        )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def preload(folder: Path, store: bytes) -> None:
    """Call every line once, so that what they import is there for all processes that are forked from this one."""
    torch.set_num_threads(1)
    place = folder / "work"
    for name, content in around(store).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    (place / "m" / "model.safetensors").write_bytes(bytes(8))  # read after what reads a model has been imported
    before = os.getcwd(), sys.argv
    os.chdir(place)
    for line in (*LINES, IMPORT, ("import", "m", "--config-only"), ("import", "m")):
        sys.argv = ["ablate", *line]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
            ablate_main()
    os.chdir(before[0])
    sys.argv = before[1]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a case ended.

    Attributes:
        code: Exit code; None if it was killed for its time or its memory, and `left` says for which.
        error: What it wrote to stderr.
        left: What was changed that should not be; empty if nothing was.
    """

    code: int | None
    error: str
    left: str = ""

    def verdict(self, case: Case) -> str:
        """`tried` if all is well, else the count that it belongs to."""
        allowed = _ALLOWED | _VERDICTS.get(case.arguments[0] if case.arguments else "", set())
        if self.code is None:
            return "hangs"
        if self.code not in allowed or "Traceback (most recent call last)" in self.error:
            return "tracebacks"
        return "lost" if self.left else "tried"


def run_case(case: Case, folder: Path, seconds: float = SECONDS) -> Ending:
    """Call the command line in a process of its own, in a folder that is empty but for the files of the case."""
    work = folder / "work"
    work.mkdir(parents=True)
    for name, content in case.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (work / name).write_bytes(content)
        else:
            content.make(work / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold nothing that a case needs
        pid = os.fork()
    if pid == 0:
        exit_as_program(partial(_call, case, work, folder), failed=99)
    code, why = _awaited(pid, seconds)
    error = (folder / "stderr").read_text(errors="replace")
    store = work / "studies" / "ablate.db"
    before = case.files.get("studies/ablate.db")
    if not why and isinstance(before, bytes) and (not store.is_file() or store.read_bytes() != before):
        why = "the store was changed"
    outside = {path.name for path in folder.iterdir()} - {"work", "stdout", "stderr", "cache"}
    return Ending(code, error, f"written outside: {outside}" if outside and not why else why)


def _call(case: Case, work: Path, folder: Path) -> None:
    """The forked process: becomes the command line."""
    os.setsid()
    os.chdir(work)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
    os.environ["ABLATE_CACHE"] = str(folder / "cache")
    case.surroundings.apply(case.arguments)
    case.streams.apply()
    sys.argv = ["ablate", *case.arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ablate_main()


def _awaited(pid: int, seconds: float) -> tuple[int | None, str]:
    """The exit code of a process; None, and the reason, if it had to be killed.

    The time that it was ready to run and other processes had the cores does not count.
    """
    begun, pause = time.monotonic(), 0.002
    process = psutil.Process(pid)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), ""
        why, now = "", time.monotonic() - begun
        if now > seconds:
            ran, waited = scheduled(pid)
            why = told(now, ran, waited) if now - waited > seconds else ""
        if (size := process.memory_info().rss) > BYTES:
            why = f"it uses {size / 2**30:.1f} GiB"
        if why:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None, why
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


class _EnoughError(Exception):
    """The time limit of a quick campaign was reached."""


def sample(
    strategy: st.SearchStrategy[Case],
    number: int,
    seed_: int,
    folder: Path,
    seconds: float = math.inf,
    patience: float = SECONDS,
) -> Tally:
    """Try so many cases.

    Args:
        strategy: What is tried.
        number: How many.
        seed_: Of what is drawn; the same seed gives the same cases.
        folder: Where they run; those that ended badly stay there.
        seconds: When to end before all were tried.
        patience: Seconds that a case may take.
    """
    tally, end = Tally(), time.monotonic() + seconds

    @seed(seed_)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def attempt(case: Case) -> None:
        if time.monotonic() > end:
            raise _EnoughError
        place = folder / str(tally.tried)
        ending = run_case(case, place, patience)
        verdict = ending.verdict(case)
        tally.add(case.kind, verdict)
        if verdict == "tried":
            shutil.rmtree(place)
        else:
            last = (ending.error.strip().splitlines() or ["nothing on stderr"])[-1][:200]
            line = " ".join(map(repr, case.arguments))[:200]
            tally.worst.append(f"{verdict}: {place}: ablate {line}: exit code {ending.code}: {ending.left or last}")

    with suppress(_EnoughError):
        attempt()
    return tally


def campaign(arguments: Sequence[str]) -> int:
    """Run a campaign and print its counts; the exit code is 1 if anything was lost, hung or ended in a traceback."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hostile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes at most")
    parser.add_argument("--json", action="store_true", help="print the four counts as JSON")
    parser.add_argument("--cases", type=int, help=f"default: {CASES:,}; of configurations {CONFIGURATIONS}")
    parser.add_argument("--only", choices=["configurations"], help="what to try instead of everything else")
    parser.add_argument("--kinds", help="cases of these kinds alone: KIND,KIND")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a file to which the counts are written as they come")
    asked = parser.parse_args(arguments)
    end = time.monotonic() + (QUICK_SECONDS if asked.quick else math.inf)
    folder = Path(tempfile.mkdtemp(prefix="ablate-hostile-"))
    if asked.only is not None:
        return _try_configurations(asked.cases or CONFIGURATIONS, asked.seed, folder, end, as_json=asked.json)
    number_of_cases = asked.cases or CASES
    store = tiny_store(folder / "prepared")
    tried = cases(store, None if asked.kinds is None else asked.kinds.split(","))
    if asked.kinds is None:
        tried = st.one_of(tried, *(make(tiny_store(folder / make.__name__, of)) for make, of in OTHERS))
    preload(folder / "preload", store)
    tally = Tally()
    for part in range(-(-number_of_cases // _TOGETHER)):
        number = min(_TOGETHER, number_of_cases - part * _TOGETHER)
        place = folder / "cases" / str(part)
        tally += sample(tried, number, asked.seed + part, place, end - time.monotonic(), SECONDS)
        if asked.log is not None:
            asked.log.write_text("\n".join([*tally.worst, tally.table()]) + "\n")
        if time.monotonic() > end:
            break
    for line in tally.worst:
        print(line, file=sys.stderr)
    print(json.dumps(tally.counts()) if asked.json else f"seed {asked.seed}\n{tally.table()}")
    if not tally.worst:
        shutil.rmtree(folder)
    return 1 if tally.worst else 0


def _try_configurations(cases: int, seed_: int, folder: Path, end: float, *, as_json: bool) -> int:
    tell = partial(print, file=sys.stderr, flush=True)
    counts = walk(cases, seed_, folder / "configurations", tell, end)
    print(json.dumps(counts) if as_json else f"seed {seed_}\n{in_words(counts)}")
    if counts["exact"] + counts["refused"] == sum(counts.values()):
        shutil.rmtree(folder)
    return 1 if any(counts[verdict] for verdict in FAULTS) else 0

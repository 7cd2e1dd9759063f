"""Kills at random moments: drivers, workers and the database of tiny studies, each compared with one left alone.

`python -m benchmarks faults [--quick] [--json] [--kills N] [--seed N] [--ways single,packed,ray,postgresql]`. A study
is started, one of its processes is killed, and the command is run again until it ends. Then every trial must be
finished, with the results of the study that was left alone; one that was finished when the driver was killed must be
as it was stored then. The exit code is 1 if a trial was lost, trained twice or differs, if a run hangs, or if one shows
a traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text

from ablate.errors import AblateError
from ablate.store import TrialRecord, TrialState, open_store
from tests.postgres import schema, server

KILLS = 500
QUICK_SECONDS = 110.0
_PATIENCE = 180.0
"""Seconds after which a run of a study hangs."""
_RUNS = 5
"""Most times that the command is run again."""
_CLOSE = 1e-6
"""Relative difference of losses that a study after a fault may show: members of a pack change the last digits."""

_SPACE = """\
name: tiny
question: Does a tiny model need its maps?
task: {kind: recall, context: 16, pairs: 2, validation_rows: 16}
model: {family: decoder, depth: 1, width: 16, heads: 2, block: pre_ln}
training: {steps: 60, batch_size: 4, optimizer: {kind: adamw, lr: 1.0e-2}}
switches:
  rate: {usual: {}, small: {training.optimizer.lr: 1.0e-3}}
  values: {dense: {}, identity: {block.mixer.value: identity}}
design: {kind: leave_one_out, seeds: 4}
objective: {metric: val_loss, direction: minimize, margin: 0.05}
"""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a study.

    Attributes:
        options: Of `ablate study`.
        victims: What can be killed.
    """

    options: tuple[str, ...]
    victims: tuple[str, ...]


WAYS = {
    "single": Way(("--pack", "1", "--workers", "2"), ("driver", "worker")),
    "packed": Way(("--pack", "4", "--workers", "2"), ("driver", "worker")),
    "ray": Way(("--engine", "ray", "--address", "local"), ("driver", "worker")),
    "postgresql": Way(("--pack", "1", "--workers", "2"), ("driver", "worker", "database")),
}


@dataclass(slots=True)
class Tally:
    """What a campaign has counted.

    Attributes:
        digits: Trials whose loss differs from that of the study left alone, by less than counts as lost.
        kinds: Kills by way and victim.
        worst: What went wrong, one line each.
    """

    tried: int = 0
    lost: int = 0
    hangs: int = 0
    tracebacks: int = 0
    digits: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    worst: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """The four numbers that are printed."""
        return {"tried": self.tried, "lost": self.lost, "hangs": self.hangs, "tracebacks": self.tracebacks}


class _HangError(Exception):
    """A run took longer than it may."""


class Study:
    """The study in a folder of its own, with a store.

    Args:
        folder: Made here.
        way: How it is run.
        store: A path or a URL.
    """

    def __init__(self, folder: Path, way: Way, store: str) -> None:
        folder.mkdir(parents=True)
        (folder / "tiny.yaml").write_text(_SPACE)
        self.folder = folder
        self.store = store
        self._line = [sys.executable, "-m", "ablate", "study", "tiny.yaml", "--store", store, *way.options]
        self._line += ["--cache", str(folder.parent / "cache")]
        self.errors = ""

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command in a session of its own."""
        with (self.folder / "output").open("ab") as output:
            return subprocess.Popen(
                self._line,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of a run.

        Raises:
            _HangError: It does not end.
        """
        try:
            return process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            for one in _family(process.pid):
                one.kill()
            process.wait()
            raise _HangError from None

    def finish(self) -> int:
        """Run the command until it has nothing left to do; the last exit code."""
        code = -1
        for _ in range(_RUNS):
            code = self.wait(self.start())
            if code == 0:
                break
        return code

    def trials(self) -> dict[str, TrialRecord]:
        """The trials that have finished, by key; none where there is no store yet, or where it does not answer."""
        with suppress(AblateError), open_store(self.store, create=False) as store:
            keys = [planned.key for planned in store.study("tiny").planned]
            return {key: one for key, one in store.trials(keys).items() if one.state is TrialState.FINISHED}
        return {}

    @property
    def output(self) -> str:
        """All that its runs have printed."""
        return (self.folder / "output").read_text(errors="replace")


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(victim: str, process: subprocess.Popen[bytes], url: str, numbers: random.Random) -> bool:
    """Kill the driver, one of its workers, or all connections of the database; False if none lives."""
    if victim == "database":
        engine = create_engine(url)
        with engine.connect() as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.execute(text(f"{others} AND backend_type = 'client backend'"))
        engine.dispose()
        return process.poll() is None
    family = _family(process.pid)
    found = family[:1] if victim == "driver" else [one for one in family[1:] if _trains(one)]
    if not found:
        return False
    with suppress(psutil.NoSuchProcess):
        numbers.choice(found).send_signal(signal.SIGKILL)
        return True
    return False


def _trains(process: psutil.Process) -> bool:
    """Whether a process is a worker: of the local engine, or an actor of Ray."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        line = " ".join(process.cmdline())
        return "ablate.execution.worker" in line or line.startswith("ray::")
    return False


@contextmanager
def _store(way: str, folder: Path, url: str | None) -> Iterator[str]:
    if way != "postgresql" or url is None:
        yield str(folder / "store.db")
        return
    with schema(url) as inside:
        yield inside


def compare(before: dict[str, TrialRecord], after: dict[str, TrialRecord], alone: dict[str, TrialRecord]) -> list[str]:
    """What was lost: trials that are missing, were trained twice, or differ from those of the study left alone."""
    found = [f"{key[:8]} is missing" for key in alone.keys() - after.keys()]
    found += [f"{key[:8]} was trained twice" for key, one in before.items() if after.get(key) != one]
    for key in alone.keys() & after.keys():
        for metric, value in alone[key].metrics.items():
            if abs(after[key].metrics[metric] - value) > _CLOSE * abs(value) and "second" not in metric:
                found.append(f"{key[:8]}: {metric} is {after[key].metrics[metric]!r} and was {value!r}")
    return found


def strike(
    name: str, folder: Path, alone: tuple[dict[str, TrialRecord], float], url: str | None, numbers: random.Random
) -> tuple[str, list[str], int]:
    """One fault: what was killed, what went wrong (a word, then what), and how many trials have other last digits."""
    way = WAYS[name]
    victim = numbers.choice(way.victims)
    expected, seconds = alone
    with _store(name, folder, url) as store:
        study = Study(folder / "study", way, store)
        process = study.start()
        moment = time.monotonic() + numbers.uniform(0.3, 1.0) * seconds
        while time.monotonic() < moment and process.poll() is None:
            time.sleep(0.01)
        # From here on a worker may not be there yet, or no more: then the kill is tried a little later.
        while process.poll() is None and not kill(victim, process, store, numbers):
            time.sleep(0.05)
        before = {} if victim != "driver" else study.trials()
        try:
            study.wait(process)
            code = study.finish()
        except _HangError:
            return victim, ["hangs a run did not end"], 0
        after = study.trials()
        wrong = [f"lost {said}" for said in compare(before, after, expected)]
        if code:
            wrong.append(f"lost the last run ended with exit code {code}")
        if "Traceback (most recent call last)" in study.output:
            wrong.append("tracebacks in the output of a run")
        digits = sum(after[key].metrics != one.metrics for key, one in expected.items() if key in after)
        return victim, wrong, digits


def left_alone(name: str, folder: Path, url: str | None) -> tuple[dict[str, TrialRecord], float]:
    """The trials of a study that nothing happens to, and its seconds; run twice, as the first prepares the data."""
    seconds = 0.0
    for place in ("first", "second"):
        begun = time.monotonic()
        with _store(name, folder / place, url) as store:
            study = Study(folder / place / "study", WAYS[name], store)
            if study.finish():
                raise RuntimeError(f"the study left alone failed:\n{study.output}")
            found = study.trials()
        seconds = time.monotonic() - begun
    return found, seconds


def campaign(arguments: Sequence[str]) -> int:
    """Run a campaign and print its counts; the exit code is 1 if anything was lost, hung or ended in a traceback."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes at most")
    parser.add_argument("--json", action="store_true", help="print the four counts as JSON")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", default="", help=f"of {', '.join(WAYS)}; all but ray with --quick")
    asked = parser.parse_args(arguments)
    ways = asked.ways.split(",") if asked.ways else [name for name in WAYS if not (asked.quick and name == "ray")]
    numbers, tally = random.Random(asked.seed), Tally()
    end = time.monotonic() + (QUICK_SECONDS if asked.quick else float("inf"))
    folder = Path(tempfile.mkdtemp(prefix="ablate-faults-"))
    with ExitStack() as stack:
        url = stack.enter_context(server()) if "postgresql" in ways else None
        alone = {name: left_alone(name, folder / name, url) for name in ways}
        while tally.tried < asked.kills and (time.monotonic() < end or not tally.tried):
            name = ways[tally.tried % len(ways)]
            place = folder / str(tally.tried)
            victim, wrong, digits = strike(name, place, alone[name], url, numbers)
            tally.tried += 1
            tally.digits += digits
            tally.kinds[f"{name} {victim}"] += 1
            for word in {said.partition(" ")[0] for said in wrong}:
                setattr(tally, word, getattr(tally, word) + 1)
            tally.worst += [f"{name}, {victim} killed, {place}: {said}" for said in wrong]
            if not wrong:
                shutil.rmtree(place)
    for line in tally.worst:
        print(line, file=sys.stderr)
    if asked.json:
        print(json.dumps(tally.counts()))
    else:
        print(", ".join(f"{kind} {count:,}" for kind, count in sorted(tally.kinds.items())))
        print(f"{tally.digits:,} trials differ from the study left alone in their last digits")
        print(", ".join(f"{name} {count:,}" for name, count in tally.counts().items()))
    if not tally.worst:
        shutil.rmtree(folder)
    return 1 if tally.worst else 0

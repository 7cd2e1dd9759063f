"""Kills at random moments: drivers, workers, databases and Ray nodes of tiny studies, compared with one left alone.

`python -m benchmarks faults [--quick] [--json] [--kills N] [--seed N] [--ways single,packed,postgresql,ray]`. A study
is started, something is killed, and the command is run again until it ends. Then every trial must be finished, with the
results of the study that was left alone; one that was finished when something was killed must be as it was stored then.
The exit code is 1 if a trial was lost, trained twice or differs, if a run hangs, or if one shows a traceback.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import alembic.context  # noqa: F401 - a driver needs it
import psutil
import torch  # noqa: F401 - a driver needs it
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from ablate.api import run
from ablate.cli import main as ablate_main
from ablate.cli.study import study as study_command
from ablate.errors import AblateError
from ablate.render.table import print_study
from ablate.render.terminal.live import Display
from ablate.store import TrialRecord, TrialState, open_store
from tests.postgres import Server, installed, running, schema

KILLS = 500
QUICK_SECONDS = 90.0
_PATIENCE = 180.0
"""Seconds after which a run of a study hangs, without those in which its processes waited for a core. It takes less
than ten where it has one to itself."""
_LONGEST = 3600.0
"""Seconds after which it hangs in any case."""
_RUNS = 5
"""Most times that the command is run again."""
_CLOSE = 1e-6
"""Relative difference of losses that a study after a fault may show: members of a pack change the last digits."""
_NOBODY = "nobody"
"""In place of a victim: the study had ended before anything was killed."""
_WORKER = re.compile(r"-m ablate\.[a-z.]*worker |^ray::(JobTrainable|IDLE)")
"""In the command line of a worker of the local engine, or of a process of Ray that trains or is about to."""

_SPACE = """\
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


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a study.

    Attributes:
        options: Of `ablate study`.
        victims: What can be killed; `connections` are those of the database.
    """

    options: tuple[str, ...]
    victims: tuple[str, ...]


WAYS = {
    "single": Way(("--pack", "1", "--workers", "1"), ("driver", "worker")),
    "packed": Way(("--pack", "4", "--workers", "2"), ("driver", "worker")),
    "postgresql": Way(("--pack", "1", "--workers", "1"), ("driver", "worker", "connections", "database")),
    "ray": Way(("--engine", "ray", "--pack", "1"), ("driver", "worker", "node")),
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

    def table(self) -> str:
        """The kills by way and victim, and all counts."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.kinds.items()))
        digits = f"{self.digits:,} trials differ from the study left alone in their last digits"
        return f"{kinds}\n{digits}\n{', '.join(f'{name} {count:,}' for name, count in self.counts().items())}"


class _HangError(Exception):
    """A run took longer than it may."""


# Drivers are forked from a process that has imported this module and so most of what they need: imports would be most
# of a run's time.
_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload([__name__, *(one.__module__ for one in (run, study_command, print_study, Display))])


def _drive(line: Sequence[str], folder: str) -> None:
    """Become a driver: the command line, in a session and a folder of its own."""
    os.setsid()
    os.chdir(folder)
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.argv = ["ablate", *line]
    ablate_main()


class Study:
    """The study in a folder of its own, with a store.

    Args:
        folder: Made here.
        options: Of the command.
        store: A path or a URL.
    """

    def __init__(self, folder: Path, options: Sequence[str], store: str) -> None:
        folder.mkdir(parents=True)
        (folder / "tiny.yaml").write_text(_SPACE)
        self.folder = folder
        self.store = store
        self._line = ["study", "tiny.yaml", "--store", store, *options, "--cache", str(folder.parent.parent / "cache")]

    def start(self) -> BaseProcess:
        """Start the command in a process of its own."""
        process = _FORKS.Process(target=_drive, args=(self._line, str(self.folder)))
        process.start()
        return process

    def wait(self, process: BaseProcess) -> int:
        """The exit code of a run.

        Raises:
            _HangError: It does not end.
        """
        begun, before = time.monotonic(), _waited()
        waited = {**before}
        while process.exitcode is None:
            process.join(1.0)
            waited |= _waited()
            patience = _PATIENCE + sum(waited.values()) - sum(before.values())
            if time.monotonic() - begun < min(_LONGEST, patience):
                continue
            for one in _family(process):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            process.join()
            raise _HangError
        return process.exitcode or 0

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


def _family(process: BaseProcess) -> list[psutil.Process]:
    try:
        found = psutil.Process(process.pid)
        return [found, *found.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _waited() -> dict[int, float]:
    """Seconds that each process of the campaign has been ready to run while others had the cores."""
    seconds = {}
    for one in psutil.Process().children(recursive=True):
        with suppress(OSError, IndexError):
            seconds[one.pid] = int(Path(f"/proc/{one.pid}/schedstat").read_text().split()[1]) / 1e9
    return seconds


def _is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return _WORKER.search(" ".join(process.cmdline())) is not None
    return False


class RayCluster:
    """A cluster on this machine: a head that trains nothing, and two nodes of one core."""

    def __init__(self) -> None:
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_raylet_start_wait_time_s": "300",  # where other programs have the cores
        }
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head | {"object_store_memory": 80_000_000})
        self._nodes = [self._added() for _ in range(2)]

    def _added(self) -> Any:
        return self._cluster.add_node(num_cpus=1, num_gpus=0, object_store_memory=80_000_000)

    @property
    def address(self) -> str:
        """Where a driver connects."""
        address: str = self._cluster.address
        return address

    def workers(self) -> list[psutil.Process]:
        """The workers of all nodes."""
        found = []
        for node in self._nodes:
            with suppress(psutil.NoSuchProcess):
                raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
                found += [one for one in raylet.children(recursive=True) if _is_worker(one)]
        return found

    def lose_node(self, numbers: random.Random) -> None:
        """Kill all processes of one node; another one joins."""
        lost = self._nodes.pop(numbers.randrange(2))
        self._cluster.remove_node(lost, allow_graceful=False)
        self._nodes.append(self._added())

    def close(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


class Bench:
    """What the studies of a campaign run on; a server or a cluster starts when the first study needs it.

    Args:
        folder: Where the studies run.
        stack: Closes what was started.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._server: Server | None = None
        self._cluster: RayCluster | None = None
        self._alone: dict[str, tuple[dict[str, TrialRecord], float]] = {}

    @property
    def server(self) -> Server:
        """The PostgreSQL server."""
        if self._server is None:
            self._server = self._stack.enter_context(running())
        return self._server

    @property
    def cluster(self) -> RayCluster:
        """The Ray cluster."""
        if self._cluster is None:
            self._cluster = RayCluster()
            self._stack.callback(self._cluster.close)
        return self._cluster

    def study(self, name: str, folder: Path, stack: ExitStack) -> Study:
        """A new study that runs in this way."""
        options = WAYS[name].options
        if name == "ray":
            options += ("--address", self.cluster.address)
        store = stack.enter_context(schema(self.server.url)) if name == "postgresql" else str(folder / "store.db")
        return Study(folder / "study", options, store)

    def left_alone(self, name: str) -> tuple[dict[str, TrialRecord], float]:
        """The trials of a study that nothing happens to, and its seconds."""
        if name not in self._alone:
            with ExitStack() as stack:
                study = self.study(name, self.folder / name, stack)
                begun = time.monotonic()
                if study.finish():
                    raise RuntimeError(f"the study left alone failed:\n{study.output}")
                self._alone[name] = study.trials(), time.monotonic() - begun
        return self._alone[name]

    def kill(self, name: str, victim: str, process: BaseProcess, store: str, numbers: random.Random) -> bool:
        """Kill the driver, a worker, the connections of the database, its server, or a node; False if none lives."""
        match victim:
            case "connections":
                engine = create_engine(store, poolclass=NullPool)
                with engine.connect() as connection:
                    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    connection.execute(text(f"{others} AND backend_type = 'client backend'"))
                engine.dispose()
            case "database":
                self.server.restart()
            case "node":
                self.cluster.lose_node(numbers)
            case "driver":
                process.kill()
            case _:
                family = self.cluster.workers() if name == "ray" else _family(process)[1:]
                found = [one for one in family if _is_worker(one)]
                if not found:
                    return False
                with suppress(psutil.NoSuchProcess):
                    numbers.choice(found).send_signal(signal.SIGKILL)
                    return True
                return False
        return True


def compare(before: dict[str, TrialRecord], after: dict[str, TrialRecord], alone: dict[str, TrialRecord]) -> list[str]:
    """What was lost: trials that are missing, were trained twice, or differ from those of the study left alone."""
    found = [f"{key[:8]} is missing" for key in alone.keys() - after.keys()]
    found += [f"{key[:8]} was trained twice" for key, one in before.items() if after.get(key) != one]
    for key in alone.keys() & after.keys():
        for metric, value in alone[key].metrics.items():
            if abs(after[key].metrics[metric] - value) > _CLOSE * abs(value) and "second" not in metric:
                found.append(f"{key[:8]}: {metric} is {after[key].metrics[metric]!r} and was {value!r}")
    return found


def strike(bench: Bench, name: str, place: Path, numbers: random.Random) -> tuple[str, list[str], int]:
    """One fault: what was killed, what went wrong (a word, then what), and how many trials have other last digits."""
    expected, seconds = bench.left_alone(name)
    victim = numbers.choice(WAYS[name].victims)
    with ExitStack() as stack:
        study = bench.study(name, place, stack)
        process = study.start()
        # At some moment, or once some trials have finished: half of the time passes before the first one has.
        done = numbers.randrange(len(expected))
        moment = time.monotonic() + numbers.uniform(0.0, seconds if done < len(expected) // 2 else 0.3)
        while process.is_alive() and done >= len(expected) // 2 and len(study.trials()) < done:
            time.sleep(0.01)
        while process.is_alive() and time.monotonic() < moment:
            time.sleep(0.01)
        # A worker may not have started, or may have ended: then the kill is retried later.
        killed = False
        while process.is_alive() and not killed:
            killed = bench.kill(name, victim, process, study.store, numbers)
            time.sleep(0.0 if killed else 0.05)
        before = study.trials()
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
        return victim if killed else _NOBODY, wrong, digits


def campaign(arguments: Sequence[str]) -> int:
    """Run a campaign and print its counts; the exit code is 1 if anything was lost, hung or ended in a traceback."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes at most")
    parser.add_argument("--json", action="store_true", help="print the four counts as JSON")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", default=",".join(WAYS), help="of %(default)s")
    parser.add_argument("--log", type=Path, help="a file to which the counts are written as they come")
    asked = parser.parse_args(arguments)
    end = time.monotonic() + (QUICK_SECONDS if asked.quick else float("inf"))
    ways = asked.ways.split(",")
    if "postgresql" in ways and not installed():
        print("PostgreSQL is not installed here: its studies are left out", file=sys.stderr)
        ways.remove("postgresql")
    numbers, tally, struck = random.Random(asked.seed), Tally(), 0
    folder = Path(tempfile.mkdtemp(prefix="ablate-faults-"))
    with ExitStack() as stack:
        bench = Bench(folder, stack)
        while tally.tried < asked.kills and (time.monotonic() < end or not tally.tried):
            name = ways[struck % len(ways)]
            place = folder / str(struck)
            struck += 1
            victim, wrong, digits = strike(bench, name, place, numbers)
            if victim == _NOBODY and not wrong:  # the study had ended before
                shutil.rmtree(place)
                continue
            tally.tried += 1
            tally.digits += digits
            tally.kinds[f"{name} {victim}"] += 1
            for word in {said.partition(" ")[0] for said in wrong}:
                setattr(tally, word, getattr(tally, word) + 1)
            tally.worst += [f"{name}, {victim} killed, {place}: {said}" for said in wrong]
            if not wrong:
                shutil.rmtree(place)
            if asked.log is not None:
                asked.log.write_text("\n".join([*tally.worst, tally.table()]) + "\n")
    for line in tally.worst:
        print(line, file=sys.stderr)
    print(json.dumps(tally.counts()) if asked.json else tally.table())
    if not tally.worst:
        shutil.rmtree(folder)
    return 1 if tally.worst else 0

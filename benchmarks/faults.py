"""Kills at random moments: drivers, workers, databases and Ray nodes of tiny studies, compared with one left alone.

`python -m benchmarks faults [--quick] [--json] [--kills N] [--seed N] [--seconds N] [--ways WAY,WAY]`. A study is
started, something is killed, and the command is run again until it ends. Then every trial must be finished, with the
results of the study that was left alone; one that was finished when something was killed must be as it was stored then.
The exit code is 1 if a trial was lost, trained twice or differs, if a run hangs, or if one shows a traceback.

Drivers are forked from a process that has imported what they need, and workers of the local engine from their driver:
imports would be most of the time. In one study of ten each worker is started with an interpreter of its own, as outside
of this campaign.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

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
from tests.postgres import Server, installed, running, schema

KILLS = 500
QUICK_SECONDS = 90.0
_PATIENCE = 180.0
"""Seconds after which a run of a study hangs, without those in which its processes waited for a core. It takes less
than ten where it has one to itself."""
_LONGEST = 900.0
"""Seconds after which it hangs in any case."""
_CPU_SECONDS = 120.0
"""Seconds of processor time after which a run hangs. It takes five, or twenty with Ray."""
_OWN_INTERPRETERS = 0.1
"""The share of the studies whose workers are started with an interpreter of their own."""
_NODE_SECONDS = 120
"""Seconds in which a Ray node must have started."""
_NODE = {"object_store_memory": 80_000_000}
_SETUPS = 3
"""How often in a row a server or a cluster may fail to start."""
_RUNS = 5
"""Most times that the command is run again."""
_CLOSE = 1e-6
"""Relative difference of losses that a study after a fault may show: members of a pack change the last digits."""
_NOBODY = "nobody"
"""In place of a victim: the study had ended before anything was killed."""
_WORKER = re.compile(r"-m ablate\.[a-z.]*worker |^ray::(JobTrainable|IDLE)")
"""In the command line of a worker of the local engine, or of a process of Ray that trains or is about to."""
_PRELOADED = ("cli", "execution", "kinds", "nn", "planning", "render", "spec", "tasks", "trained", "training")
"""The packages of ablate that drivers and workers import."""

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
        share: Of ten kills, those of studies that run in this way. A kill with Ray takes ten times the time of others.
    """

    options: tuple[str, ...]
    victims: tuple[str, ...]
    share: int = 3


WAYS = {
    "single": Way(("--pack", "1", "--workers", "1"), ("driver", "worker")),
    "packed": Way(("--pack", "4", "--workers", "2"), ("driver", "worker")),
    "postgresql": Way(("--pack", "1", "--workers", "1"), ("driver", "worker", "connections", "database")),
    "ray": Way(("--engine", "ray", "--pack", "1"), ("driver", "worker", "node"), share=1),
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


class SetupError(Exception):
    """The server or the cluster of a study did not start: nothing was tried."""


_FORKS = get_context("forkserver")


def preload(ways: Sequence[str]) -> None:
    """Let the process that drivers are forked from import what drivers and workers of these ways need."""
    modules = [__name__]
    for package in _PRELOADED:
        found = pkgutil.walk_packages([str(Path(ablate.__path__[0]) / package)], f"ablate.{package}.")
        modules += [one.name for one in found if not one.name.startswith("ablate.execution.ray")]
    if "ray" in ways:
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

    Args:
        folder: Made here.
        options: Of the command.
        store: A path or a URL.
        own_interpreters: Whether workers are started with an interpreter of their own.
    """

    def __init__(self, folder: Path, options: Sequence[str], store: str, own_interpreters: bool = False) -> None:
        folder.mkdir(parents=True)
        (folder / "tiny.yaml").write_text(_SPACE)
        self.folder = folder
        self.store = store
        self._own_interpreters = own_interpreters
        self._line = ["study", "tiny.yaml", "--store", store, *options, "--cache", str(folder.parent.parent / "cache")]

    def start(self) -> BaseProcess:
        """Start the command in a process of its own."""
        process = _FORKS.Process(target=_drive, args=(self._line, str(self.folder), self._own_interpreters))
        process.start()
        return process

    def wait(self, process: BaseProcess) -> int:
        """The exit code of a run.

        Raises:
            _HangError: It does not end, or takes more of the processor than it may.
        """
        watch = Watch()
        while process.exitcode is None:
            process.join(1.0)
            if process.exitcode is None and watch.is_late():
                kill_family(process)
                raise _HangError(watch.told())
        return process.exitcode

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


def _is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return process.name() == FORKED or _WORKER.search(" ".join(process.cmdline())) is not None
    return False


class RayCluster:
    """A cluster on this machine: a head that trains nothing, and two nodes of one core.

    Raises:
        SetupError: It does not start.
    """

    def __init__(self) -> None:
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_raylet_start_wait_time_s": str(_NODE_SECONDS),  # where other programs have the cores
            "RAY_prestart_worker_first_driver": "0",  # workers start when a trial needs them
        }
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        with _setting_up("the head of a Ray cluster"):
            self._cluster: Any = Cluster(initialize_head=True, head_node_args=head | _NODE)
        self._nodes: list[Any] = []
        try:
            self.fill()
        except SetupError:
            self.close()
            raise

    def fill(self) -> None:
        """Start nodes until there are two, and wait for them.

        Raises:
            SetupError: One does not start.
        """
        with _setting_up("a Ray node"):
            while len(self._nodes) < 2:
                self._nodes.append(self._cluster.add_node(wait=False, num_cpus=1, num_gpus=0, **_NODE))
            self._cluster.wait_for_nodes(timeout=_NODE_SECONDS)

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
        """Kill all processes of one node; the other one goes on."""
        self._cluster.remove_node(self._nodes.pop(numbers.randrange(len(self._nodes))), allow_graceful=False)

    def close(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@contextmanager
def _setting_up(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Ray raises many kinds
        raise SetupError(f"{what} did not start: {type(error).__name__}: {error}") from error


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
        self._cluster.fill()
        return self._cluster

    def study(self, name: str, folder: Path, stack: ExitStack, own_interpreters: bool = False) -> Study:
        """A new study that runs in this way; its nodes of the cluster are all there."""
        options = WAYS[name].options
        if name == "ray":
            options += ("--address", self.cluster.address)
        store = stack.enter_context(schema(self.server.url)) if name == "postgresql" else str(folder / "store.db")
        return Study(folder / "study", options, store, own_interpreters)

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
                assert self._cluster is not None, "the study runs on it"
                self._cluster.lose_node(numbers)
            case "driver":
                process.kill()
            case _:
                started = self._cluster.workers() if self._cluster and name == "ray" else family(process.pid or 0)[1:]
                found = [one for one in started if _is_worker(one)]
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
    """One fault: what was killed, what went wrong (a word, then what), and how many trials have other last digits.

    Raises:
        SetupError: What the study runs on did not start.
    """
    expected, seconds = bench.left_alone(name)
    victim = numbers.choice(WAYS[name].victims)
    with ExitStack() as stack:
        study = bench.study(name, place, stack, numbers.random() < _OWN_INTERPRETERS)
        finished = stack.enter_context(finished_count(study.store))
        process = study.start()
        stack.callback(kill_family, process)
        # At some moment, or once some trials have finished: half of the time passes before the first one has.
        done = numbers.randrange(len(expected))
        moment = time.monotonic() + numbers.uniform(0.0, seconds if done < len(expected) // 2 else 0.3)
        watch = Watch()
        while process.is_alive() and done >= len(expected) // 2 and finished() < done and not watch.is_late():
            time.sleep(0.02)
        while process.is_alive() and time.monotonic() < moment:
            time.sleep(0.01)
        # A worker may not have started, or may have ended: then the kill is tried again later.
        killed = False
        while process.is_alive() and not killed and not watch.is_late():
            killed = bench.kill(name, victim, process, study.store, numbers)
            time.sleep(0.0 if killed else 0.05)
        before = study.trials()
        try:
            study.wait(process)
            code = study.finish()
        except _HangError as error:
            return victim, [f"hangs {error}"], 0
        after = study.trials()
        wrong = [f"lost {said}" for said in compare(before, after, expected)]
        if code:
            wrong.append(f"lost the last run ended with exit code {code}")
        if "Traceback (most recent call last)" in study.output:
            wrong.append("tracebacks in the output of a run")
        digits = sum(after[key].metrics != one.metrics for key, one in expected.items() if key in after)
        return victim if killed else _NOBODY, wrong, digits


def turns(ways: Sequence[str]) -> list[str]:
    """The ways in the order in which studies run, each as often as its share; the first ones are all different."""
    return [name for turn in range(max(WAYS[name].share for name in ways)) for name in ways if turn < WAYS[name].share]


def campaign(arguments: Sequence[str]) -> int:
    """Run a campaign and print its counts; the exit code is 1 if anything was lost, hung or ended in a traceback."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes at most")
    parser.add_argument("--json", action="store_true", help="print the four counts as JSON")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no kill after this time")
    parser.add_argument("--ways", default=",".join(WAYS), help="of %(default)s")
    parser.add_argument("--log", type=Path, help="a file to which the counts are written as they come")
    asked = parser.parse_args(arguments)
    end = time.monotonic() + min(asked.seconds, QUICK_SECONDS if asked.quick else float("inf"))
    ways = asked.ways.split(",")
    if "postgresql" in ways and not installed():
        print("PostgreSQL is not installed here: its studies are left out", file=sys.stderr)
        ways.remove("postgresql")
    preload(ways)
    order, numbers, tally, struck, failed = turns(ways), random.Random(asked.seed), Tally(), 0, 0
    folder = Path(tempfile.mkdtemp(prefix="ablate-faults-"))
    with ExitStack() as stack:
        bench = Bench(folder, stack)
        while tally.tried < asked.kills and (time.monotonic() < end or not tally.tried):
            name = order[struck % len(order)]
            place = folder / str(struck)
            struck += 1
            try:
                victim, wrong, digits = strike(bench, name, place, numbers)
            except SetupError as error:
                failed += 1
                print(error, file=sys.stderr)
                if failed == _SETUPS:
                    return 2
                continue
            failed = 0
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

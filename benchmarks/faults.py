"""Faults at random moments: kills, stops, lost files and rivals of tiny studies, compared with one left alone.

`python -m benchmarks faults [--quick] [--json] [--kills N] [--seed N] [--seconds N] [--ways WAY,WAY]`. A study is
started, something is killed or disturbed, and the command is run again until it ends. Then every trial must be
finished, with the results of the study that was left alone; one that was finished at the fault must be as it was then.
The exit code is 1 if a trial was lost, trained twice or differs, if a run hangs, or if one shows a traceback.

Drivers are forked from a process that has imported what they need, and workers of the local engine from their driver:
imports would be most of the time. In one study of ten each worker is started with an interpreter of its own, as outside
of this campaign.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from ablate.store import TrialRecord
from benchmarks.losing_cluster import RayCluster, SetupError
from benchmarks.watched_study import (
    OWN_MODEL,
    OWN_TRAINER,
    HangError,
    Study,
    Watch,
    family,
    finished_count,
    is_trainer,
    is_worker,
    kill_family,
    preload,
)
from tests.postgres import Server, installed, running, schema

KILLS = 500
QUICK_SECONDS = 90.0
_OWN_INTERPRETERS = 0.1
"""The share of the studies whose workers are started with an interpreter of their own."""
_SETUPS = 3
"""How often in a row a server or a cluster may fail to start."""
_CLOSE = 1e-6
"""Relative difference of losses that a study after a fault may show: members of a pack change the last digits."""
_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL, as many as clusters give."""
_NOBODY = "nobody"
"""Instead of a victim: the study had ended before anything was killed."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a study.

    Attributes:
        options: Of `ablate study`.
        victims: What can be killed, or happen; see `Bench.kill`.
        share: Of ten kills, those of studies that run in this way. A kill with Ray takes ten times the time of others.
        space: What the study is about.
    """

    options: tuple[str, ...]
    victims: tuple[str, ...]
    share: int = 2
    space: str = OWN_MODEL


_HERE = ("driver", "worker", "preempted", "paused", "files", "space", "copied", "rival")
_OFTEN = ("--checkpoint-every", "5")
WAYS = {
    "single": Way(("--pack", "1", "--workers", "1", *_OFTEN), _HERE),
    "packed": Way(("--pack", "4", "--workers", "2", *_OFTEN), _HERE),
    "postgresql": Way(
        ("--pack", "1", "--workers", "1"), ("driver", "worker", "preempted", "rival", "connections", "database")
    ),
    "ray": Way(("--engine", "ray", "--pack", "1", *_OFTEN), ("driver", "worker", "preempted", "node"), share=1),
    "trainer": Way(("--workers", "2"), (*_HERE, "trainer"), space=OWN_TRAINER),
    "trainer on Ray": Way(
        ("--engine", "ray"), ("driver", "worker", "trainer", "preempted", "node"), share=1, space=OWN_TRAINER
    ),
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
        if on_ray(name):
            options += ("--address", self.cluster.address, "--checkpoint-dir", str(folder / "checkpoints"))
        store = stack.enter_context(schema(self.server.url)) if name == "postgresql" else str(folder / "store.db")
        return Study(folder / "study", options, store, own_interpreters, space=WAYS[name].space)

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

    def kill(self, name: str, victim: str, process: BaseProcess, study: Study, numbers: random.Random) -> bool:
        """Kill a victim, which may be the connections of the database, its server, or a node; or `disturb` the study.

        Returns:
            Whether there was something to kill.
        """
        match victim:
            case "connections":
                engine = create_engine(study.store, poolclass=NullPool)
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
            case "worker" | "trainer":
                started = self._cluster.processes() if self._cluster and on_ray(name) else family(process.pid or 0)[1:]
                found = [one for one in started if (is_trainer if victim == "trainer" else is_worker)(one)]
                if not found:
                    return False
                with suppress(psutil.NoSuchProcess):
                    numbers.choice(found).send_signal(signal.SIGKILL)
                    return True
                return False
            case _:
                disturb(victim, process, study, numbers)
        return True


def disturb(disturbance: str, process: BaseProcess, study: Study, numbers: random.Random) -> None:
    """Disturb a study that runs.

    Args:
        disturbance: The driver is `preempted` with time to stop; all processes are `paused`; the `files` of cache,
            checkpoints and weights are removed; the `space` is edited; the store is `copied` while it is written; a
            `rival` study shares all trials.
        process: The driver.
        study: Gets what is to be compared with it in `beside`.
        numbers: Chooses how long.
    """
    match disturbance:
        case "preempted":
            process.terminate()
            process.join(_GRACE)
            process.kill()
        case "paused":
            found = family(process.pid or 0)
            for step in (psutil.Process.suspend, psutil.Process.resume):
                for one in found:
                    with suppress(psutil.NoSuchProcess):
                        step(one)
                time.sleep(numbers.uniform(0.0, 2.0))
        case "files":
            beside = [file for file in Path(study.store).parent.iterdir() if file.is_dir() and file != study.folder]
            for folder in (study.cache, *beside):
                shutil.rmtree(folder, ignore_errors=True)
        case "space":
            study.halve_space()
        case "copied":
            at = study.folder.with_name("copy")
            copy = Study(at, (), str(at / "store.db"), space=study.text)
            files = sorted(Path(study.store).parent.glob("store.db*"))
            for file in files:
                with suppress(FileNotFoundError):
                    shutil.copyfile(file, copy.folder / file.name)
            study.beside.append((copy, None))
        case "rival":
            at = study.folder.with_name("rival")
            rival = Study(at, study.options, study.store, name="rival", space=study.text)
            study.beside.append((rival, rival.start()))


def on_ray(name: str) -> bool:
    """Whether a study that runs in this way is on Ray."""
    return "ray" in WAYS[name].options


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
        stack.callback(study.end_rivals)
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
            killed = bench.kill(name, victim, process, study, numbers)
            time.sleep(0.0 if killed else 0.05)
        before = study.trials()
        try:
            study.wait(process)
            codes = [study.finish()]
            for rival, running in study.beside:
                if running is not None:
                    rival.wait(running)
                    codes.append(rival.finish())
        except HangError as error:
            return victim, [f"hangs {error}"], 0
        after = study.trials()
        wrong = [f"lost {said}" for said in compare(before, after, expected)]
        wrong += [f"lost the last run ended with exit code {code}" for code in codes if code]
        for other, _ in study.beside:
            found = other.trials().items()
            wrong += [f"lost {key[:8]} differs in {other.name}" for key, one in found if after.get(key) != one]
        outputs = [study.output, *(other.output for other, _ in study.beside)]
        if any("Traceback (most recent call last)" in output for output in outputs):
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
    preload(ray=any(map(on_ray, ways)))
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

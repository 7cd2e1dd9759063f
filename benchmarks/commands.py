"""Whole commands beside the imports that they cannot do without: `list`, `validate`, `plan`, `show`, `--help`.

`python -m benchmarks commands [--json] [--smoke]`. Each command is a fresh process. Its processor time is measured,
so other load on the machine does not count; all processes run in turns, and the medians are printed. Beside each
command stands its *floor*: the processor time of a process that imports the libraries which the command uses, and
does nothing else. `list` and `--help` are compared with a program of one command made with typer, `show` with the
database and the special functions; `validate` and `plan` are judged by their time beyond importing torch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.big_store import big_store, make_big_store
from benchmarks.driver import grid_space
from benchmarks.machine import machine

TIMES = int(os.environ.get("TIMES", "5"))
_ABLATE = (sys.executable, "-m", "ablate")
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Installed modules are compiled; the first turn compiles those of a checkout."""
_TYPER = """
import typer
from rich.console import Console
from rich.table import Table
app = typer.Typer(add_completion=False)
@app.command()
def list_(store: str = typer.Option("a")) -> None:
    table = Table()
    table.add_row("a")
    Console().print(table)
app(["--store", "b"])
"""
FLOORS = {
    "typer": _TYPER,
    "database and statistics": f"import sqlalchemy, scipy.special\n{_TYPER}",
    "torch": "import torch",
}
"""What a process that is a floor runs."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, its floor (a name in `FLOORS`), and its goal in seconds, beyond the floor where `beyond` says so."""

    what: str
    arguments: tuple[str, ...]
    floor: str
    goal: float
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of processor seconds.

    Attributes:
        command: What was run.
        seconds: Of the whole process.
        floor: The process with the imports alone.
        beyond: Median of the differences of the two, turn by turn.
        goal: For `beyond` where `counts_beyond`, else for `seconds`.
        counts_beyond: Whether the goal leaves the imports out.
    """

    command: str
    seconds: float
    floor: float
    beyond: float
    goal: float
    counts_beyond: bool

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return (self.beyond if self.counts_beyond else self.seconds) <= self.goal


def commands(folder: Path, *, smoke: bool) -> list[Command]:
    """The commands, or the first of each floor, with the files that they read made in a folder."""
    small = folder / "small.db"
    make_big_store(small, trials=100)
    large, study, trials = (small, "usual", 100) if smoke else (big_store(), "wide", 10_000)
    sides = (2, 2, 2, 2) if smoke else (10, 10, 10, 10)
    space = grid_space(folder / "texts", sides=sides)
    file = folder / "grid.yaml"
    file.write_text(json.dumps(space.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
    cached = ("--cache", str(folder / "cache"), "--store", str(folder / "none.db"))
    models = math.prod(sides)
    every = [
        Command("ablate --help", ("--help",), "typer", 0.15),
        Command("ablate list, 1 study", ("list", "--store", str(small)), "typer", 0.15),
        Command("ablate show, 100 trials", ("show", "usual", "--store", str(small)), "database and statistics", 0.5),
        Command(
            f"ablate show, {trials:,} of the trials of a large store",
            ("show", study, "--store", str(large)),
            "database and statistics",
            0.7,
        ),
        Command("ablate validate", ("validate", "simplify_block"), "torch", 0.3, beyond=True),
        Command(f"ablate plan, {models:,} models", ("plan", str(file), *cached), "torch", 1.5, beyond=True),
    ]
    return list({command.floor: command for command in reversed(every)}.values()) if smoke else every


def measured(smoke: bool) -> Iterator[Row]:
    """Run everything in turns; the first turn, which fills caches, does not count unless it is the only one."""
    with tempfile.TemporaryDirectory() as name:
        asked = commands(Path(name), smoke=smoke)
        taken: dict[str, list[float]] = {}
        for turn in range(1 if smoke else TIMES + 1):
            if turn == 1:
                taken = {}
            for imported, code in FLOORS.items():
                taken.setdefault(imported, []).append(processor_seconds((sys.executable, "-c", code)))
            for command in asked:
                taken.setdefault(command.what, []).append(processor_seconds((*_ABLATE, *command.arguments)))
    for command in asked:
        whole, floor = taken[command.what], taken[command.floor]
        beyond = statistics.median(a - b for a, b in zip(whole, floor, strict=True))
        whole_median, floor_median = statistics.median(whole), statistics.median(floor)
        yield Row(command.what, whole_median, floor_median, beyond, command.goal, command.beyond)


def processor_seconds(arguments: Sequence[str]) -> float:
    """User and system seconds of a process with one thread, and of those that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, stdout=subprocess.DEVNULL, env={**_ENVIRONMENT, "OMP_NUM_THREADS": "1"}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(smoke: bool = False) -> None:
    """Print the table."""
    print("processor seconds of whole processes, medians of turns; `beyond` leaves the imports of the floor out\n")
    print("| command | seconds | floor | beyond | goal |\n|---|---|---|---|---|")
    for row in measured(smoke):
        goal = f"{row.goal:g}{' beyond' if row.counts_beyond else ''}{'' if row.met else ' (missed)'}"
        print(f"| {row.command} | {row.seconds:.2f} | {row.floor:.2f} | {row.beyond:.2f} | {goal} |", flush=True)


def campaign(arguments: Sequence[str]) -> int:
    """Print the table, or with `--json` its rows as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks commands", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON and nothing else")
    parser.add_argument("--smoke", action="store_true", help="run at the smallest size")
    asked = parser.parse_args(arguments)
    if asked.json:
        print(json.dumps({"rows": [{**asdict(row), "met": row.met} for row in measured(asked.smoke)]}))
    else:
        main(asked.smoke)
        print(f"\n{machine()}")
    return 0

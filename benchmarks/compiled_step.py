"""`torch.compile` on a CPU: what it gains for a step of the variants of the first study, and what it costs.

`python -m benchmarks compiled_step [--json] [--variants NAME ...] [--widths N ...] [--costs]`. Two parts:

- Steps by turns in one process with one thread, in processor time, as `benchmarks/step.py` has them: ours eagerly, with
  compiled blocks (`training.compile: blocks`) and with the whole model compiled; plain torch eagerly and with
  `torch.compile(model)`. The losses of all are compared first.
- With `--costs`, fresh processes that train a few steps in each way, in processor time, their compilers included: what
  such a process takes beyond an eager one, with an empty cache of inductor and again with the cache that the first one
  has filled.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ablate.nn.kernels.processor import keep_freed_memory
from ablate.spec.reading import load_space
from benchmarks.machine import OWN_SOURCE, machine
from benchmarks.step import CHECKED, SPACE, WAYS, WIDTHS, Training, resolved, timed

_SECONDS = 1.0
"""Of measurement, for each way."""


@dataclass(frozen=True, slots=True)
class Row:
    """A variant at a width: milliseconds of a step in each way, and of its matrix products alone."""

    variant: str
    width: int
    floor: float
    milliseconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process takes beyond an eager one, in processor seconds: with an empty cache, and with a filled one."""

    variant: str
    width: int
    way: str
    cold: float
    warm: float


def measured(names: Sequence[str], widths: Sequence[int], cache: Path, seconds: float) -> Iterator[Row]:
    """Measure the variants of the space with these names, or all, about `seconds` for each way."""
    for name, variant, task in resolved(load_space(SPACE, data=OWN_SOURCE), widths, cache, names):
        torch.compiler.reset()
        times, floor = timed(name, variant, task, WAYS, seconds)
        milliseconds = {way: 1000 * statistics.median(taken) for way, taken in times.items()}
        yield Row(name, variant.model.width, 1000 * statistics.median(floor), milliseconds)


def costs(names: Sequence[str], widths: Sequence[int]) -> Iterator[Cost]:
    """What compilation takes in fresh processes, for the ways that compile."""
    for width in widths:
        for name in names:
            eager = {plain: _process(name, width, way, None) for plain, way in ((False, "eager"), (True, "plain"))}
            for way in ("blocks", "whole", "plain compiled"):
                with tempfile.TemporaryDirectory() as cache:
                    cold, warm = (_process(name, width, way, cache) - eager[way.startswith("plain")] for _ in range(2))
                yield Cost(name, width, way, cold, warm)


def _process(name: str, width: int, way: str, cache: str | None) -> float:
    """Processor seconds of a process that trains a few steps, and of the processes that it starts."""
    options = ["--variants", name, "--widths", str(width), "--train", way]
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if cache is not None:
        environment["TORCHINDUCTOR_CACHE_DIR"] = cache
    before = _children()
    subprocess.run(
        [sys.executable, "-m", "benchmarks", "compiled_step", *options],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _train(names: Sequence[str], widths: Sequence[int], way: str, cache: Path) -> None:
    for _, variant, task in resolved(load_space(SPACE, data=OWN_SOURCE), widths, cache, names):
        training = Training(variant, task, way)
        for step in range(1, CHECKED + 1):
            training.loss(step)
        training.close()


def campaign(arguments: Sequence[str]) -> int:
    """Print the table of steps, or with `--costs` that of compilation; with `--json` as JSON and nothing else."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compiled_step", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON and nothing else")
    parser.add_argument("--variants", nargs="*", default=("baseline", "sas_p"), help="names of variants")
    parser.add_argument("--widths", nargs="*", type=int, default=tuple(WIDTHS), help="widths of the model")
    parser.add_argument("--costs", action="store_true", help="measure what compilation takes, in fresh processes")
    parser.add_argument("--train", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        if asked.train:
            _train(asked.variants, asked.widths, asked.train, Path(folder))
            return 0
        rows: Iterator[Row] | Iterator[Cost]
        if asked.costs:
            rows = costs(asked.variants, asked.widths)
        else:
            rows = measured(asked.variants, asked.widths, Path(folder), _SECONDS)
        if asked.json:
            print(json.dumps({"rows": [asdict(row) for row in rows]}))
            return 0
        print_costs(rows) if asked.costs else print_steps(rows)  # type: ignore[arg-type]
    print(f"\n{machine()}")
    return 0


def print_steps(rows: Iterator[Row]) -> None:
    """Print milliseconds of a step, and the share of the floor that ours reaches."""
    print(f"| variant | width | floor | {' | '.join(WAYS)} | share of the floor, eager and blocks |")
    print(f"|{'---|' * (len(WAYS) + 4)}")
    for row in rows:
        times = " | ".join(f"{row.milliseconds[way]:.1f}" for way in WAYS)
        shares = ", ".join(f"{row.floor / row.milliseconds[way]:.0%}" for way in ("eager", "blocks"))
        print(f"| {row.variant} | {row.width} | {row.floor:.1f} | {times} | {shares} |", flush=True)


def print_costs(rows: Iterator[Cost]) -> None:
    """Print seconds of compilation."""
    print("| variant | width | compiled | empty cache, s | filled cache, s |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.variant} | {row.width} | {row.way} | {row.cold:.1f} | {row.warm:.1f} |", flush=True)

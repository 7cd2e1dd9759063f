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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from ablate.nn.kernels.allocator import keep_freed_memory
from ablate.nn.kernels.product import multiply
from ablate.spec.reading import load_space
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.timing.clock import side_by_side
from ablate.training.members import Member
from ablate.training.pack import Pack
from benchmarks.machine import OWN_SOURCE, machine
from benchmarks.plain_model import PlainModel, PlainTraining
from benchmarks.step import CHECKED, SPACE, TOLERANCE, WIDTHS, recorded, replay, resolved

WAYS = ("eager", "blocks", "whole", "plain", "plain compiled")
"""Ours eagerly, with compiled blocks, compiled as a whole; plain torch eagerly and compiled as a whole."""
_OPTIONS = {"fallback_random": True}
"""Of the compiler, as `training.compile: blocks` sets them."""
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


class Training:
    """Steps of a variant in one way.

    Args:
        variant: The variant.
        task: Its opened task.
        way: One of `WAYS`.
    """

    def __init__(self, variant: VariantSpec, task: Task, way: str) -> None:
        if way == "blocks":
            compiled = variant.training.model_copy(update={"compile": "blocks"})
            variant = variant.model_copy(update={"training": compiled})
        self.steps = variant.training.steps
        self._task, self._batch = task, variant.training.batch_size
        self._pack = Pack([Member(variant, 0)], task, torch.device("cpu"))
        if way == "whole":
            self._pack.model.compile(options=_OPTIONS)
        self._plain: PlainTraining | None = None
        if way.startswith("plain"):
            self.model = PlainModel(variant.model, task.shape.vocabulary, task.shape.context)
            self.model.start_from(self._pack.model.state_dict())
            self._plain = PlainTraining(self.model, variant.training)
            if way == "plain compiled":
                self.model.compile()

    def close(self) -> None:
        """Stop preparing batches."""
        self._pack.batches.close()

    def batch(self, step: int) -> dict[str, Tensor]:
        """The batch of a step, as plain torch takes it."""
        return self._task.train_batch(0, step, self._batch)

    def loss(self, step: int) -> float:
        """Run a step; the loss before it."""
        if self._plain is not None:
            batch = self.batch(step)
            return self._plain.step(step, batch["inputs"], batch["targets"]).item()
        self._pack.step(step)
        return self._pack.last_loss()[0]

    def call(self) -> Callable[[], object]:
        """A function that runs one more step."""
        if self._plain is not None:
            plain, batch = self._plain, self.batch(1)
            return lambda: plain.step(CHECKED + 1, batch["inputs"], batch["targets"])

        def step() -> None:
            self._pack.step(CHECKED + 1 + self._pack.steps % (self.steps - CHECKED - 1))
            list(self._pack.diverged())

        return step


def measured(names: Sequence[str], widths: Sequence[int], cache: Path, seconds: float) -> Iterator[Row]:
    """Measure the variants of the space with these names, or all, about `seconds` for each way."""
    for name, variant, task in resolved(load_space(SPACE, data=OWN_SOURCE), widths, cache, names):
        torch.compiler.reset()
        with ExitStack() as stack:
            trainings = {way: Training(variant, task, way) for way in WAYS}
            for training in trainings.values():
                stack.callback(training.close)
            for step in range(1, CHECKED + 1):
                losses = {way: training.loss(step) for way, training in trainings.items()}
                if max(losses.values()) - min(losses.values()) > TOLERANCE * losses["eager"]:
                    raise AssertionError(f"{name}: the losses of step {step} differ: {losses}")
            uncompiled = PlainModel(variant.model, task.shape.vocabulary, task.shape.context)
            products = recorded(uncompiled, trainings["plain"].batch(1))
            calls = [training.call() for training in trainings.values()]
            floors = [replay(products, torch.bmm), replay(products, multiply)]
            times = [statistics.median(taken) for taken in side_by_side([*calls, *floors], "cpu", seconds)]
        milliseconds = {way: 1000 * taken for way, taken in zip(WAYS, times, strict=False)}
        yield Row(name, variant.model.width, 1000 * min(times[len(WAYS) :]), milliseconds)


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

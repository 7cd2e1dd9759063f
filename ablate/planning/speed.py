"""The speed of this machine, measured by a few steps and an evaluation of a trial as the engine would run them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ablate.planning.planned import Variant
from ablate.tasks.base import Task
from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.program import EagerProgram

_PRODUCT = 512
"""The size of the square matrices of a product."""
_PRODUCT_SECONDS = 0.2
_UTILISATION = 0.55
"""The rate of a training step of a small model on one CPU thread, relative to a matrix product."""
_WARM_UP_STEPS = 2
_STEPS = 20
"""The most steps that are measured."""
_SECONDS = 0.6
"""No further step is measured after this time."""
_LONGEST_STEP = 1.0
"""Seconds of a step, as a matrix product predicts it, above which none is measured."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured.

    Attributes:
        rate: The arithmetic of training a second of one worker.
        evaluation: The seconds of an evaluation of one trial, over the arithmetic of one forward pass of its model; 0
            if none was measured.
        source: A description of what was measured.
    """

    rate: float
    evaluation: float
    source: str


def measure_speed(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
    """The speed of a worker on this machine.

    Steps of a model of whose size a step would take long are not run; then a matrix product is measured.

    Args:
        variant: The trial to measure.
        task: Its opened task.
        device: `cpu` or `cuda`.
        together: The trials that one pack of the engine holds.
        others: The further workers that are busy at the same time: threads of a CPU that multiply matrices.
    """
    where = torch.device(device)
    with _one_thread(), _busy(others if device == "cpu" else 0):
        by_product = measure_product(device)
        usual = by_product.rate
        training = variant.spec.training
        if training.steps == 0 or variant.flops / training.steps * together / usual > _LONGEST_STEP:
            return by_product
        steps = max(training.steps, _WARM_UP_STEPS + _STEPS + 1)  # so that none of those measured is the last
        plain = {"steps": steps, "init_from": None, "compile": "none", "record_blocks": False}
        plain |= {"batch_growth": None, "context_growth": None}  # the largest sizes
        spec = variant.spec.model_copy(update={"training": training.model_copy(update=plain)})
        members = [Member(spec, seed) for seed in range(together)]
        with Pack(members, task, where, lambda compute, _: EagerProgram(compute)) as pack:
            for step in range(1, _WARM_UP_STEPS + 1):
                pack.step(step)
            _wait(where)
            measured, begin = 0, time.perf_counter()
            while measured < _STEPS and (measured == 0 or time.perf_counter() - begin < _SECONDS):
                measured += 1
                pack.step(_WARM_UP_STEPS + measured)
            _wait(where)
            seconds = (time.perf_counter() - begin) / measured / together
            begin = time.perf_counter()
            pack.point()
            evaluation = (time.perf_counter() - begin) / together
            flops = pack.totals.phases[-1].flops
    source = f"{measured} steps and an evaluation of {variant.name} on this machine"
    return Speed(flops / seconds, evaluation / max(variant.cost.flops, 1.0), source)


def measure_product(device: str) -> Speed:
    """The usual share of the speed of a square matrix product, on one thread or on a GPU."""
    with _one_thread():
        return Speed(
            _UTILISATION * _product_rate(torch.device(device)), 0.0, "a matrix product measured on this machine"
        )


def _product_rate(device: torch.device) -> float:
    a = torch.randn(_PRODUCT, _PRODUCT, device=device)
    a @ a
    _wait(device)
    products, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < _PRODUCT_SECONDS:
        a @ a
        _wait(device)
        products += 1
    return 2.0 * _PRODUCT**3 * products / elapsed


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread, and leave its random state as it was."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep further cores busy while it lasts: cores share caches, memory, and often their arithmetic units."""
    ended = threading.Event()
    threads = [threading.Thread(target=_multiply, args=(ended.is_set,), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _multiply(ended: Callable[[], bool]) -> None:
    torch.set_num_threads(1)
    a = torch.randn(_PRODUCT, _PRODUCT)
    out = torch.empty_like(a)
    with torch.inference_mode():
        while not ended():
            torch.mm(a, a, out=out)

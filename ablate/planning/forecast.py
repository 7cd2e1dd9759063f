"""Estimate the duration of a plan, from stored trials or from a short measurement of this machine."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Protocol

import torch

from ablate.cores import available_cores
from ablate.errors import NotFoundError
from ablate.planning.plan import Plan, Trial
from ablate.store import open_store
from ablate.store.records import SETTLED

_UTILISATION = 0.55
"""The rate of a training step of a small model on one CPU thread, relative to a matrix product."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimated duration of a plan.

    Attributes:
        done: The keys of trials that the store already holds.
        rate: The floating-point operations a second of one worker.
        basis: A description of the source of the rate.
        workers: The number of workers that the estimate assumes.
    """

    done: frozenset[str]
    rate: float
    basis: str
    workers: int

    def seconds(self, trial: Trial) -> float:
        """The training time of one trial."""
        return trial.variant.flops / self.rate

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done."""
        left = [self.seconds(trial) for trial in (*plan.trials, *plan.later) if trial.key not in self.done]
        return max(sum(left) / self.workers, max(left, default=0.0))


class Estimate(Protocol):
    """What is shown of a forecast, for this machine or another."""

    @property
    def done(self) -> frozenset[str]:
        """The keys of trials that the store already holds."""

    @property
    def workers(self) -> int:
        """The number of trials at once."""

    @property
    def basis(self) -> str:
        """A description of the source of the estimate."""

    def seconds(self, trial: Trial) -> float:
        """The training time of one trial."""

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done."""


def forecast(plan: Plan, store: str, workers: int | None = None) -> Forecast:
    """Estimate a plan from its trials in the store if there are any, else from the speed of a matrix product.

    Args:
        plan: What is to be trained.
        store: Where trials may already be.
        workers: The number of trials at once; None: one for each core.

    Raises:
        StoreError: There is something at `store`, and it is no store.
    """
    workers = workers or available_cores()
    keys = [trial.key for trial in plan.trials]
    try:
        with open_store(store, create=False) as opened:
            records = opened.trials(keys)
    except NotFoundError:
        records = {}
    settled = [record for record in records.values() if record.state in SETTLED]
    rates = [record.flops / record.seconds for record in settled if record.seconds > 0]
    done = frozenset(record.key for record in settled)
    if rates:
        return Forecast(done, statistics.median(rates), f"{len(rates)} trials of this plan in the store", workers)
    return Forecast(done, _UTILISATION * _product_rate(), "a matrix product measured on this machine", workers)


def _product_rate(size: int = 512, seconds: float = 0.2) -> float:
    """Floating-point operations a second of a square matrix product on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a = torch.randn(size, size)
        a @ a
        products, begin = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < seconds:
            a @ a
            products += 1
    finally:
        torch.set_num_threads(threads)
    return 2.0 * size**3 * products / elapsed

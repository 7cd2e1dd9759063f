"""Estimate the duration of a plan, from stored trials or from a short measurement of this machine."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ablate.devices import devices_at_once
from ablate.errors import NotFoundError
from ablate.machine import available_cores
from ablate.planning.memory import free_bytes
from ablate.planning.packing import JobPlace, Packing
from ablate.planning.plan import Plan
from ablate.planning.planned import Trial
from ablate.planning.speed import Speed, measure_product, measure_speed
from ablate.spec.resources import ResourcesSpec
from ablate.spec.variant import VariantSpec
from ablate.store import open_store
from ablate.store.records import SETTLED, TrialRecord
from ablate.tasks.base import Task
from ablate.training.members import pack_key


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimated duration of a plan.

    Attributes:
        done: The keys of trials that the store already holds.
        rate: The floating-point operations a second of one worker.
        basis: A description of the source of the rate.
        workers: The number of workers that the estimate assumes.
        evaluation: The seconds of an evaluation over the arithmetic of a forward pass; 0 if it is not known.
    """

    done: frozenset[str]
    rate: float
    basis: str
    workers: int
    evaluation: float = 0.0

    @property
    def counts_evaluations(self) -> bool:
        """Whether the total has the time of evaluations."""
        return self.evaluation > 0

    def seconds(self, trial: Trial) -> float:
        """The training time of one trial."""
        return trial.variant.flops / self.rate

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done, with their evaluations if these were measured."""
        left = [self._whole(trial) for trial in (*plan.trials, *plan.later) if trial.key not in self.done]
        return max(sum(left) / self.workers, max(left, default=0.0))

    def _whole(self, trial: Trial) -> float:
        variant = trial.variant
        evaluations = 1 + len(variant.spec.training.evaluation_steps())  # the first is before training
        return self.seconds(trial) + evaluations * self.evaluation * variant.cost.flops


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

    @property
    def counts_evaluations(self) -> bool:
        """Whether the total has the time of evaluations."""

    def seconds(self, trial: Trial) -> float:
        """The training time of one trial."""

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done."""


def forecast(
    plan: Plan,
    store: str,
    workers: int | None = None,
    *,
    device: str = "cpu",
    tasks: Callable[[VariantSpec], Task] | None = None,
) -> Forecast:
    """Estimate a plan from its trials in the store that ran on such a device, else from some steps run here.

    Args:
        plan: What is to be trained.
        store: Where trials may already be.
        workers: The number of trials at once; None: as many as the local engine runs.
        device: `cpu` or `cuda`, on which the engine trains.
        tasks: Opens the task of a variant; None: steps are not run, and a matrix product is measured.

    Raises:
        EngineError: The machine has too few GPUs for a trial.
        StoreError: There is something at `store`, and it is no store.
    """
    resources = plan.space.resources
    workers = workers or usual_workers(resources, device)
    settled = settled_trials(plan, store)
    done = frozenset(record.key for record in settled)
    trials = (*plan.trials, *plan.later)
    left = [trial for trial in trials if trial.key not in done]
    rates = [
        record.flops / record.seconds
        for record in settled
        if record.seconds > 0 and (record.worker is None or record.worker.device.startswith(device))
    ]
    basis = f"{len(rates)} trials of this plan in the store"
    if not trials or (rates and not left):  # nothing is left to estimate
        return Forecast(done, statistics.median(rates) if rates else 1.0, basis, workers)
    measured = _measured(left or trials, device, workers, tasks)
    if rates:
        return Forecast(done, statistics.median(rates), basis, workers, measured.evaluation)
    ranks = max(1, int(resources.gpus or 1)) if device == "cuda" else 1
    return Forecast(done, measured.rate * ranks, measured.source, workers, measured.evaluation)


def settled_trials(plan: Plan, store: str) -> list[TrialRecord]:
    """The trials of a plan that need not be trained again, as the store holds them.

    Raises:
        StoreError: There is something at `store`, and it is no store.
    """
    try:
        with open_store(store, create=False) as opened:
            records = opened.trials([trial.key for trial in plan.trials])
    except NotFoundError:
        return []
    return [record for record in records.values() if record.state in SETTLED]


def usual_workers(resources: ResourcesSpec, device: str) -> int:
    """The number of trials that the local engine runs at once.

    Raises:
        EngineError: The machine has too few GPUs for a trial.
    """
    if device == "cpu":
        if resources.gpus:
            devices_at_once(0, resources.gpus)  # refuses
        return max(1, int(available_cores() / max(1, int(resources.cpus))))
    return devices_at_once(torch.cuda.device_count(), resources.gpus)


def _measured(left: Sequence[Trial], device: str, workers: int, tasks: Callable[[VariantSpec], Task] | None) -> Speed:
    """The speed of the trial whose arithmetic is in the middle of those left, in a pack as the engine would make."""
    ordered = sorted(left, key=lambda trial: trial.variant.flops)
    variant = ordered[len(ordered) // 2].variant
    if tasks is None:
        return measure_product(device)
    key = pack_key(variant.spec, variant.fingerprint)
    place = JobPlace(device, free_bytes(device) / (workers if device == "cpu" else 1))
    most = Packing(device=device).size(variant, place)
    alikes = (trial.variant for trial in left if trial.variant.flops == variant.flops)  # one structure, one cost
    same = (key is not None and pack_key(other.spec, other.fingerprint) == key for other in alikes)
    alike = sum(1 for _ in itertools.islice(filter(None, same), most * workers))  # more change nothing
    together = max(1, min(most, math.ceil(alike / workers)))
    others = min(workers, math.ceil(len(left) / together)) - 1
    return measure_speed(variant, tasks(variant.spec), device, together, others)

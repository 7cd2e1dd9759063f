"""Estimate the duration of a plan, from stored trials or from a short measurement of this machine."""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

import ablate.store
from ablate.devices import devices_at_once
from ablate.errors import NotFoundError
from ablate.machine import available_cores
from ablate.planning.memory import free_bytes
from ablate.planning.packing import JobDevice, Packing, Queue
from ablate.planning.plan import Plan, Trial, Variant
from ablate.spec.space_fields import ResourcesSpec
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.store.records import SETTLED, TrialRecord
from ablate.training.members import Member, pack_key
from ablate.training.pack import Pack
from ablate.training.program import EagerProgram

_MATMUL_SIZE = 512
"""The size of the square matrices of a matmul."""
_MATMUL_SECONDS = 0.2
_UTILISATION = 0.55
"""The rate of a training step of a small model on one CPU thread, relative to a matmul."""
_WARM_UP_STEPS = 2
_STEPS = 20
"""The most steps that are measured."""
_SECONDS = 0.6
"""No further step is measured after this time."""
_STRUCTURES = 6
"""The most structures of which steps are measured, those with the most arithmetic first."""
_SIMULATED = 2_000
"""The most trials whose packs are put together for a forecast; more are taken to keep all workers busy."""
_LONGEST_STEP = 1.0
"""Seconds of a step, as a matmul predicts it, above which none is measured."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimated duration of a plan.

    Attributes:
        done: The keys of trials that the store already holds.
        rate: The floating-point operations a second of one worker.
        basis: A description of the source of the rate.
        workers: The number of workers that the estimate assumes.
        evaluation: The seconds of an evaluation at this rate over the arithmetic of a forward pass; 0 if not known.
        device: Where the trials are trained: `cpu` or `cuda`.
        rates: Content hash of a variant to the rate of its structure, where one of its kinds is known: the same
            arithmetic takes a recurrent kind longer than attention, and a narrow model longer than a wide one.
    """

    done: frozenset[str]
    rate: float
    basis: str
    workers: int
    evaluation: float = 0.0
    device: str = "cpu"
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts_evaluations(self) -> bool:
        """Whether the total has the time of evaluations."""
        return self.evaluation > 0

    def seconds(self, trial: Trial) -> float:
        """The training time of one trial."""
        return trial.variant.flops / self._rate(trial)

    def _rate(self, trial: Trial) -> float:
        return self.rates.get(trial.variant.hash, self.rate)

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done, with their evaluations if these were measured."""
        return sum(
            self._wall_time([trial for trial in trials if trial.key not in self.done])
            for trials in (plan.trials, plan.later)
        )

    def _wall_time(self, trials: Sequence[Trial]) -> float:
        """The wall time of trials that wait for no others, in the packs that the engine makes of them."""
        if len(trials) > _SIMULATED:
            return sum(map(self._whole, trials)) / self.workers
        queue = Queue(Packing(device=self.device), lambda: self.workers)
        for trial in trials:
            queue.add(trial)
        jobs: list[tuple[float, float, int]] = []
        free = [0.0] * self.workers
        while len(queue):
            now = heapq.heappop(free)
            running = sum(members * (end - now) / (end - begin) for begin, end, members in jobs if end > now)
            members = [waiting.trial for waiting in queue.take(running).waiting]
            end = now + sum(map(self._whole, members))
            jobs.append((now, end, len(members)))
            heapq.heappush(free, end)
        return max(free)

    def _whole(self, trial: Trial) -> float:
        variant = trial.variant
        task, training = variant.spec.task, variant.spec.training
        evaluations = 1.0 + len(training.evaluation_steps())  # the first is before training
        evaluations += len(training.rounded_bits)
        evaluations += sum(task.at_length(length).length / task.length for length in training.lengths)
        evaluation = self.evaluation * self.rate / self._rate(trial)
        return self.seconds(trial) + evaluations * evaluation * variant.cost.flops


@dataclass(frozen=True, slots=True)
class TrainerForecast:
    """How long the trials of the user's trainer take, by those that have ended.

    Attributes:
        done: The keys of trials that the store already holds.
        workers: The number of trials at once.
        times: The mean seconds of a trial by the content hash of its variant.
    """

    done: frozenset[str]
    workers: int
    times: Mapping[str, float]

    @property
    def basis(self) -> str:
        """A description of the source of the estimate."""
        return f"{len(self.done)} trials of this plan in the store"

    @property
    def counts_evaluations(self) -> bool:
        """True: a trainer's time is that of all it does."""
        return True

    def seconds(self, trial: Trial) -> float:
        """The time of one trial; NaN before any has ended. That of an untried variant is the mean of the others."""
        return self.times.get(trial.variant.hash, statistics.fmean(self.times.values()) if self.times else math.nan)

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done; NaN before any has ended."""
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

    @property
    def counts_evaluations(self) -> bool:
        """Whether the total has the time of evaluations."""

    def seconds(self, trial: Trial) -> float:
        """The training time of one trial."""

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done."""


def further_seconds(plan: Plan, estimate: Estimate) -> float:
    """The training time of the trials that results can add, if one takes as long as those that are compared.

    The plan must bound their number.
    """
    assert plan.further is not None, "the design bounds its trials"
    known = [estimate.seconds(trial) for trial in (*plan.trials, *plan.later) if not trial.role.scouts]
    return statistics.fmean(known) * plan.further / estimate.workers if known else 0.0


def forecast(
    plan: Plan,
    store: str,
    workers: int | None = None,
    *,
    device: str = "cpu",
    tasks: Callable[[VariantSpec], Task] | None = None,
) -> Forecast | TrainerForecast:
    """Estimate a plan from its trials in the store that ran on such a device, else from some steps run here.

    Steps of the user's trainer are never run for it.

    Args:
        store: Where trials may already be.
        workers: The number of trials at once; None: as many as the local engine runs.
        device: `cpu` or `cuda`, on which the engine trains.
        tasks: Opens the task of a variant; None: steps are not run, and a matmul is measured.

    Raises:
        EngineError: The machine has too few GPUs for a trial.
        StoreError: There is something at `store`, and it is not a store.
    """
    resources = plan.space.resources
    workers = workers or usual_workers(resources, device)
    settled = settled_trials(plan, store)
    done = frozenset(record.key for record in settled)
    if plan.trials and not plan.built:
        times: dict[str, list[float]] = {}
        for record in settled:
            times.setdefault(record.variant_hash, []).append(record.seconds)
        return TrainerForecast(done, workers, {digest: statistics.fmean(taken) for digest, taken in times.items()})
    trials = (*plan.trials, *plan.later)
    left = [trial for trial in trials if trial.key not in done]
    structures = {trial.variant.hash: structure(trial.variant.spec) for trial in trials}
    stored: dict[Structure, list[float]] = {}
    for record in settled:
        if record.seconds > 0 and (record.worker is None or record.worker.device.startswith(device)):
            stored.setdefault(structures[record.variant_hash], []).append(record.flops / record.seconds)
    of_stored = [rate for rates in stored.values() for rate in rates]
    basis = f"{len(of_stored)} trials of this plan in the store"
    if not trials or (of_stored and not left):  # nothing is left to estimate
        return Forecast(done, statistics.median(of_stored) if of_stored else 1.0, basis, workers)
    ranks = resources.processes if device == "cuda" else 1
    groups: dict[Structure, list[Trial]] = {}
    for trial in left or trials:
        groups.setdefault(structures[trial.variant.hash], []).append(trial)
    measured = {
        size: replace(speed, rate=speed.rate * ranks)
        for size, speed in _speeds(groups, stored.keys(), device, workers, tasks).items()
    }
    first, *others = measured.values()
    known = {size: speed.rate for size, speed in measured.items()}
    known |= {size: statistics.median(rates) for size, rates in stored.items()}
    if not of_stored:
        basis = f"{first.source}{''.join(f', and steps of {speed.of}' for speed in others)}"
    return Forecast(
        done,
        statistics.median(of_stored) if of_stored else first.rate,
        basis,
        workers,
        first.evaluation,
        device,
        {digest: known[near] for digest, size in structures.items() if (near := _nearest(size, known)) is not None},
    )


@dataclass(frozen=True, slots=True)
class Structure:
    """What decides how fast a variant computes.

    Attributes:
        kinds: Those of its blocks, its optimizer, and its precision.
        width: The width of its model.
        tokens: The tokens of a step.
    """

    kinds: tuple[frozenset[tuple[str, ...]], str, str]
    width: int
    tokens: int


def structure(spec: VariantSpec) -> Structure:
    """The structure of a variant."""
    blocks = {
        (block.mixer.kind_name(), block.mlp.kind_name(), block.residual.kind_name())
        for block in (spec.model.blocks if spec.builds_model else ())
    }
    training = spec.training
    kinds = frozenset(blocks), training.optimizer.kind_name(), training.precision
    return Structure(kinds, spec.model.width if spec.builds_model else 1, training.batch_size * spec.task.length)


def _nearest(size: Structure, known: Iterable[Structure]) -> Structure | None:
    """The known structure of the same kinds whose steps are the most alike in size."""
    alike = [other for other in known if other.kinds == size.kinds]
    matmul = size.width * size.width * size.tokens
    return min(alike, key=lambda other: abs(math.log(other.width**2 * other.tokens / matmul)), default=None)


def settled_trials(plan: Plan, store: str) -> list[TrialRecord]:
    """The trials of a plan that need not be trained again, as the store holds them.

    Raises:
        StoreError: There is something at `store`, and it is not a store.
    """
    try:
        with ablate.store.open_store(store, create=False) as opened:
            records = opened.trials([trial.key for trial in (*plan.trials, *plan.later)])
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


def _speeds(
    groups: Mapping[Structure, Sequence[Trial]],
    known: Container[Structure],
    device: str,
    workers: int,
    tasks: Callable[[VariantSpec], Task] | None,
) -> dict[Structure, Speed]:
    """The speed of the structure that the middle trial has, and of others whose speed is not known."""
    every = [trial for trials in groups.values() for trial in trials]
    of_middle = structure(_middle(every).variant.spec)
    if tasks is None:
        return {of_middle: measure_matmul(device)}
    others = sorted(groups.keys() - {of_middle}, key=lambda size: -sum(trial.variant.flops for trial in groups[size]))
    speeds: dict[Structure, Speed] = {}
    for size in [of_middle, *[size for size in others if size not in known][: _STRUCTURES - 1]]:
        speeds[size] = _speed(_middle(groups[size]).variant, every, device, workers, tasks)
        if not speeds[size].evaluation:  # its steps are too long to be measured
            break
    return speeds


def _middle(trials: Sequence[Trial]) -> Trial:
    """The trial whose arithmetic is in the middle."""
    return sorted(trials, key=lambda trial: trial.variant.flops)[len(trials) // 2]


def _speed(
    variant: Variant, left: Sequence[Trial], device: str, workers: int, tasks: Callable[[VariantSpec], Task]
) -> Speed:
    """The speed of a variant, in a pack as the engine would make of the trials that are left."""
    key = pack_key(variant.spec, variant.fingerprint)
    place = JobDevice(device, free_bytes(device) / (workers if device == "cpu" else 1))
    most = Packing(device=device).size(variant, place)
    alikes = (trial.variant for trial in left if trial.variant.flops == variant.flops)  # one structure, one cost
    same = (key is not None and pack_key(other.spec, other.fingerprint) == key for other in alikes)
    alike = sum(1 for _ in itertools.islice(filter(None, same), most * workers))  # more change nothing
    together = max(1, min(most, math.ceil(alike / workers)))
    others = min(workers, math.ceil(len(left) / together)) - 1
    return measure_speed(variant, tasks(variant.spec), device, together, others)


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured.

    Attributes:
        rate: The arithmetic of training a second of one worker.
        evaluation: The seconds of an evaluation of one trial, over the arithmetic of one forward pass of its model; 0
            if none was measured.
        source: A description of what was measured.
        of: The name of the variant whose steps were; empty if none were.
    """

    rate: float
    evaluation: float
    source: str
    of: str = ""


def measure_speed(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
    """The speed of a worker on this machine.

    Steps of a model of whose size a step would take long are not run; then a matmul is measured.

    Args:
        device: `cpu` or `cuda`.
        together: The trials that one pack of the engine holds.
        others: The further workers that are busy at the same time: threads of a CPU that multiply matrices.
    """
    where = torch.device(device)
    with torch_threads(1), _busy(others if device == "cpu" else 0):
        by_matmul = measure_matmul(device)
        usual = by_matmul.rate
        training = variant.spec.training
        if training.steps == 0 or variant.flops / training.steps * together / usual > _LONGEST_STEP:
            return by_matmul
        steps = max(training.steps, _WARM_UP_STEPS + _STEPS + 1)  # so that none of those measured is the last
        spec = timed_spec(variant.spec, steps, compile="none")
        members = [Member(spec, seed) for seed in range(together)]
        with Pack(members, task, where, lambda compute, _: EagerProgram(compute)) as pack:
            for step in range(1, _WARM_UP_STEPS + 1):
                pack.step(step)
            wait_for(where)
            measured, begin = 0, time.perf_counter()
            while measured < _STEPS and (measured == 0 or time.perf_counter() - begin < _SECONDS):
                measured += 1
                pack.step(_WARM_UP_STEPS + measured)
            wait_for(where)
            seconds = (time.perf_counter() - begin) / measured / together
            begin = time.perf_counter()
            pack.point()
            evaluation = (time.perf_counter() - begin) / together
            flops = pack.totals.phases[-1].flops
    source = f"{measured} steps and an evaluation of {variant.name} on this machine"
    return Speed(flops / seconds, evaluation / max(variant.cost.flops, 1.0), source, variant.name)


def measure_matmul(device: str) -> Speed:
    """The usual share of the speed of a square matmul, on one thread or on a GPU."""
    with torch_threads(1):
        return Speed(_UTILISATION * _matmul_rate(torch.device(device)), 0.0, "a matmul measured on this machine")


def _matmul_rate(device: torch.device) -> float:
    a = torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, device=device)
    a @ a
    wait_for(device)
    matmuls, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < _MATMUL_SECONDS:
        a @ a
        wait_for(device)
        matmuls += 1
    return 2.0 * _MATMUL_SIZE**3 * matmuls / elapsed


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was given; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch use so many threads, and leave its random state as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(before)


def timed_spec(spec: VariantSpec, steps: int, **changes: object) -> VariantSpec:
    """A variant for timing: from random weights, at its largest batch and context, for so many steps."""
    off = {"record_blocks": False, "insides": "none", "rounded_bits": (), "evaluate_at": {}}
    plain = {"init_from": None, "batch_growth": None, "context_growth": None, **off}
    training = spec.training.model_copy(update={"steps": steps, **plain, **changes})
    return spec.model_copy(update={"training": training})


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
    a = torch.randn(_MATMUL_SIZE, _MATMUL_SIZE)
    out = torch.empty_like(a)
    with torch.inference_mode():
        while not ended():
            torch.mm(a, a, out=out)

"""Runs a job in the worker of any engine: takes a job, yields messages, and samples what the worker uses."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import torch
from torch import nn

from ablate.errors import DataError, PluginError
from ablate.execution.own_trainer import TrainerFailedError, run_trainer
from ablate.execution.protocol import Broken, Done, Happened, Job, Message
from ablate.spec.code import CodeReader
from ablate.spec.space_fields import CheckpointInterval
from ablate.spec.task import Task
from ablate.spec.trainer_variant import TrainerVariant, read_variant
from ablate.spec.variant import VariantSpec
from ablate.trained.source import SourceWeights, read_source
from ablate.trained.transfer import Transfer, transfer
from ablate.trained.weights import save_weights
from ablate.training.events import Event, Measurement, Started, State
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.sharding import RankLostError, Ranks

EVERY = 10.0
"""Seconds between two samples at least: shorter trials have none, and long ones few."""


class UsageMeter:
    """Measures this process and its device, at most once in `EVERY` seconds.

    Args:
        device: The device that the process trains on.
        clock: Seconds that pass.
    """

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._clock = clock
        self._process = psutil.Process()
        self._at, self._busy = clock(), self._processor_seconds()

    def sample(self) -> dict[str, float]:
        """What was used since the last sample.

        Returns:
            `cores`: processor seconds of this process in a second, on average; `memory`: bytes that it holds in main
            memory. On a GPU also `gpu_memory`, the most bytes that its tensors have had, and `gpu`, the share of time
            in which the GPU worked of late, if the driver's Python library is installed. Empty if the last sample is
            too recent.
        """
        now = self._clock()
        passed = now - self._at
        if passed < EVERY:
            return {}
        busy = self._processor_seconds()
        used = {"cores": (busy - self._busy) / passed, "memory": float(self._process.memory_info().rss)}
        self._at, self._busy = now, busy
        if self._device.type == "cuda":
            used["gpu_memory"] = float(torch.cuda.max_memory_allocated(self._device))
            with suppress(Exception):  # the library is not there, or the driver refuses: no reason to end a trial
                used["gpu"] = torch.cuda.utilization(self._device) / 100
        return used

    def _processor_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


class JobRunner:
    """Trains jobs on one device, and keeps their data open for the next job.

    Args:
        cache: The folder of prepared data.
        devices: Those of all processes of a job, which the user's trainer sees; by default this one.
    """

    def __init__(self, cache: Path, device: torch.device, devices: Sequence[str] = ()) -> None:
        self._cache = cache
        self._device = device
        self._devices = devices or (str(device),)
        self._tasks: dict[tuple[str, str], Task] = {}
        self._reader = CodeReader()

    def run_job(
        self,
        job: Job,
        stopped: Callable[[], Sequence[int]],
        start: State | None = None,
        save: CheckpointInterval = CheckpointInterval(),  # noqa: B008 - frozen
        ranks: Ranks = Ranks(),  # noqa: B008 - frozen
    ) -> Iterator[Message]:
        """Train a job. An exception becomes a `Broken` message.

        Args:
            stopped: Called after every step; returns the members (from 0) that must leave, each once.
            start: The state of a `Checkpoint` of this job to resume from.
            save: When to yield a checkpoint.
            ranks: The processes that train it together; the first one keeps weights.

        Yields:
            `Happened` for each training event, then `Done` or `Broken`.

        Raises:
            RankLostError: Another rank has died or does not answer.
        """
        try:
            members = [Member(read_variant(member.variant), member.seed) for member in job.members]
            for planned, member in zip(job.members, members, strict=True):
                reader = self._reader if planned.folders is None else CodeReader(Path(planned.folders.root))
                self._check_code(planned.code, member.variant, reader)
            variant, folders = members[0].variant, job.members[0].folders
            if isinstance(variant, TrainerVariant) and folders is not None:
                events = run_trainer(variant, members[0].seed, folders, self._devices, stopped)
            else:
                events = self._train(job, members, stopped, start, save, ranks)
            for event in events:
                yield Happened(job.number, event)
        except RankLostError:
            raise
        except TrainerFailedError as error:
            broken = Broken(job.number, error.reason, error.log)
        except Exception as error:  # an exception of a trial must not end the worker
            sentence = str(error).strip().splitlines() or [""]
            broken = Broken(job.number, f"{type(error).__name__}: {sentence[0]}", traceback.format_exc())
        else:
            yield Done(job.number)
            return
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # it may have run out of memory; free all of it for the next job
        yield broken

    def _train(
        self,
        job: Job,
        members: list[Member],
        stopped: Callable[[], Sequence[int]],
        start: State | None,
        save: CheckpointInterval,
        ranks: Ranks,
    ) -> Iterator[Event]:
        """The events of a job whose models ablate builds."""
        task = self._task(members[0].variant, job.fingerprint)
        for number, taken in self._starts(job, members, task):
            members[number] = replace(members[number], start=taken.tensors)
            yield Started(number, taken.where, taken.copied, taken.new, taken.unused)
        meter = UsageMeter(self._device)
        keep = self._keeper(job, members) if ranks.index == 0 else None
        for event in train(members, task, self._device, keep, stopped, start=start, save=save, ranks=ranks):
            used = meter.sample() if isinstance(event, Measurement) else {}
            yield replace(event, usage=used) if isinstance(event, Measurement) and used else event

    def _starts(self, job: Job, members: Sequence[Member], task: Task) -> Iterator[tuple[int, Transfer]]:
        """What members that start from trained weights take from them, with their numbers."""
        sources: dict[str, SourceWeights] = {}
        for number, (job_member, member) in enumerate(zip(job.members, members, strict=True)):
            init_from = member.variant.training.init_from
            if init_from is None:
                continue
            if job_member.initial_weights not in sources:
                sources[job_member.initial_weights] = read_source(job_member.initial_weights, Path())
            if init_from.stage is None and sources[job_member.initial_weights].identity() != init_from.identity:
                raise DataError(
                    "the weights have changed since the study was planned",
                    where=job_member.initial_weights,
                    remedy="Run the study again: it takes the weights as they are now.",
                )
            yield number, transfer(member.variant.model, task.shape, sources[job_member.initial_weights], init_from)

    def _check_code(self, planned: str, variant: VariantSpec, reader: CodeReader) -> None:
        """Refuse to train with other code than that under whose key the trial is stored.

        Raises:
            PluginError: A file has changed since the study was planned, or is another one on this machine.
        """
        if planned and planned != (here := reader.of(variant)).identity:
            files = sorted({entry["file"] for entry in here.content.get("kinds", {}).values()})
            raise PluginError(
                f"the code of the trial's kinds ({', '.join(files)}) is not that with which the study was planned",
                where="worker",
                remedy="Run the study again: it takes the code as it is now.",
            )

    def _task(self, variant: VariantSpec, fingerprint: str) -> Task:
        key = (variant.task.canonical_json(), fingerprint)
        if key not in self._tasks:
            self._tasks[key] = variant.task.open(self._cache, fingerprint)
        return self._tasks[key]

    def _keeper(self, job: Job, members: Sequence[Member]) -> Callable[[nn.Module, int, int], None]:
        """What training is to do with its model at the end: save a member, at its place in the model, for its trial."""

        def keep(model: nn.Module, position: int, member: int) -> None:
            if path := job.members[member].weights:
                wanted = members[member]
                code = self._reader.of(wanted.variant)
                save_weights(Path(path), model, position, wanted.variant, wanted.seed, job.fingerprint, code)

        return keep

"""The code of an actor of Ray Tune: runs one job after another and reports their messages in batches.

An actor runs many jobs (`reuse_actors`). A result holds the messages of about a second, so a short trial needs
one result and a long one causes little overhead. A checkpoint ends a result, because Ray Tune saves between results.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray.tune import Checkpoint, PlacementGroupFactory, Trainable
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from ablate.execution.checkpoint import UnreadableCheckpointError, read_checkpoint, write_checkpoint
from ablate.execution.environment import this_worker
from ablate.execution.job_runner import JobRunner
from ablate.execution.options import RunOptions, WorkerSettings
from ablate.execution.protocol import Began, Broken, Done, Happened, Job, Message, StateReplaced
from ablate.execution.ranks import rank_group
from ablate.execution.ray.cluster import Placement
from ablate.execution.ray.files import local_cache, write_plugin
from ablate.execution.ray.scheduling import (
    JOB,
    LEFT,
    LOSS,
    MESSAGES,
    PLACEMENT,
    STEPS,
    VALUES,
    history,
    population_of,
    values_in,
    with_values,
)
from ablate.locations import temporary_folder
from ablate.nn.kernels.processor import keep_freed_memory
from ablate.plugins import load_plugin
from ablate.processes import adopt_modules, keep_printing
from ablate.spec.training import PopulationSpec
from ablate.training import events
from ablate.training.events import Measurement, State, Tick

_REPORT_SECONDS = 1.0


class JobTrainable(Trainable):
    """Trains the job that is its configuration."""

    # The current job.
    _job: Job
    _messages: Iterator[Message]
    _state: State
    _asked_to_stop: list[int]
    _population: PopulationSpec | None
    _values: dict[str, float]
    _history: list[list[Any]]
    _loss: float
    _fresh: bool

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """The resources that Ray reserves: the placement that the engine chose for the job."""
        placement: Placement = config[PLACEMENT]
        return placement.request()

    def setup(self, config: dict[str, Any], **brought: Any) -> None:
        """Set up the actor and its first job; `reset_config` brings further jobs.

        Args:
            config: The job, its placement, and its checkpoints from an earlier driver.
            brought: `options` (of the run), `courier` (the handle of the `Courier`) and `plugins` (paths and files).
        """
        placement: Placement = config[PLACEMENT]
        keep_printing()
        adopt_modules()
        keep_freed_memory()
        torch.set_num_threads(placement.threads)
        plugins = [write_plugin(path, files) for path, files in brought["plugins"]]
        for plugin in plugins:
            load_plugin(plugin)
        options: RunOptions = brought["options"]
        self._options = replace(options, threads=placement.threads, plugins=plugins)
        self._courier = brought["courier"]
        self._devices = placement.devices
        self._device = torch.device(self._devices[0])
        self._runners: dict[Path, JobRunner] = {}
        self._warnings: list[str] = []
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start the next job."""
        self._take(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train for about a second, or to a checkpoint or the end of the job if these come first."""
        messages: list[Message] = []
        result: dict[str, Any] = {MESSAGES: messages, DONE: False, SHOULD_CHECKPOINT: False}
        # Do not ask in the first step of a job: many jobs end in it.
        if not self._fresh:
            self._asked_to_stop += ray.get(self._courier.stops.remote(self._job.number))
        self._fresh = False
        deadline = time.monotonic() + _REPORT_SECONDS
        for message in self._messages:
            match message:
                case Happened(event=events.Checkpoint(step, state)):
                    self._state = {**state, VALUES: self._history} if self._population else state
                    return result | {SHOULD_CHECKPOINT: True, STEPS: step, LOSS: self._loss}
                case Happened(event=Measurement(metrics=metrics)):
                    self._loss = metrics.get("val_loss", [math.nan])[0]
                    messages.append(message)
                case Happened(event=Tick()) if messages and isinstance(getattr(messages[-1], "event", None), Tick):
                    messages[-1] = message
                case _:
                    messages.append(message)
            if isinstance(message, Done | Broken):
                return result | {DONE: True}
            if time.monotonic() > deadline:
                break
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the state that the last result asked to be saved, with the file that names its job and step."""
        write_checkpoint(Path(checkpoint_dir), self._state, self._keys())

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Continue from the state in this folder instead of starting the job.

        If the state cannot be read, the job restarts; a member of a population must continue from this very state.
        """
        try:
            self._begin(read_checkpoint(Path(checkpoint), None if self._population else self._keys()))
        except UnreadableCheckpointError as error:
            if self._population:
                raise
            self._unreadable(error)
            self._begin(None)

    def cleanup(self) -> None:
        """End the job, whether it has ended or not."""
        self._messages = iter(())

    def _take(self, config: dict[str, Any]) -> None:
        self._job = config[JOB]
        self.config = {}  # it comes back with every result, and the driver knows the job
        self._values = values_in(config)
        self._population = population_of(self._job)
        if self._values:
            self._job = with_values(self._job, self._values)
        self._begin(self._find(config[LEFT]))

    def _find(self, left: Sequence[str]) -> State | None:
        """The newest whole checkpoint that an earlier driver left; it may have died while one was written."""
        assert self._storage is not None
        for path in left:
            try:
                with Checkpoint(path, self._storage.storage_filesystem).as_directory() as folder:
                    return read_checkpoint(Path(folder), None if self._population else self._keys())
            except OSError:
                continue
            except UnreadableCheckpointError as error:
                self._unreadable(error)
        return None

    def _keys(self) -> list[str]:
        return [member.key for member in self._job.members]

    def _unreadable(self, error: UnreadableCheckpointError) -> None:
        self._warnings.append(f"a checkpoint cannot be used ({error}): an older one is, or training begins again")

    def _begin(self, start: State | None) -> None:
        self._fresh = True
        self._state = {}
        self._loss = math.nan
        self._asked_to_stop = []
        self._messages = self._run_job(start)

    def _run_job(self, start: State | None) -> Iterator[Message]:
        yield Began(self._job.number, this_worker(self._device.type, len(self._devices)))
        warnings, self._warnings = self._warnings, []
        for text in warnings:
            yield Happened(self._job.number, events.TrialWarning(text))
        cache = local_cache(self._options.folder, self._job.fingerprint, self._courier)
        options = replace(self._options, cache=cache)
        if self._population:
            options = replace(options, checkpoint_every=str(self._population.every))
            self._history = history(start, self._values)
            yield StateReplaced(self._job.number, tuple((step, values) for step, values in self._history))
        runner = self._runners.setdefault(cache, JobRunner(cache, self._device, self._devices))
        with ExitStack() as stack:
            folder = ""
            if start is not None and len(self._devices) > 1:  # what Tune gave is gone when the other processes start
                made = tempfile.TemporaryDirectory(prefix="ablate-start-", dir=temporary_folder())
                folder = stack.enter_context(made)
                write_checkpoint(Path(folder), start, self._keys())
            with rank_group(self._job, WorkerSettings(options, tuple(self._devices)), folder) as ranks:
                yield from runner.run_job(self._job, self._stopped, start, options.checkpoint_interval, ranks)

    def _stopped(self) -> list[int]:
        asked, self._asked_to_stop = self._asked_to_stop, []
        return asked

"""The local engine: worker processes on this machine, one for each core or for each GPU."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO

from ablate.errors import EngineError
from ablate.execution.checkpoint import Checkpoints, JobCheckpoints
from ablate.execution.engine import Engine
from ablate.execution.environment import check_abilities, check_shard, check_shares, choose_device
from ablate.execution.options import RunOptions, WorkerSettings
from ablate.execution.own_trainer import end_of_log
from ablate.execution.protocol import Broken, Done, Job, Message, Ready, Stop
from ablate.execution.worker import worker_environment
from ablate.locations import temporary_folder
from ablate.machine import available_cores, cores_for
from ablate.planning.forecast import measure_matmul
from ablate.planning.memory import check_fits, check_memory, free_bytes
from ablate.planning.packing import ResumablePack
from ablate.planning.plan import Plan
from ablate.processes import child_environment, python_command

_CLOSE_SECONDS = 2.0
_GIB = 2**30
_KERNEL_COUNTS = Path("/proc/vmstat")


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    devices: tuple[str, ...]
    slot: int
    log: IO[bytes]
    ready: bool = False
    job: Job | None = None


class LocalEngine(Engine):
    """Runs jobs in worker processes on this machine; each process runs many jobs.

    Args:
        checkpoints: The folder of the checkpoints of the study; None: in the cache.
        ranks: The processes that train each job together, on a device each; more than `resources.gpus` on a CPU only.
        pinned: Whether workers are pinned to cores when together they use all cores of the CPU.
    """

    def __init__(
        self,
        options: RunOptions,
        checkpoints: Path | None = None,
        ranks: int = 1,
        pinned: bool = True,
    ) -> None:
        resources = options.resources_of_job()
        device = choose_device("cpu" if options.device == "auto" and resources.gpus == 0 else options.device)
        _check_options(options, device)
        threads = max(options.threads, int(resources.cpus))
        self._options = replace(options, cache=options.folder, threads=threads)
        self.device = device
        self._threads = threads
        self._memory = int((resources.memory or 0) * _GIB)
        folder = checkpoints or options.folder / "checkpoints"
        self._checkpoints = Checkpoints(folder.absolute(), resources.checkpoint_interval)
        self._finished: list[JobCheckpoints] = []
        """The checkpoints of jobs whose end was reported; they are removed when the driver has stored the results."""
        self._pinned = pinned and device == "cpu"
        devices = [device]
        if device == "cuda":
            devices = [f"cuda:{i}" for i in range(_gpus())]
        self._ranks = max(ranks, resources.processes)
        self._shard = resources.shard
        there = len(devices) / (resources.gpus or 1) if device == "cuda" else available_cores() / threads / self._ranks
        count = options.workers or max(1, min(int(there), self._fit() if self._memory else sys.maxsize))
        first = [i * self._ranks for i in range(count)]
        self._devices = [tuple(devices[(i + j) % len(devices)] for j in range(self._ranks)) for i in first]
        self._workers: list[_Worker] = []
        self._killed_for_memory = _killed_for_memory()

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self._devices)

    def room(self) -> int:
        return self.size - sum(worker.job is not None for worker in self._workers)

    def admit(self, plan: Plan) -> None:
        """Check the predicted memory of the plan."""
        if self._memory and self.size > self._fit():
            raise EngineError(
                "the workers do not have the memory of a job each",
                where="resources.memory or --memory",
                expected=f"at most {free_bytes(self.device) / _GIB:.1f} GiB for {self.size} workers",
                got=f"{self._memory / _GIB:g} GiB for each",
                remedy="Ask for less memory, or use fewer --workers.",
            )
        check_abilities(plan.built, self.device)
        if self._shard:
            check_shard(plan.built, self._ranks)
        check_memory(plan, self.size, self.device, self._ranks, shard=self._shard)
        check_shares(plan.built, self._ranks)
        if any(trial.variant.spec.training.population for trial in plan.trials):
            raise EngineError(
                "population based training needs Ray Tune, which exchanges the members' checkpoints",
                where="design.kind: population",
                remedy="Run it with `--engine ray`; without `--address` that is this machine alone.",
            )

    def admit_blocks(self, variant: str, needed: int) -> None:
        # Each process has at least its share; `admit` knows it exactly.
        check_fits(variant, needed // self._ranks, self.size * self._ranks, self.device)

    def speed(self) -> float:
        return measure_matmul(self.device).rate

    def resumable_packs(self) -> list[ResumablePack]:
        return [] if self._shard else self._checkpoints.resumable_packs()

    def complete(self) -> None:
        self._checkpoints.clear()

    def submit(self, job: Job) -> None:
        """Start a job. A worker process starts with the first job that needs it."""
        idle = [worker for worker in self._workers if worker.job is None]
        worker = idle[0] if idle else self._start()
        worker.job = job
        with suppress(BrokenPipeError, ConnectionResetError):  # the worker died while idle; `poll` reports it
            worker.pipe.send(job)

    def stop(self, number: int, member: int) -> None:
        for worker in self._workers:
            if worker.job is not None and worker.job.number == number:
                with suppress(BrokenPipeError, ConnectionResetError):  # the worker died; `poll` reports it
                    worker.pipe.send(Stop(number, member))

    def poll(self, timeout: float) -> list[Message]:
        """The messages since the last call. If a worker died, its job is `Broken` and the next job starts another."""
        self._remove_checkpoints()
        messages: list[Message] = []
        ready = set(wait([worker.pipe for worker in self._workers], timeout))
        for worker in [worker for worker in self._workers if worker.pipe in ready]:
            try:
                while worker.pipe.poll():
                    message: Message | Ready = worker.pipe.recv()
                    if isinstance(message, Ready):
                        worker.ready = True
                        continue
                    messages.append(message)
                    if isinstance(message, (Done, Broken)) and worker.job is not None:
                        # An exception would be raised again, and a pack is split: neither resumes.
                        self._finished.append(self._checkpoints.of(worker.job))
                        worker.job = None
            except (EOFError, OSError):
                messages += self._bury(worker)
        return messages

    def _fit(self) -> int:
        """The number of workers that the memory of a job each allows."""
        return int(free_bytes(self.device) / self._memory)

    def _remove_checkpoints(self) -> None:
        finished, self._finished = self._finished, []
        for checkpoints in finished:
            checkpoints.remove()

    def close(self) -> None:
        self._remove_checkpoints()
        for worker in self._workers:
            worker.pipe.close()
            worker.log.close()
            worker.process.terminate()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(deadline - time.monotonic())
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._workers.clear()

    def _start(self) -> _Worker:
        if sys.platform == "win32":
            raise NotImplementedError  # a worker inherits its pipe by file descriptor, which Windows cannot do
        used = [worker.devices for worker in self._workers]
        devices = min(self._devices, key=lambda names: used.count(names) / self._devices.count(names))
        slot = min(set(range(self.size)) - {worker.slot for worker in self._workers})
        cores = cores_for(slot, self.size, self._threads) if self._pinned else []
        ours, theirs = Pipe()
        log = tempfile.TemporaryFile(dir=temporary_folder())  # noqa: SIM115 - closed when the worker is
        process = subprocess.Popen(
            python_command("-m", "ablate.execution.worker", str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=child_environment(worker_environment(self._threads)),
        )
        theirs.close()
        with suppress(BrokenPipeError, ConnectionResetError):  # the worker died; `poll` reports it
            ours.send(WorkerSettings(self._options, devices, tuple(cores), self._checkpoints.folder))
        worker = _Worker(process, ours, devices, slot, log)
        self._workers.append(worker)
        return worker

    def _bury(self, worker: _Worker) -> list[Message]:
        self._workers.remove(worker)
        worker.pipe.close()
        code = worker.process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if sys.platform == "linux" and code == -signal.SIGKILL and _killed_for_memory() > self._killed_for_memory:
            how += ", as the system was out of memory"
        with worker.log:
            log = end_of_log(worker.log)
        if code > 0 and not worker.ready:
            error = EngineError(
                f"a worker {how} before it could train",
                where="local engine",
                got=log.splitlines()[-1] if log else "no output",
                remedy="Fix the error, then run the same command again; `--debug` shows all its output.",
            )
            error.add_note(log)
            raise error
        # There is no traceback of the trial, so the last output of its worker is the best explanation.
        if worker.job is None:
            return []
        saved = self._checkpoints.of(worker.job).newest_step()
        return [Broken(worker.job.number, f"its worker {how}", "", log, saved)]


def _check_options(options: RunOptions, device: str) -> None:
    """Refuse what only a cluster can give to a job, and GPUs that are not there.

    Raises:
        EngineError: This engine cannot give what the options ask for, or does not run on this system.
    """
    resources = options.resources_of_job()
    if sys.platform == "win32":
        raise EngineError(
            "the local engine does not run on Windows, where a worker cannot inherit a pipe by its file descriptor",
            where="--engine local",
            remedy="Use Linux or macOS; on Windows that is WSL.",
        )
    needing_cluster = {
        "--address": options.address,
        "resources.custom or --resource": resources.custom,
        "resources.labels or --label": resources.labels,
    }
    for where, value in needing_cluster.items():
        if value:
            raise EngineError(
                "the local engine trains on this machine alone, and this needs `--engine ray`",
                where=where,
                got=value if isinstance(value, str) else ", ".join(f"{key}: {each}" for key, each in value.items()),
                remedy="Add `--engine ray`, or leave it out.",
            )
    if "://" in resources.checkpoint_dir:
        raise EngineError(
            "the local engine writes checkpoints into a folder, and a URL needs `--engine ray`",
            where="resources.checkpoint_dir or --checkpoint-dir",
            expected="a folder of this machine",
            got=resources.checkpoint_dir,
            remedy="Name a folder, add `--engine ray`, or leave it out for a folder beside the store.",
        )
    asked, there = resources.gpus or 0, _gpus() if device == "cuda" else 0
    if resources.gpus == 0 and device == "cuda":
        raise EngineError(
            "this asks for no GPU, and the study runs on one",
            where="resources.gpus or --gpus",
            got="0 with --device cuda",
            remedy="Use `--device cpu`, or ask for a GPU.",
        )
    if asked > there:
        raise EngineError(
            "this machine has too few GPUs for a trial",
            where="resources.gpus or --gpus",
            expected=f"at most {there}" if there else "no GPUs: the study runs on the CPU",
            got=f"{asked:g}",
            remedy="Ask for fewer, or run it on another machine.",
        )


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _killed_for_memory() -> int:
    """How many processes the kernel has killed since the machine started because memory was short; 0 if unknown."""
    with suppress(OSError, StopIteration, ValueError):
        lines = _KERNEL_COUNTS.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])
    return 0

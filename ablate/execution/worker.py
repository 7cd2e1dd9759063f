"""A worker process, which trains one job after another, and the messages between it and the driver.

The worker receives jobs and sends messages over a pipe. If the driver dies, the pipe breaks and the worker ends, so a
killed driver leaves no process running.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from ablate.cores import pin
from ablate.nn.kernels.allocator import keep_freed_memory
from ablate.store.records import WorkerRecord
from ablate.training.events import Event


@dataclass(frozen=True, slots=True)
class JobMember:
    """One trial of a job.

    Attributes:
        variant: The variant as JSON, so that any process can read it.
        seed: The seed of its initial values and batches.
        weights: The file for the final weights; empty if they are not kept.
        key: The key of the trial in the store; empty if it is in none.
    """

    variant: str
    seed: int
    weights: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A pack to train: trials of one structure on the same data. Messages number its members from 0."""

    number: int
    members: tuple[JobMember, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The driver asks a member to leave its job."""

    number: int
    member: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has imported its modules and waits for its first job."""


@dataclass(frozen=True, slots=True)
class Began:
    """A worker has started a job."""

    number: int
    worker: WorkerRecord


@dataclass(frozen=True, slots=True)
class JobRestarted:
    """A job lost its worker; the engine restarts it from the beginning or from its last checkpoint.

    The job sends its whole curve again.
    """

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class StateReplaced:
    """A member of a population continues from another state, its own or that of another member.

    It sends its whole curve again.

    Attributes:
        number: The number of the job.
        values: The history of the hyperparameters of this state: pairs of a first step and a mapping of path to value.
    """

    number: int
    values: tuple[tuple[int, dict[str, float]], ...]


@dataclass(frozen=True, slots=True)
class Happened:
    """A training event of a job."""

    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Done:
    """A job has ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A job raised an exception or lost its worker.

    Attributes:
        number: The number of the job.
        reason: One sentence.
        trace: The traceback of the exception; empty if the worker died.
        log: The last output of a worker that died.
    """

    number: int
    reason: str
    trace: str
    log: str = ""


Message = Began | JobRestarted | StateReplaced | Happened | Done | Broken
"""The messages from an engine to the driver."""


def worker_environment(threads: int) -> dict[str, str]:
    """Environment variables that must be set before a worker starts."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }


def work(
    pipe: Connection, cache: str, device: str, threads: int, cores: Sequence[int], plugins: tuple[str, ...]
) -> None:
    """The main function of a worker: run jobs until the pipe closes, on the given cores or on all if none are given."""
    pin(cores)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    keep_freed_memory()
    import torch

    from ablate.execution.carry import Carrier
    from ablate.execution.environment import this_worker
    from ablate.plugins import load_plugin

    torch.set_num_threads(threads)
    for plugin in plugins:
        load_plugin(plugin)
    carrier = Carrier(Path(cache), torch.device(device))
    here = this_worker(device)
    pipe.send(Ready())
    try:
        while True:
            job: Job | Stop = pipe.recv()
            if isinstance(job, Stop):
                continue  # the job has already ended
            pipe.send(Began(job.number, here))
            for message in carrier.carry_out(job, partial(_stopped, pipe, job.number)):
                pipe.send(message)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)


def _stopped(pipe: Connection, number: int) -> list[int]:
    """The members of a job that the driver has asked to leave. While a job runs, it sends nothing else."""
    found: list[int] = []
    while pipe.poll():
        stop: Stop = pipe.recv()
        if stop.number == number:
            found.append(stop.member)
    return found


if __name__ == "__main__":
    descriptor, cache_folder, device_name, thread_count, places, *plugin_files = sys.argv[1:]
    # With `-m` this file is `__main__`. Messages must be classes of the imported module, or they cannot be unpickled.
    from ablate.execution import worker

    own_cores = [int(place) for place in places.split(",") if place]
    end = Connection(int(descriptor))
    worker.work(end, cache_folder, device_name, int(thread_count), own_cores, tuple(plugin_files))

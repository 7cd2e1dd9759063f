"""A worker: a process that stays warm and trains one pack after another.

It speaks with the driver over a pipe: jobs come in, messages go out. When the driver is gone the pipe breaks and the
worker ends, so that a killed driver leaves nothing running.
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

from ablate.engine.cores import pin
from ablate.kernels.allocator import keep_freed_memory
from ablate.store.records import WorkerRecord
from ablate.training.events import Event


@dataclass(frozen=True, slots=True)
class JobMember:
    """One trial of a job.

    Attributes:
        variant: As JSON, so that any process can read it.
        seed: Of its initial values and batches.
        weights: File for the final weights; empty if they are not kept.
        key: Of the trial in the store; empty if it is in none.
    """

    variant: str
    seed: int
    weights: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A pack to train: trials of one structure, on the same data. What is said of them counts them from 0."""

    number: int
    members: tuple[JobMember, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The driver wants no more of a member: it is to leave its job."""

    number: int
    member: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has imported what it needs and waits for its first job."""


@dataclass(frozen=True, slots=True)
class Began:
    """A job has reached a worker."""

    number: int
    worker: WorkerRecord


@dataclass(frozen=True, slots=True)
class Again:
    """A job lost its worker, and its engine has it begun again, or gone on from its last checkpoint.

    All of its curve that counts is told again.
    """

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Took:
    """A member of a population goes on from a state, its own or another's; all of its curve is told again.

    Attributes:
        number: Of the job.
        values: What the weights of this state were trained with, and will be: from which step on, path to value.
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
    """A job came to its end."""

    number: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A job raised, or lost its worker.

    Attributes:
        number: Of the job.
        reason: One sentence.
        trace: The traceback of what the trial raised; empty if its worker died.
        log: The last output of a worker that died.
    """

    number: int
    reason: str
    trace: str
    log: str = ""


Message = Began | Again | Took | Happened | Done | Broken
"""What an engine passes on to the driver."""


def worker_environment(threads: int) -> dict[str, str]:
    """Environment variables that a worker must be born with."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }


def work(
    pipe: Connection, cache: str, device: str, threads: int, cores: Sequence[int], plugins: tuple[str, ...]
) -> None:
    """Run jobs until the pipe closes, on these cores or (none given) on all. The entry point of a worker process."""
    pin(cores)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    keep_freed_memory()
    import torch

    from ablate.engine.carry import Carrier
    from ablate.engine.environment import this_worker
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
                continue  # its job has ended meanwhile
            pipe.send(Began(job.number, here))
            for message in carrier.carry_out(job, partial(_stopped, pipe, job.number)):
                pipe.send(message)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)


def _stopped(pipe: Connection, number: int) -> list[int]:
    """Members of a job that the driver wants no more of. While a job runs, nothing else comes in."""
    found: list[int] = []
    while pipe.poll():
        stop: Stop = pipe.recv()
        if stop.number == number:
            found.append(stop.member)
    return found


if __name__ == "__main__":
    descriptor, cache_folder, device_name, thread_count, places, *plugin_files = sys.argv[1:]
    # Run as `-m`, this file is `__main__`; messages must be those of the imported module, or they cannot be unpickled.
    from ablate.engine import worker

    own_cores = [int(place) for place in places.split(",") if place]
    end = Connection(int(descriptor))
    worker.work(end, cache_folder, device_name, int(thread_count), own_cores, tuple(plugin_files))

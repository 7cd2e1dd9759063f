"""A worker process of the local engine, which trains one job after another.

The worker receives jobs and sends messages over a pipe. If the driver dies, the pipe breaks and the worker ends, so a
killed driver leaves no process running.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from ablate.execution.protocol import Began, Happened, Job, Ready, Stop
from ablate.launching import adopt_modules
from ablate.machine import pin
from ablate.nn.kernels.processor import keep_freed_memory
from ablate.spec.resources import CheckpointInterval
from ablate.streams import keep_printing


def worker_environment(threads: int) -> dict[str, str]:
    """Environment variables that must be set before a worker starts."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }


def work(
    pipe: Connection,
    cache: str,
    device: str,
    threads: int,
    cores: Sequence[int],
    checkpoints: tuple[str, CheckpointInterval],
    plugins: tuple[str, ...],
    *,
    shard: bool,
) -> None:
    """The main function of a worker: run jobs until the pipe closes, on the given cores or on all if none are given."""
    adopt_modules()
    pin(cores)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    keep_freed_memory()
    import torch

    from ablate.execution.carry import Carrier
    from ablate.execution.checkpoint import Checkpoints
    from ablate.execution.environment import this_worker
    from ablate.execution.ranks import rank_group
    from ablate.plugins import load_plugin
    from ablate.training.events import Checkpoint, Remark
    from ablate.training.ranks import RankLostError

    torch.set_num_threads(threads)
    for plugin in plugins:
        load_plugin(plugin)
    devices = device.split(",")  # the first is its own; the others are of further ranks
    carrier = Carrier(Path(cache), torch.device(devices[0]))
    saved = Checkpoints(Path(checkpoints[0]), checkpoints[1])
    here = this_worker(devices[0], len(devices))
    pipe.send(Ready())
    try:
        while True:
            job: Job | Stop = pipe.recv()
            if isinstance(job, Stop):
                continue  # the job has already ended
            pipe.send(Began(job.number, here))
            kept = saved.of(job)
            start = kept.newest()
            stopped = partial(_stopped, pipe, job.number)
            group = rank_group(
                job, Path(cache), devices, threads, plugins, kept.newest_file, saved.interval, shard=shard
            )
            with group as ranks:
                for message in carrier.carry_out(job, stopped, start, saved.interval, ranks):
                    match message:
                        case Happened(event=Checkpoint(step, state)):
                            kept.write(step, state)
                        case _:
                            pipe.send(message)
                    for remark in kept.take_remarks():
                        pipe.send(Happened(job.number, Remark(remark)))
    except RankLostError as lost:
        sys.exit(f"another process of a trial on several devices was lost: {lost}")  # the job resumes in another worker
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)


def _stopped(pipe: Connection, number: int) -> list[int]:
    """The members of a job that the driver has asked to leave. While a job runs, it sends nothing else."""
    members: list[int] = []
    while pipe.poll():
        stop: Stop = pipe.recv()
        if stop.number == number:
            members.append(stop.member)
    return members


if __name__ == "__main__":
    keep_printing()
    descriptor, cache_folder, device_name, thread_count, places, *more = sys.argv[1:]
    folder, steps, seconds, sharded, *plugin_files = more
    own_cores = [int(place) for place in places.split(",") if place]
    end = Connection(int(descriptor))
    written = folder, CheckpointInterval(int(steps), float(seconds))
    work(
        end,
        cache_folder,
        device_name,
        int(thread_count),
        own_cores,
        written,
        tuple(plugin_files),
        shard=sharded == "shard",
    )

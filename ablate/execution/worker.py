"""A worker process of the local engine, which trains one job after another.

The worker receives jobs and sends messages over a pipe. If the driver dies, the pipe breaks and the worker ends, so a
killed driver leaves no process running.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from multiprocessing.connection import Connection

from ablate.execution.options import WorkerSettings
from ablate.execution.protocol import Began, Happened, Job, Ready, Stop
from ablate.machine import pin
from ablate.nn.kernels.processor import keep_freed_memory
from ablate.processes import adopt_modules, keep_printing


def worker_environment(threads: int) -> dict[str, str]:
    """Environment variables that must be set before a worker starts."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }


def work(pipe: Connection) -> None:
    """The main function of a worker: read its settings, then run jobs until the pipe closes."""
    adopt_modules()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    try:
        settings: WorkerSettings = pipe.recv()
    except (EOFError, ConnectionResetError):
        os._exit(0)
    pin(settings.cores)
    keep_freed_memory()
    import torch

    from ablate.execution.checkpoint import Checkpoints
    from ablate.execution.environment import this_worker
    from ablate.execution.job_runner import JobRunner
    from ablate.execution.ranks import rank_group
    from ablate.plugins import load_plugin
    from ablate.training.events import Checkpoint, TrialWarning
    from ablate.training.sharding import RankLostError

    options, devices = settings.options, settings.devices
    torch.set_num_threads(options.threads)
    for plugin in options.plugins:
        load_plugin(plugin)
    runner = JobRunner(options.folder, torch.device(devices[0]), devices)
    saved = Checkpoints(settings.checkpoints, options.checkpoint_interval)
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
            stopped = partial(_members_to_stop, pipe, job.number)
            with rank_group(job, settings, kept.newest_file) as ranks:
                for message in runner.run_job(job, stopped, start, saved.interval, ranks):
                    match message:
                        case Happened(event=Checkpoint(step, state)):
                            kept.write(step, state)
                        case _:
                            pipe.send(message)
                    for warning in kept.take_warnings():
                        pipe.send(Happened(job.number, TrialWarning(warning)))
    except RankLostError as lost:
        sys.exit(f"another process of a trial on several devices was lost: {lost}")  # the job resumes in another worker
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)


def _members_to_stop(pipe: Connection, number: int) -> list[int]:
    """The members of a job that the driver has asked to leave. While a job runs, it sends nothing else."""
    members: list[int] = []
    while pipe.poll():
        stop: Stop = pipe.recv()
        if stop.number == number:
            members.append(stop.member)
    return members


if __name__ == "__main__":
    keep_printing()
    work(Connection(int(sys.argv[1])))

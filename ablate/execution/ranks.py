"""The processes of one trial on several devices of this machine: the worker is the first, and starts the others."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from ablate.execution.checkpoint import help_to_write, read_checkpoint
from ablate.execution.job_runner import JobRunner
from ablate.execution.options import WorkerSettings
from ablate.execution.protocol import Broken, Happened, Job
from ablate.locations import temporary_folder
from ablate.plugins import load_plugin
from ablate.processes import adopt_modules, child_environment, keep_printing, python_command
from ablate.training.events import Checkpoint
from ablate.training.sharding import RankLostError, Ranks

SILENT_SECONDS = 600.0
"""How long the other ranks may be silent before the trial is restarted from its last checkpoint."""


_LOOPBACK = ("lo", "lo0")
"""The interface that only this machine reaches, on Linux and macOS. Ranks exchange pickles, and all are here; by itself
gloo would listen on the interface that the name of the machine leads to."""


@dataclass(frozen=True, slots=True)
class _Orders:
    """What each rank but the first reads from its standard input.

    Attributes:
        start: The folder of the checkpoint to resume from; empty to start at step 0.
        meeting: The file through which the ranks connect (torch's `FileStore`).
        silent_seconds: See `SILENT_SECONDS`.
    """

    job: Job
    settings: WorkerSettings
    index: int
    start: str
    meeting: str
    silent_seconds: float


@contextmanager
def rank_group(
    job: Job, settings: WorkerSettings, start: str, silent_seconds: float = SILENT_SECONDS
) -> Iterator[Ranks]:
    """Start the further ranks of a job while the context lasts; nothing is started for a single device.

    Raises:
        RankLostError: They could not be reached.
    """
    devices = settings.devices
    if (job.ranks or len(devices)) == 1:
        yield Ranks()
        return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ablate-ranks-", dir=temporary_folder()))
        meeting, closing = f"file://{folder}/meeting", threading.Event()
        for index in range(1, len(devices)):
            command = python_command("-m", "ablate.execution.ranks")
            process = subprocess.Popen(command, stdin=subprocess.PIPE, env=child_environment())
            stack.callback(_end, process)
            orders = _Orders(job, settings, index, start, meeting, silent_seconds)
            assert process.stdin is not None, "it has a pipe"
            pickle.dump(orders, process.stdin)
            process.stdin.flush()  # the pipe stays open: when it breaks, the rank ends
            threading.Thread(target=_watch, args=(process, closing, folder), daemon=True).start()
        stack.callback(closing.set)
        yield stack.enter_context(_join(meeting, settings, 0, silent_seconds))


@contextmanager
def _join(meeting: str, settings: WorkerSettings, index: int, silent_seconds: float) -> Iterator[Ranks]:
    devices = settings.devices
    device = torch.device(devices[index])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    for _, interface in socket.if_nameindex():
        if interface in _LOOPBACK:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    try:
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=meeting,
            rank=index,
            world_size=len(devices),
            timeout=timedelta(seconds=silent_seconds),
        )
    except (RuntimeError, ValueError) as error:
        raise RankLostError(f"the processes of a trial could not connect to each other: {error}") from error
    try:
        yield Ranks(index, len(devices), settings.options.resources_of_job().shard)
    finally:
        distributed.destroy_process_group()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    if process.stdin is not None:
        process.stdin.close()
    process.wait()


def _watch(process: subprocess.Popen[bytes], closing: threading.Event, folder: str) -> None:
    """End this process if another rank dies: NCCL would wait for it. The job resumes in another worker.

    `os._exit` runs no clean-up, so that the folder in which the ranks meet is removed before it.
    """
    if process.wait() and not closing.is_set():
        sys.stderr.write(f"the process {process.pid} of a trial on several devices ended with {process.returncode}\n")
        sys.stderr.flush()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _work(orders: _Orders) -> None:
    """The main function of a further rank: train and help to write checkpoints, but send no messages."""
    settings, options = orders.settings, orders.settings.options
    torch.set_num_threads(options.threads)
    for plugin in options.plugins:
        load_plugin(plugin)
    runner = JobRunner(options.folder, torch.device(settings.devices[orders.index]))
    start = read_checkpoint(Path(orders.start), [member.key for member in orders.job.members]) if orders.start else None
    with _join(orders.meeting, settings, orders.index, orders.silent_seconds) as ranks:
        for message in runner.run_job(orders.job, lambda: (), start, options.checkpoint_interval, ranks):
            if isinstance(message, Broken):
                sys.stderr.write(message.trace)
                sys.stderr.flush()
                os._exit(1)
            if isinstance(message, Happened) and isinstance(message.event, Checkpoint):
                help_to_write(message.event.state)


if __name__ == "__main__":
    keep_printing()
    adopt_modules()
    given: _Orders = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _work(given)
    except RankLostError as lost:
        sys.exit(f"a rank was lost: {lost}")

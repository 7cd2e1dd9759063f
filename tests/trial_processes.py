"""Find the workers of the local engine and the further processes (ranks) of a trial, and kill a rank."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
from engine_samples import Log

from ablate.planning.plan import Trial
from ablate.training.events import Measurement
from benchmarks.forked_workers import FORKED, FORKED_RANK


def is_worker(process: psutil.Process) -> bool:
    """Whether a process is a worker of the local engine, started as a program or forked."""
    return process.name() == FORKED or "ablate.execution.worker" in process.cmdline()


def is_rank(process: psutil.Process) -> bool:
    """Whether a process is a rank, started as a program or forked."""
    return process.name() == FORKED_RANK or "ablate.execution.ranks" in process.cmdline()


_HOLD = """
import time
from pathlib import Path
from ablate.execution.checkpoint import JobCheckpoints
write = JobCheckpoints.write
def write_and_wait(self, step, state):
    write(self, step, state)
    while step > {step} and Path({file!r}).exists():
        time.sleep(0.01)
JobCheckpoints.write = write_and_wait
"""


class KillsARank(Log):
    """Kills the second process of a trial, without warning, at the first measurement from a step on.

    Its plugin holds the trial at the checkpoint after that step until the process is killed: on a busy machine the
    step may be reported after the trial has ended.

    Args:
        step: The step; a measurement follows it no later than a checkpoint.
        folder: An existing folder.

    Attributes:
        plugin: A file for the workers.
        killed: How many processes were killed.
    """

    def __init__(self, step: int, folder: Path) -> None:
        super().__init__()
        self.step, self.killed = step, 0
        self._hold = folder / "hold"
        self._hold.touch()
        self.plugin = folder / "holds.py"
        self.plugin.write_text(_HOLD.format(step=step, file=str(self._hold)))

    def measured(self, trial: Trial, point: Measurement, member: int) -> None:
        if point.step >= self.step and not self.killed:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # another child may just have ended
                    if is_rank(process):
                        process.kill()
                        self.killed += 1
            self._hold.unlink()

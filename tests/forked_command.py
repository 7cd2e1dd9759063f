"""The command line in a fork of this process, which has imported torch and what a study needs."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

import ablate.execution.job_runner
import ablate.training.loop  # noqa: F401 - what a study imports before it trains
from ablate.cli import main
from benchmarks.forked_process import ForkedProcess


def own_group() -> None:
    """Put this process into a group of its own, as a shell does."""
    os.setpgid(0, 0)


class ForkedCommand(ForkedProcess):
    """A command that runs in a fork of this process; see `ForkedProcess`.

    Standard input is empty. Standard output and error go into files, which are not terminals, like pipes.

    Args:
        arguments: The command line, the program first.
        folder: The current folder of the command.
        environment: All its environment variables.
        around: Makes the context in which the command runs.
        stdout: A descriptor instead of the file for standard output.
        stderr: A descriptor instead of the file for standard error.
        place: Chooses the process group, session or terminal; called in the new process.
        run: What it runs; ends by returning or by raising SystemExit, as the command line does.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        around: Callable[[], AbstractContextManager[None]],
        stdout: int | None = None,
        stderr: int | None = None,
        place: Callable[[], None] = own_group,
        run: Callable[[], None] = main,
    ) -> None:
        self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - read in `communicate`
        given = zip((stdout, stderr), self._files, strict=True)
        output = tuple(file.fileno() if number is None else number for number, file in given)
        super().__init__(partial(_become, arguments, folder, environment, around, output, place, run))

    def communicate(self, timeout: float = float("inf")) -> tuple[str, str]:
        """What the command printed on standard output and standard error, once it has ended."""
        self.wait(timeout)
        printed = []
        for file in self._files:
            file.seek(0)
            printed.append(file.read().decode())
            file.close()
        return printed[0], printed[1]


def _become(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    around: Callable[[], AbstractContextManager[None]],
    output: Sequence[int],
    place: Callable[[], None],
    run: Callable[[], None],
) -> None:
    """The forked process: what the program `ablate` would be, without any file of the process that started it."""
    gc.freeze()  # what that process has left is not finalised here: its descriptors have other owners now
    place()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, target in enumerate(output, start=1):
        os.dup2(target, number)
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2:
            with suppress(OSError):  # the listing's own
                os.close(number)
    for name in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # to be read from the environment again
    os.chdir(folder)
    sys.argv = [*arguments]
    with around():
        run()

"""The command line in a fork of this process, which has imported torch and what a study needs."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NoReturn

import ablate.execution.carry
import ablate.training.loop  # noqa: F401 - what a study imports before it trains
from ablate.cli import main


def own_group() -> None:
    """Put this process into a group of its own, as a shell does."""
    os.setpgid(0, 0)


class ForkedCommand:
    """A command that runs in a fork of this process; has the methods of `subprocess.Popen` that tests use.

    Standard input is empty. Standard output and error go into files, which are no terminals, as pipes are none.

    Args:
        arguments: The command line, the program first.
        folder: The current folder of the command.
        environment: All its environment variables.
        around: Makes the context in which the command runs.
        stdout: A descriptor in place of the file for standard output.
        stderr: A descriptor in place of the file for standard error.
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
        self.returncode: int | None = None
        self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - read in `communicate`
        given = zip((stdout, stderr), self._files, strict=True)
        output = tuple(file.fileno() if number is None else number for number, file in given)
        with warnings.catch_warnings():  # from Python 3.12 on, of a process with more threads than this one
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _become(arguments, folder, environment, around, output, place, run)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the command runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """The exit code, once the command has ended.

        Raises:
            subprocess.TimeoutExpired: It has not ended after this many seconds.
        """
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("ablate", timeout)
            time.sleep(0.005)
        return code

    def communicate(self, timeout: float = float("inf")) -> tuple[str, str]:
        """What the command printed on standard output and standard error, once it has ended."""
        self.wait(timeout)
        told = []
        for file in self._files:
            file.seek(0)
            told.append(file.read().decode())
            file.close()
        return told[0], told[1]

    def send_signal(self, number: int) -> None:
        """Send it a signal if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _become(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    around: Callable[[], AbstractContextManager[None]],
    output: Sequence[int],
    place: Callable[[], None],
    run: Callable[[], None],
) -> NoReturn:
    """The forked process: what the program `ablate` would be, without any file of the process that started it."""
    code = 1
    gc.freeze()  # what that process has left is not finalised here: its descriptors have other owners now
    try:
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
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a terminal that has closed
                stream.flush()
        os._exit(code)

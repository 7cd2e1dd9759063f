"""A function in a fork of this process, with the methods of `subprocess.Popen` that the code round it uses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn


class ForkedProcess:
    """A process that runs a function and exits as a program does.

    Args:
        run: What it runs; returns, or raises SystemExit.

    Attributes:
        pid: Of the process.
        returncode: The exit code, negative for a signal; None while it is not known.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self.returncode: int | None = None
        self._waiting = threading.Lock()
        with warnings.catch_warnings():  # from Python 3.12 on, of a process with more threads than this one
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            exit_as_program(run)

    def poll(self) -> int | None:
        """The exit code; None while the process runs."""
        with self._waiting:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """The exit code, once the process has ended.

        Raises:
            subprocess.TimeoutExpired: It has not ended after this many seconds.
        """
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is not known to have ended: its id may be another process's by then."""
        with self._waiting:
            if self.returncode is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def exit_as_program(run: Callable[[], object], failed: int = 1) -> NoReturn:
    """In a forked process: run something, and exit without the exit handlers of the parent.

    Args:
        run: Returns, or raises SystemExit.
        failed: The exit code after any other exception, whose traceback is printed.
    """
    code = failed
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a terminal or a pipe that has closed
                stream.flush()
        os._exit(code)

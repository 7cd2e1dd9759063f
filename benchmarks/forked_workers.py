"""Forks the workers of the local engine from their driver, which saves starting an interpreter for each. Linux only."""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

from ablate.execution import local

FORKED = "ablate-worker"
"""The process name of a forked worker."""
_WORKER_MODULE = "ablate.execution.worker"


@contextmanager
def forked_workers() -> Iterator[None]:
    """Let the local engine fork its workers from this process, which has imported what they need."""
    with patch.object(local, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": _start_process})):
        yield


def _start_process(command: Sequence[str], **options: Any) -> Any:
    """What the local engine calls in place of `subprocess.Popen`."""
    if _WORKER_MODULE in command:
        return _ForkedWorker(command, **options)
    return subprocess.Popen(command, **options)


class _ForkedWorker:
    """A worker process of the local engine that is forked from its driver, in place of `subprocess.Popen`."""

    def __init__(
        self, command: Sequence[str], *, pass_fds: Sequence[int], stdout: Any, env: Any, **others: Any
    ) -> None:
        self._code: int | None = None
        with warnings.catch_warnings():  # from Python 3.12 on, of a driver with more threads than this one
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            _become_worker(command, pass_fds[0], stdout.fileno(), env)

    def wait(self, timeout: float = float("inf")) -> int:
        """The exit code."""
        end = time.monotonic() + timeout
        while self._code is None:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise subprocess.TimeoutExpired(_WORKER_MODULE, timeout)
            else:
                time.sleep(0.005)
        return self._code

    def terminate(self) -> None:
        """Ask it to end."""
        os.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        os.kill(self._pid, signal.SIGKILL)


def _become_worker(command: Sequence[str], pipe: int, log: int, environment: dict[str, str]) -> NoReturn:
    """The forked process: what `python -m ablate.execution.worker` would be, without any file of the driver's."""
    code = 1
    gc.freeze()  # what the driver has left is not finalised here: its descriptors have other owners now
    try:
        Path("/proc/self/comm").write_text(FORKED)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != pipe:
                with suppress(OSError):  # the listing's own
                    os.close(number)
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [*command[2:]]
        del sys.modules[_WORKER_MODULE]
        runpy.run_module(_WORKER_MODULE, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

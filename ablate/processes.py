"""The processes of a command: how they are started, how each of them prints, is interrupted, and is typed again.

A process that `python -m` starts looks for modules in the working folder first, where a `copy.py` or a folder `wandb`
of the user's would stand in for what it needs. So every process is started without that (`-P`). What only this process
finds, because it runs a script or a notebook, is found there too, but after everything that is installed.

Training must not depend on who reads what is printed. So characters that a stream cannot encode are replaced, a stream
that was closed before the process started is the null device, and a stream that can no longer be written (its reader
has gone, its terminal has closed, its disk is full) discards what follows.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import select
import shlex
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

_MODULES = "ABLATE_MODULE_PATH"


def python_command(*arguments: str) -> list[str]:
    """The command that runs this Python with these arguments, without the working folder in its module path."""
    return [sys.executable, "-P", *arguments]


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that finds the modules of this one, once it has called `adopt_modules`.

    Args:
        more: Variables besides those of this process.
    """
    folders = dict.fromkeys(str(Path(folder).absolute()) for folder in sys.path)
    environment = {**os.environ, _MODULES: os.pathsep.join(folders), **(more or {})}
    home = str(Path(__file__).absolute().parents[1])
    if home in (str(Path(folder).absolute()) for folder in ("", *sys.path[:1])):  # found through the working folder
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), home)))
    return environment


def adopt_modules() -> None:
    """Find what the process that started this one finds, after what this one finds by itself."""
    known = {str(Path(folder).absolute()) for folder in sys.path}
    sys.path += [folder for folder in os.environ.get(_MODULES, "").split(os.pathsep) if folder and folder not in known]


_RAISING = ("strict", "surrogateescape")
"""The handlers of encoding errors that Python chooses for standard streams and that may raise."""
_GONE = (errno.EPIPE, errno.EIO)
"""The errors of a pipe without a reader and of a terminal that has closed."""


class _Descriptor(io.FileIO):
    """A descriptor open for writing; after its first error everything is discarded.

    Attributes:
        lost: That error; None while all was written.
    """

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write all of it: a TextIOWrapper without a buffer ignores how much was written."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            try:
                written = super().write(left)
            except OSError as error:
                self.lost = error
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.fileno())  # for child processes and libraries too
                os.close(nowhere)
                break
            if written is None:  # another process has made the pipe non-blocking, and it is full
                select.select([], [self], [])
                continue
            left = left[written:]
        return size


def keep_printing() -> None:
    """Make the standard streams of this process safe to print on. Streams that a notebook or a test put there stay."""
    for number in range(3):
        _fill(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            safe: TextIO = open(os.devnull, "w" if number else "r", encoding="utf-8", errors="replace")  # noqa: SIM115
        elif number and stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):
            safe = _safe(stream)
        else:
            if number and isinstance(stream, io.TextIOWrapper):  # Ray's workers write to log files
                stream.reconfigure(errors=_lossy(stream.errors))
            continue
        setattr(sys, name, safe)
        setattr(sys, f"__{name}__", safe)


def open_json_output(stream: TextIO) -> TextIO:
    """Another stream onto the descriptor of a standard stream, for JSON: in UTF-8, half characters as JSON escapes."""
    raw = _Descriptor(os.dup(stream.fileno()), "wb")
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace")


def lost_output(stream: TextIO | None) -> OSError | None:
    """Why a stream lost a part of what was printed; None if it lost nothing, or if nobody was there to read it."""
    raw = _raw(stream)
    return None if raw is None or raw.lost is None or raw.lost.errno in _GONE else raw.lost


def _fill(number: int) -> None:
    """Open the null device as a standard descriptor that is closed, so that no file gets its number."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(nowhere, number)
            os.close(nowhere)


def _safe(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    if _raw(stream) is not None or stream.name == os.devnull:
        return stream
    stream.flush()
    raw = _Descriptor(stream.fileno(), "wb", closefd=False)
    buffer: Any = io.BufferedWriter(raw) if isinstance(stream.buffer, io.BufferedWriter) else raw  # raw under `-u`
    return io.TextIOWrapper(
        buffer,
        stream.encoding,
        _lossy(stream.errors),
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _raw(stream: TextIO | None) -> _Descriptor | None:
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, _Descriptor) else None


def _lossy(errors: str | None) -> str:
    return "replace" if errors is None or errors in _RAISING else errors


_STOPPING = [signal.SIGINT, signal.SIGTERM]
if sys.platform != "win32":
    _STOPPING.append(signal.SIGHUP)
_early = False


def handle_early_interrupts() -> None:
    """Record a SIGINT that arrives before a study runs, besides raising KeyboardInterrupt.

    Some libraries swallow the exception while they are imported. The study then stops as soon as it begins.
    """

    def remember(number: int, frame: FrameType | None) -> None:
        global _early
        _early = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, remember)


@dataclass(slots=True)
class StopRequest:
    """Whether a stop was requested."""

    asked: bool = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Record the first SIGINT, SIGTERM or SIGHUP as a request to stop; a second SIGINT raises KeyboardInterrupt.

    SIGHUP means that the terminal has closed; under `nohup` it is ignored, and stays so.
    """
    stop = StopRequest(asked=_early)

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    numbers = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        before = {number: signal.signal(number, ask) for number in numbers}
    except ValueError:  # not the main thread, as in some notebooks: only the main thread can handle signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@/\s]+@")


def program() -> str:
    """The name under which this program runs; its path if the shell would not find it by name."""
    called = Path(sys.argv[0])
    path = shutil.which(called.name)
    if called.name != "ablate" or (path is not None and called.exists() and Path(path).samefile(called)):
        return "ablate"
    return str(called)


def command(*arguments: str) -> str:
    """A command of this program, quoted for a shell, with passwords hidden."""
    return hide_passwords(shlex.join([program(), *arguments]))


def hide_passwords(text: str) -> str:
    """Replace the password of each URL with `***`."""
    return _PASSWORD.sub(r"\1:***@", text)


def without_option(words: Iterable[str], option: str) -> Iterator[str]:
    """The words of a command without an option and its value, written as `--option VALUE` or `--option=VALUE`."""
    rest = iter(words)
    for word in rest:
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            yield word


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector in the body.

    It runs after a fixed number of new objects and visits all that exist, which takes long while the points of a large
    study are read. The pause is that of the process: the first thread that began one ends it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

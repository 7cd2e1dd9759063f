"""One trial of the user's trainer: runs its command, follows its metrics file, and yields training events.

The command runs under `ablate.execution.guard`, in a process group of its own that ends with the trial, also when the
worker of the trial is killed.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, BinaryIO

from ablate.errors import DataError
from ablate.execution import guard
from ablate.locations import open_regular, read_file
from ablate.processes import child_environment, python_command
from ablate.spec.base import LARGEST
from ablate.spec.log_lines import CutNumberError, groups_of_line
from ablate.spec.paths import leaves
from ablate.spec.trainer import MetricsSpec, filled
from ablate.spec.trainer_variant import TrainerVariant
from ablate.training.events import Diverged, Event, Measurement, Tick

_POLL_SECONDS = 0.1
_END_SECONDS = 10.0
"""How long the guard may take to end a trainer before it is killed too."""
_LOG_BYTES = 4000
"""The last bytes of what a process printed that the reason of a failure shows."""
_LONGEST_LINE = 2**20
_CHUNK, _MOST_BYTES = 2**24, 2**30
"""Bytes of a metrics file that are read at once, and of a whole one of JSON."""
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_PLAIN_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}((,\d{3}){2,}|(,\d{3})+\.\d*)")
"""Numbers whose commas cannot be those of decimals."""
_END, _ENDS_OF_LOG = re.compile(rb"\n"), re.compile(rb"[\r\n]")
"""What ends a line; a progress bar writes over itself."""
_NAMED = frozenset({"step", "tokens", "seconds", "train_loss", "val_loss"})
"""Names with a meaning of their own."""
_NOT_NUMBERS = (ValueError, OverflowError, RecursionError)
"""What reading JSON raises: not JSON, a whole number that is too large, too many levels."""
OUTPUT, CHECKPOINT, LOG, CONFIG = "output", "checkpoint", "log.txt", "config.json"
"""Names in the folder of a trial."""


class TrainerFailedError(Exception):
    """A trial of a trainer failed: it ended with an error or too late, or its metrics cannot be read.

    Attributes:
        reason: One sentence.
        log: The end of what it printed.
    """

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log


@dataclass(frozen=True, slots=True)
class TrainerFolders:
    """Where a trainer runs.

    Attributes:
        root: The working folder of the study.
        folder: For the files of the trial. `output` in it is new for each attempt; `checkpoint` is kept until the trial
            has finished; `log.txt` has what the trainer printed.
    """

    root: str
    folder: str

    def remove_checkpoint(self) -> None:
        """Remove what the trainer has kept to go on from: the trial has finished, or nobody wants it any more."""
        shutil.rmtree(Path(self.folder) / CHECKPOINT, ignore_errors=True)


def visible_devices(devices: Sequence[str], before: str | None) -> str:
    """The value of CUDA_VISIBLE_DEVICES for a trainer that gets some of the devices that this process sees.

    Args:
        devices: `cpu`, or `cuda` with or without an index, as this process numbers them.
        before: The value for this process; None if it is not set.
    """
    seen = None if before is None else [name.strip() for name in before.split(",") if name.strip()]
    chosen = [int(name.partition(":")[2] or 0) for name in devices if name.startswith("cuda")]
    return ",".join(str(number) if seen is None else seen[number] for number in chosen)


def run_trainer(
    variant: TrainerVariant,
    seed: int,
    folders: TrainerFolders,
    devices: Sequence[str] = ("cpu",),
    stopped: Callable[[], Sequence[int]] = lambda: (),
) -> Iterator[Event]:
    """Run a trainer once.

    Args:
        folders: Where it runs.
        stopped: Asked several times a second; when it returns anything, the trainer is ended.

    Yields:
        `Measurement` for each row with metrics, `Tick` at least once a second, and `Diverged` if a loss is not finite,
        which ends the trainer. The last `Measurement` has the last value of every metric.

    Raises:
        TrainerFailedError: It failed.
    """
    trainer, folder = variant.trainer, Path(folders.folder)
    output, checkpoint, log, config = (folder / name for name in (OUTPUT, CHECKPOINT, LOG, CONFIG))
    shutil.rmtree(output, ignore_errors=True)
    for made in (output, checkpoint):
        made.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    known = {"seed": seed, "folder": str(output), "checkpoint": str(checkpoint)}
    rows = Path(folders.root) / filled(trainer.metrics.file, {**known, "log": log})
    if trainer.function is not None:
        config.write_text(json.dumps({"parameters": variant.parameters, "places": known}))
        command = python_command("-m", "ablate.execution.call_function", trainer.function, str(config), str(rows))
    else:
        config.write_text(json.dumps({**variant.parameters, "seed": seed}))
        values = {**variant.parameters, **known, "python": sys.executable, "config": config, "log": log}
        command = [filled(argument, values) for argument in trainer.command or ()]
    visible = visible_devices(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    running = _Running(command, folders.root, log, {"CUDA_VISIBLE_DEVICES": visible, "PYTHONUNBUFFERED": "1"})
    curve = _Curve(trainer.metrics, rows)
    try:
        while True:
            code = running.ended(_POLL_SECONDS)
            yield from curve.read(ended=code is not None)
            if curve.diverged is not None or stopped():
                running.end()
                folders.remove_checkpoint()
                yield from [curve.diverged] if curve.diverged is not None else []
                return
            if code is not None:
                break
            if trainer.timeout is not None and running.seconds > trainer.timeout:
                raise _RunError(f"it took longer than the timeout of {trainer.timeout:g} s, and was ended")
            yield Tick(curve.step, [curve.train_loss])
        if code != "0":
            raise _RunError(_how(code))
        yield from curve.last(variant.training.steps)
    except _RunError as failure:
        running.end()
        raise TrainerFailedError(str(failure), _tail(log)) from None
    finally:
        running.end()
        curve.close()


class _RunError(Exception):
    """Why a trial failed, as a sentence."""


def _how(code: str) -> str:
    """How a trainer ended, in words, from what the guard says."""
    if not code:
        return "its processes were killed"
    if not code.lstrip("-").isdigit():
        return f"its program could not be started ({code})"
    if code.startswith("-"):
        with suppress(ValueError):
            return f"it was killed by {signal.Signals(-int(code)).name}"
    return f"it ended with exit code {code}"


def end_of_log(file: IO[bytes]) -> str:
    """The end of what a process printed into a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LOG_BYTES))
    return file.read().decode(errors="replace").strip()


def _tail(log: Path) -> str:
    with suppress(OSError), log.open("rb") as file:
        if text := end_of_log(file):
            return text
    return "(it printed nothing)"


class _Running:
    """The process of a trainer, behind its guard."""

    def __init__(self, command: Sequence[str], root: str, log: Path, variables: Mapping[str, str]) -> None:
        self._began = time.monotonic()
        self._guard: subprocess.Popen[bytes]
        if sys.platform == "win32":
            raise TrainerFailedError("a command needs process groups, which Windows lacks: use Linux, macOS or WSL", "")
        try:
            self._guard = subprocess.Popen(
                python_command("-I", "-S", guard.__file__, str(log), *command),
                cwd=root,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(variables),
                start_new_session=True,
            )
        except OSError as error:
            raise TrainerFailedError(f"it could not be started in {root} ({error})", _tail(log)) from None

    @property
    def seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    def ended(self, timeout: float) -> str | None:
        """Its exit code, negative for a signal, empty if it was killed with its guard; None while it runs."""
        assert self._guard.stdout is not None, "it has a pipe"
        if not select.select([self._guard.stdout], [], [], timeout)[0]:
            return None
        return self._guard.stdout.readline().decode().strip()

    def end(self) -> None:
        """End it and all processes of its group; nothing happens the second time."""
        if self._guard.returncode is not None:
            return
        for pipe in (self._guard.stdin, self._guard.stdout):
            assert pipe is not None, "it has a pipe"
            pipe.close()  # the guard ends the group when its stdin closes
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(_END_SECONDS)
        if sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()


@dataclass(slots=True)
class _Curve:
    """What the rows of a metrics file have said so far.

    Attributes:
        step: Of the newest row.
        latest: The newest value of each metric.
        measured_at: The step of the row that has it.
        diverged: Set once a loss is not finite.
    """

    spec: MetricsSpec
    file: Path
    step: int = 0
    train_loss: float = math.nan
    latest: dict[str, float] = field(default_factory=dict)
    measured_at: dict[str, int] = field(default_factory=dict)
    diverged: Diverged | None = None
    _knows_steps: bool = False
    _of_step: dict[str, float] = field(default_factory=dict)
    _said: Measurement | None = None
    _began: float = field(default_factory=time.monotonic)
    _seconds: float = 0.0
    _tokens: int = 0
    _read: int = 0
    _lines: int = 0
    _partial: bytes = b""
    _begins: bytes = b""
    _header: list[str] = field(default_factory=list)
    _taken: int = 0
    _again: int = 0
    _opened: BinaryIO | None = None
    _content: Any = field(default_factory=sha256)
    """The hash of what was read of it."""

    def read(self, *, ended: bool) -> Iterator[Event]:
        """The events of what was written since the last call."""
        for row in self._rows(ended=ended):
            if self._again:  # it was taken before the file was written again
                self._again -= 1
                continue
            self._taken += 1
            if (event := self._take(row)) is not None:
                yield event
            if self.diverged is not None:
                return
        if ended and self._again:
            raise _RunError(f"its metrics file {self.file.name} was written again with fewer rows")

    def last(self, steps: int) -> Iterator[Measurement]:
        """The last point, with the last value of every metric, finite or not, unless that has been said."""
        if not self.latest:
            found = "it is empty" if self.file.is_file() else "there is no such file"
            if self.spec.format == "log" and self._lines:
                found = "`line` matches none of its lines"
            elif self._lines:
                found = "its rows hold no metric"
            raise _RunError(f"it ended without metrics in {self.file.name} ({found})")
        step = max(self.step if self._knows_steps else steps, 1)
        whole = self._measurement(step, self.latest)
        if self._said is None or (self._said.step, self._said.metrics) != (step, whole.metrics):
            yield whole

    def _measurement(self, step: int, metrics: Mapping[str, float]) -> Measurement:
        values = {name: [value] for name, value in metrics.items()}
        at = {**self.measured_at} if self._knows_steps else {}
        return Measurement(step, self._seconds, self._tokens, 0.0, [self.train_loss], values, measured_at=at)

    def _take(self, row: Mapping[str, float]) -> Event | None:
        values = {self.spec.rename.get(name, name): value for name, value in row.items()}
        if len(values) < len(row):
            twice = [name for name in row if self.spec.rename.get(name, name) != name and self.spec.rename[name] in row]
            raise self._damaged(
                "a row", "one value of each metric once names are changed by `rename`", ", ".join(twice)
            )
        values = {name: at for name, at in values.items() if math.isfinite(at) or name not in ("seconds", "tokens")}
        self._seconds = values.pop("seconds", time.monotonic() - self._began)
        self._tokens = int(values.pop("tokens", self._tokens))
        self._knows_steps |= "step" in values or self.spec.format != "json"
        written = values.pop("step", self.step + 1)
        if not (0 <= written < LARGEST and written == int(written)):
            raise self._damaged("a row", "a whole step from 0", str(written))
        step = int(written)
        for name, value in values.items():
            if not math.isfinite(value) and name.endswith("loss"):
                self.diverged = Diverged(0, step, value)
                return None
        self.train_loss = values.pop("train_loss", self.train_loss)
        self.latest |= values
        self.measured_at |= dict.fromkeys(values, step)
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        if step < self.step:  # written again after it went on from a checkpoint
            return None
        self._of_step = values if step > self.step else self._of_step | values
        self.step = step
        if not values:
            return Tick(step, [self.train_loss])
        stale = {"val_loss"} - self._of_step.keys()
        latest = {name: at for name, at in self.latest.items() if name not in stale and math.isfinite(at)}
        self._said = self._measurement(step, latest)
        return self._said

    def _rows(self, *, ended: bool) -> Iterator[dict[str, float]]:
        if self.spec.format == "json":
            if ended and self.file.exists():
                self._lines = 1
                with self._refusals():
                    text = read_file(self.file, _MOST_BYTES, DataError)
                yield from self._objects(text)
            return
        for number, line in self._new_lines(ended=ended):
            where = f"line {number}"
            if self.spec.format == "jsonl":
                yield self._object(line, where)
            elif self.spec.format == "csv":
                yield from self._cells(line.decode(errors="replace"), where)
            else:
                yield from self._groups(line.decode(errors="replace"), where)

    def _new_lines(self, *, ended: bool) -> Iterator[tuple[int, bytes]]:
        """Number and text of each line that was completed since the last call; at the end also of a partial one."""
        file, same = self._open()
        if file is None:
            return
        ends = _ENDS_OF_LOG if self.spec.format == "log" else _END
        file.seek(0)
        begins, size = file.read(len(self._begins)), os.fstat(file.fileno()).st_size
        if self.spec.format == "csv" and not (same and self._read <= size and begins == self._begins):
            # It was written again, as by loggers that add a column: its rows so far are skipped.
            self._again, self._content = self._taken, sha256()
            self._read, self._lines, self._partial, self._begins, self._header = 0, 0, b"", b"", []
        elif not (same and self._read <= size):
            how = "became shorter" if same else "was replaced by another"
            raise _RunError(f"its metrics file {self.file.name} {how} while it was written")
        if self.spec.format == "csv" and not self._begins.endswith(b"\n"):
            file.seek(0)
            self._begins = file.readline(_LONGEST_LINE)
        file.seek(self._read)
        while added := file.read(_CHUNK):
            self._read += len(added)
            self._content.update(added)
            *lines, self._partial = ends.split(self._partial + added)
            if len(self._partial) > _LONGEST_LINE:
                lines, self._partial = [*lines, self._partial], b""
            yield from self._numbered(lines)
        if ended:
            yield from self._numbered([self._partial])
            self._partial = b""

    def _open(self) -> tuple[BinaryIO | None, bool]:
        """The file, None before there is one; and whether it holds what was read so far.

        It stays open: if it is removed, what its trainer wrote before can still be read. Another file in its place,
        such as one that is written aside and renamed, has to begin with what was read.
        """
        before = self._opened
        try:
            if before is not None and os.path.samestat(self.file.stat(), os.fstat(before.fileno())):
                return before, True
        except OSError:
            return before, True
        if before is None and not self.file.exists():
            return None, True
        with self._refusals():
            self._opened = open_regular(self.file, DataError)
        if before is None:
            return self._opened, True
        before.close()
        return self._opened, sha256(self._opened.read(self._read)).digest() == self._content.digest()

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()

    def _numbered(self, lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        for line in lines:
            if line.strip():
                self._lines += 1
                yield self._lines, line

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """A file that cannot be read, such as a pipe or a folder, fails the trial."""
        try:
            yield
        except DataError as error:
            raise _RunError(f"its metrics file {self.file.name} cannot be read: {error}") from None

    def _objects(self, text: bytes) -> Iterator[dict[str, float]]:
        """The rows of a JSON file: the object, or those of the list that `rows` names."""
        if self.spec.rows is None:
            yield self._object(text, "the file")
            return
        with suppress(*_NOT_NUMBERS):
            written = json.loads(text)
            if isinstance(written, Mapping) and isinstance(rows := written.get(self.spec.rows), list):
                yield from (self._numbers(row, "a row") for row in rows)
                return
        raise self._damaged("the file", f"an object with a list `{self.spec.rows}`", text.decode(errors="replace"))

    def _object(self, text: bytes, where: str) -> dict[str, float]:
        try:
            return self._numbers(json.loads(text), where)
        except _NOT_NUMBERS:
            raise self._damaged(where, "a JSON object", text.decode(errors="replace")) from None

    def _numbers(self, row: Any, where: str) -> dict[str, float]:
        if not isinstance(row, Mapping):
            raise self._damaged(where, "a JSON object", json.dumps(row))
        written = {name: at for name, at in leaves(row).items() if not isinstance(at, bool)}
        return self._numbers_of({name: at for name, at in written.items() if isinstance(at, (int, float, str))}, where)

    def _groups(self, line: str, where: str) -> Iterator[dict[str, float]]:
        try:
            found = groups_of_line(re.compile(self.spec.line or ""), line)
        except CutNumberError as error:
            raise self._damaged(where, f"what `line` takes ({error}: correct it)", line) from None
        if found is not None:
            yield {name: self._number(text, where, name) for name, text in found.items()}

    def _cells(self, line: str, where: str) -> Iterator[dict[str, float]]:
        try:
            cells = [cell.strip() for cell in next(csv.reader([line]))]
        except csv.Error as error:
            raise self._damaged(where, f"cells of CSV ({error})", line) from None
        if not self._header:
            self._header = [cells[0].removeprefix("\ufeff"), *cells[1:]]
            if len({*self._header}) < len(self._header):
                raise self._damaged(where, "another name for each column", line)
            return
        if len(cells) != len(self._header):
            raise self._damaged(where, f"{len(self._header)} cells", line)
        yield self._numbers_of({name: cell for name, cell in zip(self._header, cells, strict=True) if cell}, where)

    def _numbers_of(self, written: Mapping[str, float | str], where: str) -> dict[str, float]:
        """The numbers among some values, also those that are written as text, as `NaN` is in JSON; a date is none.

        A value that holds digits and is not a number, such as `1,000`, damages the row where others of its name are
        numbers: the metric would keep an earlier value.
        """
        numbers: dict[str, float] = {}
        for name, value in written.items():
            try:
                numbers[name] = float(value)
            except ValueError:
                known = self.spec.rename.get(name, name)
                if re.search(r"\d", str(value)) and (known in _NAMED or known in self.latest):
                    raise self._damaged(where, f"a number for `{name}`", str(value)) from None
        return numbers

    def _number(self, text: str, where: str, name: str) -> float:
        """The number in a text; `3,281` is a thousand of steps or tokens, and of a metric it says too little."""
        text = text.rstrip(",;")
        thousands = _THOUSANDS if self.spec.rename.get(name, name) in ("step", "tokens") else _PLAIN_THOUSANDS
        try:
            return float(text.replace(",", "") if thousands.fullmatch(text) else text)
        except ValueError:
            raise self._damaged(where, f"a number for `{name}`", text) from None

    def _damaged(self, where: str, expected: str, got: str) -> _RunError:
        shown: Any = got.strip()[:80]
        return _RunError(f"its metrics file {self.file.name} is damaged: {where}, expected {expected}, got {shown!r}")

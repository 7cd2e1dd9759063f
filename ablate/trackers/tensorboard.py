"""TensorBoard: a folder of event files for each run below one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from ablate.errors import ArgumentError
from ablate.locations import typed_path
from ablate.portable_names import FILE, NameRule, is_character, portable_name
from ablate.trackers import RunWriter, TrackedRun, Tracker, TrackerSession, flat

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_MARK = "ablate.json"
"""The file beside the events of a run that says whose they are, and how the run ended."""
_FLUSH_SECONDS = 10
_FOLDER = replace(FILE, takes=lambda character: FILE.takes(character) or character in " ()")
"""A folder of a run; trials that tune have names such as `baseline (training.optimizer.lr=0.001)`."""
TAG = NameRule(is_character, 1000)
"""The name of a scalar or of a hyperparameter."""


class TensorBoard(Tracker):
    """TensorBoard: event files in DIR/STUDY/VARIANT/SEED, for `tensorboard --logdir DIR`."""

    kind: Literal["tensorboard"] = "tensorboard"
    extra = "tensorboard"
    argument_name = "DIR"

    def connect(self) -> TrackerSession:
        """The folder."""
        return TensorBoardSession(typed_path(self.argument, ArgumentError))

    @classmethod
    def offline(cls, folder: Path) -> Self:
        """It never needs a network."""
        return cls(argument=str(folder))


class TensorBoardSession(TrackerSession):
    """Writes below one folder.

    Args:
        folder: Where event files go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def holds(self, run: TrackedRun) -> bool:
        """Whether the mark beside the events says that the run ended."""
        mark = self._path(run) / _MARK
        return mark.exists() and bool(json.loads(mark.read_text(encoding="utf-8")).get("state"))

    def begin(self, run: TrackedRun) -> RunWriter:
        """New event files instead of those that an earlier start of the run left."""
        folder = self._path(run)
        for earlier in [*folder.glob("events.out.tfevents.*"), folder / _MARK]:
            earlier.unlink(missing_ok=True)
        return _Events(folder, run)

    def _path(self, run: TrackedRun) -> Path:
        own = f"-{run.identity[:8]}"
        *groups, last = run.study, *run.name
        folders = [portable_name(name, _FOLDER, len(own)) for name in (*groups, last.replace(" ", "_"))]
        return self._folder.joinpath(*folders[:-1], f"{folders[-1]}{own}")


class _Events(RunWriter):
    def __init__(self, folder: Path, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder, self._run = folder, run
        # A TensorBoard that is open now drops the points that it has read of an earlier start.
        self._writer: SummaryWriter = SummaryWriter(str(folder), purge_step=0, flush_secs=_FLUSH_SECONDS)
        self._writer.add_text("spec", f"```json\n{json.dumps(run.config, indent=2)}\n```", 0)
        self._mark("")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One scalar for each value."""
        for name, value in values.items():
            self._writer.add_scalar(portable_name(name, TAG), value, step)

    def end(self, state: str, results: Mapping[str, float], text: str) -> None:
        """The results as metrics of the HPARAMS tab, beside the spec."""
        if text:
            self._writer.add_text("text", text, 0)
        metrics = {portable_name(f"result/{name}", TAG): value for name, value in results.items()}
        varied = {portable_name(name, TAG): value for name, value in flat(self._run.config)}
        self._writer.add_hparams({**self._run.tags, **varied}, metrics, run_name=".")
        self._writer.close()
        self._mark(state)

    def drop(self) -> None:
        """The points so far stay."""
        self._writer.close()

    def _mark(self, state: str) -> None:
        text = json.dumps({"identity": self._run.identity, "state": state})
        (self._folder / _MARK).write_text(text, encoding="utf-8")

"""Weights & Biases: a run for each trial, grouped by study; offline with WANDB_MODE=offline."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from ablate.portable_names import NameRule, is_character, portable_name
from ablate.trackers import RunWriter, TrackedRun, Tracker, TrackerSession

if TYPE_CHECKING:
    import wandb

_MARK = "ablate.json"
"""The file in the folder of a run that says how it ended."""
NAME = NameRule(is_character, 128)
"""The name of a run or of a group."""
TAG = NameRule(is_character, 64)


class WeightsAndBiases(Tracker):
    """Weights & Biases: runs of PROJECT, or of ENTITY/PROJECT, grouped by study.

    Its environment variables hold: WANDB_MODE=offline writes below WANDB_DIR what `wandb sync` sends later.
    """

    kind: Literal["wandb"] = "wandb"
    extra = "wandb"
    argument_name = "PROJECT"

    folder: str = ""
    """If given, nothing is sent, and the files go below this folder."""

    def connect(self) -> TrackerSession:
        """Nothing is sent before the first run begins."""
        entity, _, project = self.argument.rpartition("/")
        folder = Path(self.folder or os.environ.get("WANDB_DIR") or ".")
        folder.mkdir(parents=True, exist_ok=True)
        offline = bool(self.folder) or os.environ.get("WANDB_MODE") == "offline"
        return _Project(project, entity or None, folder, offline)

    @classmethod
    def offline(cls, folder: Path) -> Self:
        """Offline, in the folder."""
        return cls(argument="ablate", folder=str(folder))


class _Project(TrackerSession):
    def __init__(self, project: str, entity: str | None, folder: Path, offline: bool) -> None:
        self._project, self._entity, self._folder, self._offline = project, entity, folder, offline

    def holds(self, run: TrackedRun) -> bool:
        """Whether a folder of this machine, or else the server, has the run to its end."""
        if any((folder / "files" / _MARK).exists() for folder in self._folders(run)):
            return True
        if self._offline:
            return False
        import wandb

        path = "/".join(filter(None, (self._entity, self._project, run.identity)))
        with suppress(wandb.errors.CommError, ValueError):  # there is no such run or project
            return bool(wandb.Api().run(path).state == "finished")
        return False

    def begin(self, run: TrackedRun) -> RunWriter:
        """Offline a new run instead of an earlier one; online the run continues after the last step it has."""
        import wandb

        if self._offline:
            for earlier in self._folders(run):
                shutil.rmtree(earlier, ignore_errors=True)
        begun = wandb.init(
            project=self._project,
            entity=self._entity,
            dir=str(self._folder),
            id=run.identity,
            name=portable_name("/".join(run.name), NAME),
            group=portable_name(run.study, NAME),
            tags=[portable_name(f"{name}:{value}", TAG) for name, value in run.tags.items()],
            config=dict(run.config),
            mode="offline" if self._offline else None,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        return _Run(begun)

    def _folders(self, run: TrackedRun) -> list[Path]:
        return sorted((self._folder / "wandb").glob(f"*run-*-{run.identity}"))


class _Run(RunWriter):
    def __init__(self, run: wandb.Run) -> None:
        self._run = run
        self._next = run.step if run.resumed and not run.offline else 0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A point of the history; steps that a resumed run has already are left out."""
        if step >= self._next:
            self._run.log(dict(values), step=step)

    def end(self, state: str, results: Mapping[str, float], text: str) -> None:
        """The results as summary `result/NAME`; a run that did not finish counts as failed, with its reason."""
        self._run.summary.update({"state": state, **{f"result/{name}": value for name, value in results.items()}})
        if text:
            self._run.notes = text
        folder = Path(self._run.dir)
        self._run.finish(exit_code=0 if state in ("finished", "pruned") else 1)
        (folder / _MARK).write_text(json.dumps({"state": state}), encoding="utf-8")

    def drop(self) -> None:
        """The points so far stay, in a run that failed."""
        self._run.finish(exit_code=1)

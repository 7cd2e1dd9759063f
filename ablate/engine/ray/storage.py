"""Where checkpoints are kept, by path or URL, and those that an earlier driver of a study left there.

A run of Ray Tune is a folder `STUDY-DATE-TIME-PROCESS` of the storage, a job of it a folder `KEY_...`, where the key
says what is trained, so that the next driver finds what the one before did not bring to its end.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsspec.core import url_to_fs
from pyarrow import ArrowInvalid
from pyarrow.fs import FileSelector, FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

from ablate.engine.base import Left
from ablate.engine.worker import Job
from ablate.errors import EngineError
from ablate.spec.base import content_hash

_KEY_CHARACTERS = 16
MEMBERS = "members.json"
"""In a checkpoint: keys of the trials of its job, and of those that had not left it."""


def job_key(job: Job) -> str:
    """What a job trains, in some characters; jobs of the same trials in the same order have the same."""
    members = [[member.variant, member.seed] for member in job.members]
    return content_hash([job.fingerprint, members])[:_KEY_CHARACTERS]


@dataclass(frozen=True)
class Storage:
    """A folder on a file system that all nodes reach."""

    filesystem: FileSystem
    path: str

    def new_run(self, study: str) -> str:
        """A name for a run of a study that no other run has."""
        return f"{study}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"

    def left(self, study: str) -> dict[str, list[str]]:
        """Folders of checkpoints that earlier runs of a study left, the newest first, by the key of their job."""
        runs = re.compile(re.escape(study) + r"-\d{8}-\d{6}-\d+")
        found: dict[str, list[str]] = {}
        for run in self._folders(self.path):
            if runs.fullmatch(PurePosixPath(run).name):
                for job in self._folders(run):
                    if checkpoints := self._checkpoints(job):
                        found.setdefault(PurePosixPath(job).name.partition("_")[0], []).extend(checkpoints)
        return {key: sorted(paths, key=_run_and_number, reverse=True) for key, paths in found.items()}

    def members(self, checkpoint: str) -> Left | None:
        """What a checkpoint is of; None if it is not whole."""
        try:
            with self.filesystem.open_input_stream(f"{checkpoint}/{MEMBERS}") as file:
                told = json.loads(file.read())
            return Left(tuple(told["members"]), frozenset(told["alive"]))
        except (OSError, ValueError, KeyError):
            return None

    def remove(self, folder: str) -> None:
        """Remove a folder, if it is there."""
        with suppress(OSError):
            self.filesystem.delete_dir(folder)

    def tidy(self, run: str) -> None:
        """Remove a run unless it holds a checkpoint that somebody may go on from."""
        if not any(self._checkpoints(job) for job in self._folders(run)):
            self.remove(run)

    def forget(self, checkpoints: Iterable[str]) -> None:
        """Remove checkpoints of a job that has ended, and what else their runs have left."""
        for job in {str(PurePosixPath(checkpoint).parent) for checkpoint in checkpoints}:
            self.remove(job)
            self.tidy(str(PurePosixPath(job).parent))

    def _checkpoints(self, job: str) -> list[str]:
        return [folder for folder in self._folders(job) if PurePosixPath(folder).name.startswith("checkpoint_")]

    def _folders(self, folder: str) -> list[str]:
        selector = FileSelector(folder, allow_not_found=True)
        return [info.path for info in self.filesystem.get_file_info(selector) if not info.is_file]


def _run_and_number(checkpoint: str) -> tuple[str, str]:
    path = PurePosixPath(checkpoint)
    return path.parent.parent.name[-40:], path.name


def open_storage(where: str) -> Storage:
    """The storage at a path, or at a URL that Arrow or fsspec knows.

    Raises:
        EngineError: Nobody knows the URL, a package for it is missing, or nothing can be written there.
    """
    try:
        storage = _find(where)
        probe = f"{storage.path.rstrip('/')}/.ablate-{os.getpid()}"
        storage.filesystem.create_dir(probe)
        storage.filesystem.delete_dir(probe)
    except ImportError as error:
        raise EngineError(
            f"a package is missing that this kind of storage needs: {error}",
            where=f"--storage {where}",
            remedy="Install it on every machine of the cluster, or name a folder that all of them see.",
        ) from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise EngineError(
            "checkpoints cannot be written there",
            where=f"--storage {where}",
            expected="a folder that all machines see, or a URL that Arrow or fsspec knows, such as s3://BUCKET/FOLDER",
            got=(str(error).strip() or type(error).__name__).splitlines()[0],
        ) from error
    return storage


def _find(where: str) -> Storage:
    if "://" not in where:
        return Storage(LocalFileSystem(), str(Path(where).absolute()))
    try:
        return Storage(*FileSystem.from_uri(where))
    except ArrowInvalid as error:  # a ValueError
        if "Unrecognized filesystem" not in str(error):  # Arrow knows the scheme, and what follows it is wrong
            raise
        filesystem, path = url_to_fs(where)
        return Storage(PyFileSystem(FSSpecHandler(filesystem)), path)

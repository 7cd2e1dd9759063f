"""The storage of checkpoints, a path or URL, and the checkpoints that an earlier driver of a study left there.

A run of Ray Tune is a folder `STUDY-DATE-TIME-PROCESS` of the storage, and each of its jobs a folder `KEY_...` in it.
The key identifies the trials of a job, so that the next driver finds the checkpoints of unfinished jobs.
"""

from __future__ import annotations

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

from ablate.errors import EngineError
from ablate.execution.checkpoint import MEMBERS, PREFIX, read_pack
from ablate.planning.packing import ResumablePack


@dataclass(frozen=True)
class Storage:
    """A folder on a file system that all nodes can access."""

    filesystem: FileSystem
    path: str

    def new_run(self, study: str) -> str:
        """A unique name for a run of a study."""
        return f"{study}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"

    def left(self, study: str) -> dict[str, list[str]]:
        """The checkpoint folders of earlier runs of a study by the key of their job, the newest first."""
        runs = re.compile(re.escape(study) + r"-\d{8}-\d{6}-\d+")
        names: dict[str, list[str]] = {}
        for run in self._folders(self.path):
            if runs.fullmatch(PurePosixPath(run).name):
                for job in self._folders(run):
                    if checkpoints := self._checkpoints(job):
                        names.setdefault(PurePosixPath(job).name.partition("_")[0], []).extend(checkpoints)
        return {key: sorted(paths, key=_run_and_number, reverse=True) for key, paths in names.items()}

    def members(self, checkpoint: str) -> ResumablePack | None:
        """The pack of a checkpoint; None if the checkpoint is incomplete."""
        try:
            with self.filesystem.open_input_stream(f"{checkpoint}/{MEMBERS}") as file:
                return read_pack(file.read())
        except (OSError, ValueError):
            return None

    def remove(self, folder: str) -> None:
        """Remove a folder if it exists."""
        with suppress(OSError):
            self.filesystem.delete_dir(folder)

    def tidy(self, run: str) -> None:
        """Remove the folder of a run unless it holds a checkpoint."""
        if not any(self._checkpoints(job) for job in self._folders(run)):
            self.remove(run)

    def forget(self, checkpoints: Iterable[str]) -> None:
        """Remove the checkpoints of a job that has ended, and the folders of runs without any checkpoint."""
        for job in {str(PurePosixPath(checkpoint).parent) for checkpoint in checkpoints}:
            self.remove(job)
            self.tidy(str(PurePosixPath(job).parent))

    def _checkpoints(self, job: str) -> list[str]:
        return [folder for folder in self._folders(job) if PurePosixPath(folder).name.startswith(PREFIX)]

    def _folders(self, folder: str) -> list[str]:
        selector = FileSelector(folder, allow_not_found=True)
        return [info.path for info in self.filesystem.get_file_info(selector) if not info.is_file]


def _run_and_number(checkpoint: str) -> tuple[str, str]:
    path = PurePosixPath(checkpoint)
    return path.parent.parent.name[-40:], path.name


def open_storage(where: str) -> Storage:
    """Open the storage at a path, or at a URL that Arrow or fsspec supports.

    Raises:
        EngineError: The URL is not supported, a package for it is missing, or it is not writable.
    """
    try:
        storage = _find(where)
        probe = f"{storage.path.rstrip('/')}/.ablate-{os.getpid()}"
        storage.filesystem.create_dir(probe)
        storage.filesystem.delete_dir(probe)
    except ImportError as error:
        raise EngineError(
            f"this kind of storage needs a package that is missing: {error}",
            where=f"--checkpoint-dir {where}",
            remedy="Install it on every machine of the cluster, or name a folder that all of them see.",
        ) from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise EngineError(
            "checkpoints cannot be written there",
            where=f"--checkpoint-dir {where}",
            expected="a folder that all machines see, or a URL that Arrow or fsspec supports, such as s3://BUCKET/FOLDER",
            got=(str(error).strip() or type(error).__name__).splitlines()[0],
        ) from error
    return storage


def _find(where: str) -> Storage:
    if "://" not in where:
        return Storage(LocalFileSystem(), str(Path(where).absolute()))
    try:
        return Storage(*FileSystem.from_uri(where))
    except ArrowInvalid as error:  # a ValueError
        if "Unrecognized filesystem" not in str(error):  # Arrow supports the scheme, but the rest of the URL is wrong
            raise
        filesystem, path = url_to_fs(where)
        return Storage(PyFileSystem(FSSpecHandler(filesystem)), path)

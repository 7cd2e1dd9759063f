"""The files of a study on a cluster: prepared data and plugins, which nodes may lack, and checkpoints.

The courier is an actor on the machine of the driver. It copies data and plugins through Ray's object store; files in a
folder that a node can see are not copied.

The storage of checkpoints is a path or URL. A run of Ray Tune is a folder `STUDY-DATE-TIME-PROCESS` of it, and each of
its jobs a folder `KEY_...` in that. The key identifies the trials of a job, so that the next driver finds the
checkpoints of unfinished jobs.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import ray
from fsspec.core import url_to_fs
from pyarrow import ArrowInvalid
from pyarrow.fs import FileSelector, FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

from ablate.errors import EngineError, PluginError
from ablate.execution.checkpoint import MEMBERS, PREFIX, read_pack
from ablate.locations import real_path, temporary_folder
from ablate.planning.packing import ResumablePack
from ablate.spec.source_code import read_sources
from ablate.tasks.cache import folder_of

if sys.platform == "win32":
    _USER = os.getlogin()
else:
    _USER = str(os.getuid())
"""Tells apart the folders of the users of a machine."""


class Courier:
    """Serves the driver's prepared data, and collects the members that are asked to leave their jobs.

    Args:
        cache: The driver's folder of prepared data.
    """

    def __init__(self, cache: str) -> None:
        self._cache = Path(cache)
        self._packed: dict[str, Any] = {}
        self._stops: dict[int, list[int]] = defaultdict(list)

    def fetch(self, fingerprint: str) -> Any:
        """A reference to prepared data as a tar file; None if there are no files, as for tasks that generate data."""
        folder = folder_of(self._cache, fingerprint)
        if not folder.is_dir():
            return None
        if fingerprint not in self._packed:
            self._packed[fingerprint] = ray.put(pack(folder))
        return self._packed[fingerprint]

    def stop(self, number: int, member: int) -> None:
        """Ask a member to leave its job."""
        self._stops[number].append(member)

    def stops(self, number: int) -> list[int]:
        """The members of a job that were asked to leave since the last call."""
        return self._stops.pop(number, [])


def local_cache(cache: Path, fingerprint: str, courier: Any) -> Path:
    """The cache folder to use on this node: the driver's if this node can see the data there, else one with a copy.

    Args:
        cache: The driver's folder of prepared data.
        courier: The handle of the `Courier`.
    """
    if folder_of(cache, fingerprint).is_dir():
        return cache
    copies = Path(temporary_folder(), f"ablate-data-{_USER}")
    if not folder_of(copies, fingerprint).is_dir():
        reference = ray.get(courier.fetch.remote(fingerprint))
        if reference is None:
            return cache
        unpack(ray.get(reference), folder_of(copies, fingerprint))
    return copies


def pack(folder: Path) -> bytes:
    """The files of a folder as a tar file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    return file.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Unpack files into a new folder. This is atomic, and safe when several workers do it at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(building, filter="data")
        try:
            os.rename(building, folder)
        except OSError:
            if not folder.is_dir():  # otherwise another worker of this node has made the folder
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def read_plugin(location: str) -> tuple[str, dict[str, bytes]]:
    """The absolute path of a plugin on the machine of the driver, and its files: itself and the modules beside it.

    Returns:
        The path, and the content of each file by its path below the folder of the plugin.

    Raises:
        PluginError: The file cannot be read.
    """
    path = real_path(location)
    sources = read_sources(path)
    if "" not in sources:
        raise PluginError("this file cannot be read", where=location, remedy="Give `--plugin` a Python file.")
    files = {file: content for file, content in sources.values() if file.is_relative_to(path.parent)}
    return str(path), {file.relative_to(path.parent).as_posix(): content for file, content in files.items()}


def write_plugin(location: str, files: Mapping[str, bytes]) -> str:
    """The path of a plugin on this node: its own path if the same files are there, else that of a copy.

    Args:
        location: Its path on the machine of the driver.
        files: The content of each of its files, by its path below the folder of the plugin.
    """
    path = Path(location)
    if all(_holds(path.parent / name, content) for name, content in files.items()):
        return location
    parts = [part for name in sorted(files) for part in (name.encode(), files[name])]
    digest = hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).hexdigest()
    folder = Path(temporary_folder(), f"ablate-plugins-{_USER}", digest)
    for name, content in files.items():
        home = folder / name
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=home.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, home)  # atomic; safe when several workers write at once
    return str(folder / path.name)


def _holds(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content


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

"""Brings what a node lacks: prepared data and plugins, through Ray's object store.

The courier is an actor on the driver's machine. What every node sees anyhow (a shared folder) is not copied.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import ray

from ablate.errors import PluginError
from ablate.tasks.cache import folder_of


class Courier:
    """Reads the driver's prepared data, and keeps which members of which jobs are to stop.

    Args:
        cache: The driver's folder of prepared data.
    """

    def __init__(self, cache: str) -> None:
        self._cache = Path(cache)
        self._packed: dict[str, Any] = {}
        self._stops: dict[int, list[int]] = defaultdict(list)

    def fetch(self, fingerprint: str) -> Any:
        """A reference to prepared data as a tar file; None if there are no files: some tasks draw their data."""
        folder = folder_of(self._cache, fingerprint)
        if not folder.is_dir():
            return None
        if fingerprint not in self._packed:
            self._packed[fingerprint] = ray.put(pack(folder))
        return self._packed[fingerprint]

    def stop(self, number: int, member: int) -> None:
        """The driver wants no more of a member of a job."""
        self._stops[number].append(member)

    def stops(self, number: int) -> list[int]:
        """Members of a job that are to stop, each once."""
        return self._stops.pop(number, [])


def bring(cache: Path, fingerprint: str, courier: Any) -> Path:
    """The folder of prepared data to read from on this node: the driver's own if it can be seen, else a copy's.

    Args:
        cache: The driver's folder of prepared data.
        fingerprint: Of the data.
        courier: Handle of the `Courier`.
    """
    if folder_of(cache, fingerprint).is_dir():
        return cache
    copies = Path(tempfile.gettempdir(), f"ablate-data-{os.getuid()}")
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
    """Put files where a folder is to be; it is there whole or not at all, whoever else does the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(building, filter="data")
        try:
            os.rename(building, folder)
        except OSError:
            if not folder.is_dir():  # else another worker of this node was quicker
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def read_plugin(location: str) -> tuple[str, bytes]:
    """Where a plugin is on the driver's machine, and what it holds.

    Raises:
        PluginError: It cannot be read.
    """
    path = Path(location).resolve()
    try:
        return str(path), path.read_bytes()
    except OSError as error:
        raise PluginError(
            "this file cannot be read", where=location, remedy="Give `--plugin` a Python file."
        ) from error


def place_plugin(location: str, content: bytes) -> str:
    """Where a plugin's file is on this node: at its own path, or in a folder for what came along."""
    path = Path(location)
    if path.is_file() and path.read_bytes() == content:
        return location
    folder = Path(tempfile.gettempdir(), f"ablate-plugins-{os.getuid()}", hashlib.sha256(content).hexdigest())
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(content)
    os.replace(file.name, folder / path.name)  # whole at once, as others may do the same
    return str(folder / path.name)

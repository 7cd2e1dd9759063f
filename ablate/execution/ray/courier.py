"""Copies prepared data and plugins to nodes that lack them, through Ray's object store.

The courier is an actor on the machine of the driver. Files in a folder that a node can see are not copied.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from ablate.errors import PluginError
from ablate.locations import real_path, temporary_folder
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


def place_plugin(location: str, files: Mapping[str, bytes]) -> str:
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

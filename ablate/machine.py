"""What of this machine this process may use: cores and memory, by its affinity and by its control groups (Linux).

A container, a systemd slice or a batch system puts a process into nested control groups (version 1 or 2), and each may
limit processor time and memory. `/proc/self/cgroup` names the group for each controller; `/proc/self/mountinfo` says
where that controller is mounted, and which group its mount point shows: inside a container this is mostly its own.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import psutil

_UNLIMITED = 2**62
"""From here on a number in version 1 means that there is no limit; the kernel writes the largest multiple of a page."""


def pin(indices: Sequence[int]) -> None:
    """Pin this process and its threads to cores, given by index among the cores that it may use.

    Does nothing if the system has no affinity, or fewer cores.
    """
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        if indices and max(indices) < len(cores):
            os.sched_setaffinity(0, [cores[index] for index in indices])


def cores_for(worker: int, workers: int, threads: int) -> list[int]:
    """The indices of the cores to which a worker is pinned; empty unless all workers together use all cores.

    The system schedules fewer workers better, since it knows the other load. Workers in a container that limits
    processor time are not pinned either.
    """
    if sys.platform != "linux":
        return []
    if not workers * threads == len(os.sched_getaffinity(0)) == available_cores():
        return []
    return list(range(worker * threads, (worker + 1) * threads))


def available_cores() -> int:
    """The number of cores that this process may use, by its affinity and by the limits of its control groups."""
    cores = os.cpu_count() or 1
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    limit = core_limit()
    return cores if limit is None else min(cores, max(1, math.floor(limit)))


def available_memory() -> int:
    """Bytes that this process may still use: what the machine has left, or its control groups if that is less."""
    there, limit = int(psutil.virtual_memory().available), memory_left()
    return there if limit is None else min(there, limit)


class _Mount(NamedTuple):
    """A hierarchy of control groups: which group its mount point shows, where that is, and what it controls."""

    root: PurePosixPath
    point: Path
    version: int
    controllers: frozenset[str]


def core_limit(root: Path = Path("/")) -> float | None:
    """Cores whose processor time the groups of this process may use; None without a limit.

    Args:
        root: Where `proc` and the mounts are found.
    """
    return _least(root, "cpu", lambda folder, version: _quota_2(folder) if version == 2 else _quota_1(folder))


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that the groups of this process may still use; None without a limit. Cached files do not count as used."""
    left = _least(root, "memory", lambda folder, version: _memory(folder, version))
    return None if left is None else max(0, int(left))


def _least(root: Path, controller: str, read: Callable[[Path, int], float | None]) -> float | None:
    found = [read(folder, version) for folder, version in _groups(root, controller)]
    return min((limit for limit in found if limit is not None), default=None)


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """The folders of this process's groups that may limit `controller`, innermost first, with their version."""
    memberships: dict[str, PurePosixPath] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        memberships |= dict.fromkeys(controllers.split(","), PurePosixPath(path))
    for mount in map(_mount, _lines(root / "proc/self/mountinfo")):
        if mount is None or (mount.version == 1 and controller not in mount.controllers):
            continue
        group = memberships.get(controller if mount.version == 1 else "")
        if group is None:
            continue
        top = root / mount.point.relative_to("/")
        # A mount that shows another part of the hierarchy holds this process's own group, as inside a container.
        below = group.relative_to(mount.root) if group.is_relative_to(mount.root) else PurePosixPath()
        folder = top / below
        yield folder, mount.version
        while folder != top:
            folder = folder.parent
            yield folder, mount.version


def _mount(line: str) -> _Mount | None:
    """A line of `mountinfo` if it is a hierarchy of control groups; spaces in paths are written as `\\040`."""
    before, _, after = line.partition(" - ")
    kind, options = after.split(" ", 1)[0], after.rpartition(" ")[2]
    if kind not in ("cgroup", "cgroup2"):
        return None
    root, point = (field.replace("\\040", " ") for field in before.split(" ")[3:5])
    return _Mount(PurePosixPath(root), Path(point), 1 + (kind == "cgroup2"), frozenset(options.split(",")))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _number(file: Path) -> float | None:
    """The number in a file; None if there is no such file, or no limit."""
    try:
        value = int(file.read_text())
    except (OSError, ValueError):  # `max` in version 2
        return None
    return None if value < 0 or value >= _UNLIMITED else value


def _quota_2(folder: Path) -> float | None:
    try:
        share, period = map(int, (folder / "cpu.max").read_text().split())
    except (OSError, ValueError):  # `max 100000`
        return None
    return share / period


def _quota_1(folder: Path) -> float | None:
    share, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return share / period if share and period else None


def _memory(folder: Path, version: int) -> float | None:
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)  # above `high` it is slowed
    limit = min((one for name in names if (one := _number(folder / name)) is not None), default=None)
    if limit is None:
        return None
    used = _number(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes"))
    cached = "inactive_file" if version == 2 else "total_inactive_file"
    reclaimable = math.fsum(
        int(value) for name, value in (line.split() for line in _lines(folder / "memory.stat")) if name == cached
    )
    return limit - max(0.0, (used or 0) - reclaimable)

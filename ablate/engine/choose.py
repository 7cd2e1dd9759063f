"""The engines by name. Each is imported when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ablate.engine.base import Engine
from ablate.engine.environment import choose_device
from ablate.engine.packing import MOST
from ablate.errors import EngineError
from ablate.spec.resources import ResourcesSpec


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine may be told; each takes what concerns it.

    Attributes:
        cache: Folder of prepared data.
        device: `auto`, `cpu` or `cuda`.
        workers: Jobs at once; None: as many as there is room for.
        threads: Threads of each worker (local).
        plugins: Files that define further kinds, for the workers.
        address: Of the cluster (ray).
        resources: What each job gets (ray).
        name: Of the study.
        pack: The most trials that are trained together; None: as many as pay.
    """

    cache: Path
    device: str = "auto"
    workers: int | None = None
    threads: int = 1
    plugins: tuple[str, ...] = ()
    address: str | None = None
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    name: str = "ablate"
    pack: int | None = None


def _local(options: EngineOptions) -> Engine:
    from ablate.engine.local import LocalEngine

    device = choose_device(options.device)
    return LocalEngine(options.cache, device, options.workers, options.threads, options.plugins)


def _ray(options: EngineOptions) -> Engine:
    from ablate.engine.ray.connect import check_installed

    check_installed()
    from ablate.engine.ray.engine import RayEngine

    return RayEngine(
        options.cache,
        options.device,
        options.resources,
        address=options.address,
        workers=options.workers,
        plugins=options.plugins,
        name=options.name,
        pack=options.pack or MOST["cuda"],
    )


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {"local": _local, "ray": _ray}


ALONE = frozenset({"local"})
"""Engines that train on this machine alone, and have no use for what a cluster is told."""


def make_engine(name: str, options: EngineOptions) -> Engine:
    """The engine of this name.

    Raises:
        EngineError: There is none, its packages are not installed, or what it needs is not there.
    """
    if name not in ENGINES:
        raise EngineError("there is no such engine", where="--engine", expected=" or ".join(ENGINES), got=repr(name))
    return ENGINES[name](options)

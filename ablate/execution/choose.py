"""The engines by name; that of Ray is imported only when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ablate.errors import EngineError
from ablate.execution.base import Engine
from ablate.execution.environment import choose_device
from ablate.execution.local import LocalEngine
from ablate.extras import require
from ablate.planning.packing import MOST
from ablate.spec.resources import ResourcesSpec


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options of engines; each engine uses those that concern it.

    Attributes:
        cache: The folder of prepared data.
        device: `auto`, `cpu` or `cuda`.
        workers: The number of jobs at once; None: as many as fit.
        threads: The threads of each worker (local).
        plugins: The files that define further kinds, for the workers.
        address: The address of the cluster (ray).
        resources: The resources of each job.
        name: The name of the study.
        checkpoints: The folder of checkpoints if `resources` names none (local).
        pack: The most trials that are trained together; None: as many as are faster together.
    """

    cache: Path
    device: str = "auto"
    workers: int | None = None
    threads: int = 1
    plugins: tuple[str, ...] = ()
    address: str | None = None
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    name: str = "ablate"
    checkpoints: Path = Path("checkpoints")
    pack: int | None = None


def _local(options: EngineOptions) -> Engine:
    resources = options.resources
    device = choose_device("cpu" if options.device == "auto" and resources.gpus == 0 else options.device)
    checkpoints = Path(resources.storage or options.checkpoints).absolute() / options.name
    return LocalEngine(options.cache, device, options.workers, options.threads, options.plugins, resources, checkpoints)


def _ray(options: EngineOptions) -> Engine:
    require("ray", "the engine `ray`", where="--engine ray")
    from ablate.execution.ray.engine import RayEngine  # Ray is an extra

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
"""The engines that use only this machine and take no options of a cluster."""


def make_engine(name: str, options: EngineOptions) -> Engine:
    """The engine of this name.

    Raises:
        EngineError: There is no such engine, its packages are missing, or its device or cluster is not available.
    """
    if name not in ENGINES:
        raise EngineError("there is no such engine", where="--engine", expected=" or ".join(ENGINES), got=repr(name))
    return ENGINES[name](options)

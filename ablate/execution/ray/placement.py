"""Placements: the resources that are reserved for one job on a CPU or a GPU, and how many of them fit on the nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ray.tune import PlacementGroupFactory

from ablate.execution.ray.cluster import Node
from ablate.spec.resources import ResourcesSpec

GIB = 2**30
_WORKER_BYTES = GIB // 2
"""The memory of a worker before it trains: Python, torch and the data of the task."""
_CUDA_BYTES = 3 * GIB // 4
"""The GPU memory of a process besides its tensors: the CUDA context and unused blocks of the allocator."""
_GRAPH = 2
"""The memory of a trial on a GPU in units of its prediction: a CUDA graph reserves that of a step again."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The resources that are reserved for one job.

    Attributes:
        device: `cpu` or `cuda`.
        threads: The threads of each training process.
        needs: Pairs of a resource and its amount, with Ray's names and units (memory in bytes).
        memory: The bytes of the device that the job may use.
        labels: The labels that a node must have.
        ranks: The processes that train the job together, each on a GPU of its own where there are GPUs.
    """

    device: str
    threads: int
    needs: tuple[tuple[str, float], ...]
    memory: int
    labels: tuple[tuple[str, str], ...] = ()
    ranks: int = 1

    @property
    def devices(self) -> list[str]:
        """The device of each process. Ray shows a job only the GPUs that it reserved for it."""
        if self.device == "cuda" and self.ranks > 1:
            return [f"cuda:{index}" for index in range(self.ranks)]
        return [self.device] * self.ranks

    def request(self) -> PlacementGroupFactory:
        """The placement group of the placement for Ray Tune."""
        selector: dict[str, Any] = {"bundle_label_selector": [dict(self.labels)]} if self.labels else {}
        return PlacementGroupFactory([dict(self.needs)], **selector)

    def count(self, node: Node) -> int:
        """The number of such placements on an empty node."""
        if any(node.labels.get(key) != value for key, value in self.labels):
            return 0
        fits = [_floor(node.resources.get(name, 0.0) / amount) for name, amount in self.needs if amount > 0]
        whole = dict(self.needs).get("GPU", 0.0)
        if 0 < whole < 1:  # fractions of two GPUs cannot be combined
            fits.append(int(node.gpus) * _floor(1 / whole))
        return min(fits, default=0)


def find_placements(
    spec: ResourcesSpec,
    device: str,
    nodes: Iterable[Node],
    needed: int,
    gpu_bytes: int,
    pack: int = 1,
    ranks: int = 1,
    needed_on_gpu: int | None = None,
) -> dict[Placement, int]:
    """The kinds of placement that the nodes offer and the number of each; placements on GPUs come first.

    Args:
        device: `cpu`, `cuda`, or `auto`: GPUs on nodes that have them, CPUs on the others.
        needed: The predicted bytes of the largest trial.
        gpu_bytes: The memory of the smallest GPU; 0 if it is unknown.
        pack: The most trials that are trained together on a GPU.
        ranks: The processes that train a job on CPUs.
        needed_on_gpu: The predicted bytes on a GPU, whose kernels keep less; None: as many.
    """
    nodes = list(nodes)
    threads = max(1, int(spec.cpus))
    labels = tuple(sorted(spec.labels.items()))

    def common(processes: int) -> dict[str, float]:
        memory = spec.memory * GIB if spec.memory is not None else processes * (needed + _WORKER_BYTES)
        rounded = math.ceil(memory / 2**20) * 2**20  # an actor is reused only by jobs of the same size
        return {"CPU": processes * spec.cpus, "memory": rounded, **spec.custom}

    on_cpu = common(ranks)
    plain = Placement("cpu", threads, tuple(on_cpu.items()), int(on_cpu["memory"]), labels, ranks)
    with_gpu = [node for node in nodes if node.gpus > 0]
    if device == "cpu" or spec.gpus == 0 or (device == "auto" and not with_gpu):
        return {plain: sum(plain.count(node) for node in nodes)}
    on_device = needed if needed_on_gpu is None else needed_on_gpu
    share = spec.gpus if spec.gpus is not None else _share(_GRAPH * on_device * pack, gpu_bytes)
    several = max(1, int(share))
    on_gpu = replace(
        plain,
        device="cuda",
        needs=tuple({**common(several), "GPU": share}.items()),
        ranks=several,
        memory=max(0, int(gpu_bytes * min(1.0, share)) - _CUDA_BYTES),
    )
    counts = {on_gpu: sum(on_gpu.count(node) for node in with_gpu)}
    if device == "auto":
        counts[plain] = sum(plain.count(node) for node in nodes if node.gpus == 0)
    return counts


def _share(needed: int, gpu_bytes: int) -> float:
    """The fraction of a GPU whose memory holds one job, so that as many jobs as fit share a GPU."""
    if gpu_bytes == 0:
        return 1.0
    together = max(1, gpu_bytes // (needed + _CUDA_BYTES))
    return math.floor(10_000 / together) / 10_000  # Ray rounds fractions to 1/10,000


def _floor(ratio: float) -> int:
    """Round down, with a tolerance for the rounding errors of fractions."""
    return math.floor(ratio + 1e-6)


def describe(nodes: Iterable[Node]) -> str:
    """The total resources of the nodes, for a message."""
    totals: dict[str, Any] = {}
    for node in nodes:
        for name, amount in node.resources.items():
            if not name.startswith("node:"):
                totals[name] = totals.get(name, 0.0) + amount
    shown = {name: f"{amount / GIB:.1f} GiB" if "memory" in name else f"{amount:g}" for name, amount in totals.items()}
    return ", ".join(f"{name} {amount}" for name, amount in sorted(shown.items()))

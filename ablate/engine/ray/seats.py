"""Where jobs can sit: what is reserved for one on a processor or on a GPU, and how many fit on the nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ray.tune import PlacementGroupFactory

from ablate.spec.resources import ResourcesSpec

GIB = 2**30
_WORKER_BYTES = GIB // 2
"""What a worker takes before it trains anything: Python, torch and the task's data."""
_CUDA_BYTES = 3 * GIB // 4
"""What a process takes of a GPU besides its tensors: CUDA's context and the allocator's spare blocks."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster, by what it was started with."""

    resources: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> float:
        """How many GPUs it has."""
        return self.resources.get("GPU", 0.0)


@dataclass(frozen=True, slots=True)
class Seat:
    """What is reserved for one job.

    Attributes:
        device: `cpu` or `cuda`.
        threads: Threads to train with.
        needs: Resource to amount, in Ray's words and units (memory in bytes).
        memory: Bytes of the device that a job may take.
        labels: What a node must be labelled with.
    """

    device: str
    threads: int
    needs: tuple[tuple[str, float], ...]
    memory: int
    labels: tuple[tuple[str, str], ...] = ()

    def request(self) -> PlacementGroupFactory:
        """The seat as Ray Tune asks for it."""
        selector: dict[str, Any] = {"bundle_label_selector": [dict(self.labels)]} if self.labels else {}
        return PlacementGroupFactory([dict(self.needs)], **selector)

    def count(self, node: Node) -> int:
        """How many such seats a node has when it is empty."""
        if any(node.labels.get(key) != value for key, value in self.labels):
            return 0
        fits = [_floor(node.resources.get(name, 0.0) / amount) for name, amount in self.needs if amount > 0]
        whole = dict(self.needs).get("GPU", 0.0)
        if 0 < whole < 1:  # a fraction is of one GPU, and what is left of two is no third
            fits.append(int(node.gpus) * _floor(1 / whole))
        return min(fits, default=0)


def seats(
    spec: ResourcesSpec, device: str, nodes: Iterable[Node], needed: int, gpu_bytes: int, pack: int = 1
) -> dict[Seat, int]:
    """The kinds of seat that a cluster offers, and how many of each there are now. Those on GPUs come first.

    Args:
        spec: What a job is to get.
        device: `cpu`, `cuda` or `auto`: GPUs where there are any, processors where there are none.
        nodes: The machines.
        needed: Bytes that the largest trial is predicted to need.
        gpu_bytes: Memory of the smallest GPU; 0 if it is not known.
        pack: The most trials that are trained together on a GPU.
    """
    nodes = list(nodes)
    memory = spec.memory * GIB if spec.memory is not None else needed + _WORKER_BYTES
    threads = max(1, int(spec.cpus))
    labels = tuple(sorted(spec.labels.items()))
    rounded = math.ceil(memory / 2**20) * 2**20  # of few sizes, as actors are used again by jobs of one size
    common: dict[str, float] = {"CPU": spec.cpus, "memory": rounded, **spec.custom}
    plain = Seat("cpu", threads, tuple(common.items()), rounded, labels)
    with_gpu = [node for node in nodes if node.gpus > 0]
    if device == "cpu" or spec.gpus == 0 or (device == "auto" and not with_gpu):
        return {plain: sum(plain.count(node) for node in nodes)}
    share = spec.gpus if spec.gpus is not None else _share(needed * pack, gpu_bytes)
    on_gpu = replace(
        plain,
        device="cuda",
        needs=tuple({**common, "GPU": share}.items()),
        memory=max(0, int(gpu_bytes * min(1.0, share)) - _CUDA_BYTES),
    )
    found = {on_gpu: sum(on_gpu.count(node) for node in with_gpu)}
    if device == "auto":
        found[plain] = sum(plain.count(node) for node in nodes if node.gpus == 0)
    return found


def _share(needed: int, gpu_bytes: int) -> float:
    """The fraction of a GPU whose memory holds a job; so that as many as fit, and no more, share one."""
    if gpu_bytes == 0:
        return 1.0
    together = max(1, gpu_bytes // (needed + _CUDA_BYTES))
    return math.floor(10_000 / together) / 10_000  # Ray counts in ten-thousandths


def _floor(ratio: float) -> int:
    """Whole seats; sums of fractions are a little off."""
    return math.floor(ratio + 1e-6)


def describe(nodes: Iterable[Node]) -> str:
    """What the nodes offer, for a message."""
    totals: dict[str, Any] = {}
    for node in nodes:
        for name, amount in node.resources.items():
            if not name.startswith("node:"):
                totals[name] = totals.get(name, 0.0) + amount
    shown = {name: f"{amount / GIB:.1f} GiB" if "memory" in name else f"{amount:g}" for name, amount in totals.items()}
    return ", ".join(f"{name} {amount}" for name, amount in sorted(shown.items()))

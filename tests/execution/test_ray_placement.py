"""The resources that are reserved for a job, and how many jobs fit, without a cluster."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.execution.ray.cluster import GIB, Node, Placement, find_placements
from ablate.spec.space_fields import ResourcesSpec

CPU_NODE = Node({"CPU": 16.0, "memory": 64.0 * GIB})
GPU_NODE = Node({"CPU": 8.0, "memory": 64.0 * GIB, "GPU": 2.0})
H200 = 139 * GIB


def found(nodes: list[Node], needed: int = GIB, device: str = "auto", pack: int = 1, **spec: Any) -> dict[str, int]:
    """Device to number of placements."""
    made = find_placements(
        ResourcesSpec(**spec), device, nodes, needed, H200 if any(n.gpus for n in nodes) else 0, pack
    )
    return {placement.device: count for placement, count in made.items()}


def share(needed: int, **spec: Any) -> float:
    placement = next(iter(find_placements(ResourcesSpec(**spec), "cuda", [GPU_NODE], needed, H200)))
    return dict(placement.needs)["GPU"]


def test_processors_hold_as_many_as_their_cores_and_memory() -> None:
    assert found([CPU_NODE]) == {"cpu": 16}
    assert found([CPU_NODE, CPU_NODE], cpus=2) == {"cpu": 16}
    assert found([CPU_NODE], cpus=0.5) == {"cpu": 32}
    assert found([CPU_NODE], needed=8 * GIB) == {"cpu": 7}, "64 GiB hold seven of 8.5"
    assert found([CPU_NODE], memory=32) == {"cpu": 2}
    assert found([]) == {"cpu": 0}


def test_predicted_memory_decides_how_many_share_a_gpu() -> None:
    assert share(200 * GIB) == 1.0
    assert share(100 * GIB) == 1.0
    assert share(30 * GIB) == 0.5, "a CUDA graph reserves the memory of a trial again"
    assert share(10 * GIB) == pytest.approx(1 / 6, abs=1e-4)
    assert found([GPU_NODE], needed=30 * GIB, device="cuda", memory=1) == {"cuda": 4}
    assert found([GPU_NODE], needed=30 * GIB, device="cuda", memory=1, pack=2) == {"cuda": 2}, "packs take more"
    assert share(20 * GIB, gpus=0.25) == 0.25, "what was asked for counts"
    given = (ResourcesSpec(), "auto", [GPU_NODE, CPU_NODE], 30 * GIB, H200)
    on_gpu, on_cpu = (dict(placement.needs) for placement in find_placements(*given, needed_on_gpu=10 * GIB))
    assert (on_gpu["GPU"], on_cpu["memory"]) == (pytest.approx(1 / 6, abs=1e-4), 30.5 * GIB), "its kernels keep less"


def test_a_trial_on_several_gpus_has_a_core_and_memory_for_each_of_its_processes_on_one_machine() -> None:
    (placement,) = find_placements(ResourcesSpec(gpus=2), "cuda", [GPU_NODE], GIB, H200)
    assert dict(placement.needs) == {"CPU": 2.0, "memory": 3.0 * GIB, "GPU": 2.0}
    assert placement.devices == ["cuda:0", "cuda:1"]
    assert found([GPU_NODE, GPU_NODE], device="cuda", gpus=2) == {"cuda": 2}
    assert found([GPU_NODE, GPU_NODE], device="cuda", gpus=4) == {"cuda": 0}, "no trial is spread over two machines"
    assert found([GPU_NODE, CPU_NODE], gpus=2) == {"cuda": 1, "cpu": 16}, "one process on a machine without GPUs"


@given(needed=st.integers(2**20, 200 * GIB), gpus=st.integers(1, 8))
def test_those_that_share_a_gpu_fit_into_it(needed: int, gpus: int) -> None:
    node = Node({"CPU": 1e6, "memory": 1e18, "GPU": float(gpus)})
    ((placement, count),) = find_placements(ResourcesSpec(memory=1), "cuda", [node], needed, H200).items()
    together = round(count / gpus)
    assert count == together * gpus, "no job is spread over two"
    assert together == 1 or together * 2 * needed <= H200, "a CUDA graph reserves the memory of a trial again"
    assert (together + 1) * (2 * needed + GIB) > H200, "one more would not fit"
    assert dict(placement.needs)["GPU"] * together <= 1.0


def test_a_fraction_is_of_one_gpu() -> None:
    node = Node({"CPU": 64.0, "memory": 1e15, "GPU": 2.0})
    assert found([node], device="cuda", gpus=0.6) == {"cuda": 2}, "fractions of two GPUs cannot be combined"
    assert found([node], device="cuda", gpus=0.3) == {"cuda": 6}
    assert found([node], device="cuda", gpus=2) == {"cuda": 1}


def test_nodes_with_gpus_and_nodes_without_are_both_used() -> None:
    assert found([CPU_NODE, GPU_NODE], gpus=1) == {"cuda": 2, "cpu": 16}
    assert found([CPU_NODE, GPU_NODE], device="cuda", gpus=1) == {"cuda": 2}
    assert found([CPU_NODE, GPU_NODE], device="cpu") == {"cpu": 24}
    assert found([CPU_NODE, GPU_NODE], gpus=0) == {"cpu": 24}


def test_a_gpu_of_unknown_size_is_for_one_trial_at_a_time() -> None:
    (placement, count), *_ = find_placements(ResourcesSpec(), "cuda", [GPU_NODE], GIB, 0, pack=16).items()
    assert (dict(placement.needs)["GPU"], placement.memory, count) == (1.0, 0, 2)


def test_custom_labels_and_resources_choose_nodes() -> None:
    fast = Node({"CPU": 4.0, "memory": 64.0 * GIB, "disk": 2.0}, {"zone": "a"})
    slow = Node({"CPU": 8.0, "memory": 64.0 * GIB}, {"zone": "b"})
    assert found([fast, slow]) == {"cpu": 12}
    assert found([fast, slow], labels={"zone": "b"}) == {"cpu": 8}
    assert found([fast, slow], labels={"zone": "c"}) == {"cpu": 0}
    assert found([fast, slow], custom={"disk": 1}) == {"cpu": 2}
    (placement,) = find_placements(ResourcesSpec(labels={"zone": "b"}), "cpu", [slow], GIB, 0)
    assert placement.request()._bound.kwargs["bundle_label_selector"] == [{"zone": "b"}]


def test_memory_is_reserved_in_few_sizes() -> None:
    """Actors are used again by jobs that ask for the same: a byte more must not be another request."""

    def placement(needed: int) -> Placement:
        return next(iter(find_placements(ResourcesSpec(), "cpu", [CPU_NODE], needed, 0)))

    assert placement(GIB + 1) == placement(GIB + 1000)
    assert math.isclose(dict(placement(GIB).needs)["memory"], 1.5 * GIB)

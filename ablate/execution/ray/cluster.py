"""A Ray cluster: connect to it or start one here; its nodes, and what of them is reserved for one job."""

from __future__ import annotations

import math
import os
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.job_config import JobConfig
from ray.tune import PlacementGroupFactory

from ablate.errors import EngineError
from ablate.execution.worker import worker_environment
from ablate.machine import available_cores
from ablate.processes import child_environment, python_command
from ablate.spec.space_fields import ResourcesSpec

LOCAL = "local"
_KNOCK_SECONDS = 5.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray must not send usage statistics without the user's consent
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster, with its total resources and its labels."""

    resources: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> float:
        """The number of its GPUs."""
        return self.resources.get("GPU", 0.0)


class _InstalledModulesFirst(JobConfig):
    """Does not put the working folder and that of the program first in the module path of the workers."""

    def _runtime_env_has_working_dir(self) -> bool:
        return True


def connect(address: str | None, threads: int) -> bool:
    """Connect this process to Ray.

    Args:
        address: `auto`, HOST:PORT, or `local` to start Ray here; None: $RAY_ADDRESS if it is set, else `local`.

    Returns:
        Whether this call connected. False: the process was connected before, and the caller must not disconnect it.

    Raises:
        EngineError: There is no cluster.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray
    from ray.exceptions import AuthenticationError

    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address.startswith("ray://"):
        raise EngineError(
            "the driver has to run on a machine of the cluster",
            where=f"--address {address}",
            expected="auto, HOST:PORT or local",
            remedy="Log in to the head node, or send the command there with `ray job submit`.",
        )
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": None}
    runtime: dict[str, Any] = {"env_vars": worker_environment(threads)}
    if address == LOCAL:
        options |= {"num_cpus": available_cores(), "include_dashboard": False}
        runtime["env_vars"] |= {k: value for k, value in child_environment().items() if value != os.environ.get(k)}
    else:
        runtime["py_modules"] = [str(Path(__file__).parents[2])]
        runtime["excludes"] = ["__pycache__"]
        del options["include_dashboard"]
    try:
        _knock(address)
        ray.init(address=address, runtime_env=runtime, job_config=_InstalledModulesFirst(), **options)
    except (OSError, RuntimeError, ValueError, AuthenticationError) as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        if address == LOCAL:
            raise _cannot_start(said) from error
        if isinstance(error, AuthenticationError) or said.startswith("Failed to connect"):  # a server answered
            raise EngineError(
                "the Ray cluster refuses this process: its authentication token is missing or another"
                " (`InvalidAuthToken` above), or its version of Ray is another",
                where=f"--address {address}",
                got=said,
                remedy="Copy `~/.ray/auth_token` of the head node to the same place here and on every node (or name it"
                " by RAY_AUTH_TOKEN_PATH), or start all of them, and ablate, with RAY_AUTH_MODE=disabled.",
            ) from error
        raise EngineError(
            "there is no Ray cluster to connect to",
            where=f"--address {address}",
            got=said,
            remedy="Start one with `ray start --head` here and `ray start --address=HOST:6379` on each further machine"
            " (with the same versions of Python and Ray), or leave --address out to use this machine alone.",
        ) from error
    return True


def _cannot_start(said: str) -> EngineError:
    """Why Ray cannot start on this machine, from what it said itself."""
    if "AF_UNIX" in said or "socket path" in said.lower():
        remedy = "Its sockets stand in the folder for temporary files: set TMPDIR to a folder with a short path."
    else:
        remedy = "Leave out `--engine ray` to train without it on this machine."
    return EngineError("Ray cannot start on this machine", where="--engine ray", got=said, remedy=remedy)


def _knock(address: str) -> None:
    """Check that a server listens at HOST:PORT; Ray itself would retry for many minutes.

    Raises:
        OSError: No server listens.
        ValueError: The address is not valid.
    """
    if address not in (LOCAL, "auto"):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS):
            pass


def nodes() -> list[Node]:
    """The nodes of the cluster that are alive."""
    return [Node(resources=node["Resources"], labels=node.get("Labels") or {}) for node in alive()]


def alive() -> list[dict[str, Any]]:
    """The nodes of the cluster that are alive, as Ray describes them."""
    import ray

    every: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in every if node["Alive"]]


def give_up_lost_placements() -> None:
    """Remove the placement groups of this process on nodes that have died; their jobs restart elsewhere.

    Ray would reschedule these groups before all others and without a pause. The head would do nothing else, and the
    groups of waiting jobs would never be placed.
    """
    import ray
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

    job = ray.get_runtime_context().get_job_id()
    for number, group in placement_group_table().items():
        if group["state"] == "RESCHEDULING" and number.endswith(job):
            remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(number))))


def on_node(node: str) -> Any:
    """The scheduling strategy that runs a task on one node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


_SIZES = (
    "import torch; print(*(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())))"
)
_ASK_SECONDS = 120.0


def smallest_here() -> int:
    """The bytes of the smallest GPU of this machine; 0 if torch finds none."""
    # Ray hides GPUs from tasks that reserve none, and torch reads the list of GPUs once per process: use a new process.
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        command = python_command("-c", _SIZES)
        reply = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_ASK_SECONDS)
        return min(map(int, reply.stdout.split()), default=0)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


class Gpus:
    """The GPU memory of the nodes. A node that joins later is asked when it is first seen.

    Each node is asked once, by a task that reserves no GPU: a task that reserved one would wait until a GPU is free.

    Args:
        ask: Runs on each node with GPUs and returns the bytes of its smallest GPU.
    """

    def __init__(self, ask: Callable[[], int] = smallest_here) -> None:
        self._ask: Any = ray.remote(ask)
        self._sizes: dict[str, int] = {}
        self._asked: dict[Any, str] = {}

    def smallest(self, patience: float = 0.0) -> int:
        """The bytes of the smallest GPU of the answers within `patience` seconds; 0 if no answer is known."""
        there = {node["NodeID"] for node in alive() if node["Resources"].get("GPU", 0) > 0}
        for node in there - self._sizes.keys() - set(self._asked.values()):
            task = self._ask.options(num_cpus=0, num_gpus=0, scheduling_strategy=on_node(node))
            self._asked[task.remote()] = node
        if self._asked:
            reply, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=patience)
            for answer in reply:
                node = self._asked.pop(answer)
                with suppress(RayError):  # the node has died; if it comes back, it is asked again
                    self._sizes[node] = ray.get(answer)
        return min((self._sizes[node] for node in there & self._sizes.keys() if self._sizes[node]), default=0)


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

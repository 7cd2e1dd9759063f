"""The Ray engine: runs jobs as trials of Ray Tune, on a cluster or on this machine."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from queue import Empty
from typing import Any
from uuid import uuid4

import ray
from ray import tune

from ablate.errors import EngineError
from ablate.execution.engine import Engine
from ablate.execution.environment import check_abilities, check_shard, check_shares
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Broken, Done, Job, Message
from ablate.execution.ray.cluster import GIB, Gpus, Node, Placement, connect, describe, find_placements, nodes, on_node
from ablate.execution.ray.files import Courier, open_storage, read_plugin
from ablate.execution.ray.scheduling import population_key, population_of
from ablate.execution.ray.trainable import JobTrainable
from ablate.execution.ray.tuning import TuneRun
from ablate.locations import temporary_folder
from ablate.planning.memory import part_of_rank, trial_bytes
from ablate.planning.packing import MOST, JobDevice, ResumablePack
from ablate.planning.plan import Plan, Trial

_CLOSE_SECONDS = 10.0
_LOOK_SECONDS = 2.0
"""The seconds after which the list of nodes is read again."""
_GPU_SECONDS = 60.0
"""How long to wait at the start until all nodes have reported the memory of their GPUs."""
_RETRIES = 3
"""How often a job is restarted. Ray notices the death of a node late, so that the node can break a job twice."""


class RayEngine(Engine):
    """Runs jobs as trials of Ray Tune.

    It accepts twice as many jobs as can run, so that an actor that ends a job can start a waiting one.

    Args:
        name: The name of the run in Ray's dashboard.
        ranks: The processes that train each job together on a CPU; on GPUs there is one for each GPU of a job.
    """

    def __init__(self, options: RunOptions, name: str = "ablate", ranks: int = 1) -> None:
        resources = options.resources_of_job()
        if resources.checkpoint_every and not resources.checkpoint_dir:
            raise EngineError(
                "checkpoints need storage that outlives the machine that wrote them",
                where="resources.checkpoint_dir or --checkpoint-dir",
                remedy="Name a folder that all machines share, or a URL.",
            )
        self._options = replace(options, cache=options.folder.absolute(), resources=resources)
        self._device = options.device
        self._resources = resources
        self._workers = options.workers
        self._pack = options.pack or MOST["cuda"]
        self._ranks = ranks
        self._parts = max(ranks, resources.processes) if resources.shard else 1
        """The processes among which a trial is divided."""
        self._plugins = [read_plugin(plugin) for plugin in options.plugins]
        self._name = name
        self._tuning: TuneRun | None = None
        self._placed: dict[int, Placement] = {}
        self._missing: dict[str, int] = {}
        """The number of members of each population that are not submitted yet; room is made for all of them."""
        self._populations = False
        self._needed = {"cpu": 0, "cuda": 0}
        """The predicted bytes of the largest trial on each device."""
        self._looked = 0.0
        shared = open_storage(resources.checkpoint_dir) if resources.checkpoint_dir else None
        self._connected = connect(options.address, max(1, int(resources.cpus)))
        self._scratch = tempfile.TemporaryDirectory(
            prefix="ablate-ray-", dir=temporary_folder(), ignore_cleanup_errors=True
        )
        self._storage = shared or open_storage(self._scratch.name)
        self._gpus = Gpus() if self._device != "cpu" and resources.gpus != 0 else None
        self._gpu_bytes = self._gpus.smallest(_GPU_SECONDS) if self._gpus else 0
        self._placements: dict[Placement, int] = {}

    @property
    def size(self) -> int:
        """The number of jobs that the cluster can run at once now; at least one, since a cluster may grow."""
        self._look()
        fit = max(1, sum(self._placements.values()))
        return fit if self._workers is None else min(fit, self._workers)

    def room(self) -> int:
        ahead = self.size if self._workers is None else 0
        return max(self.size + ahead - len(self._placed), *self._missing.values(), 0)

    def admit(self, plan: Plan) -> None:
        """Check the requested resources and the predicted memory against the nodes of the cluster."""
        self._populations |= any(bool(trial.variant.spec.training.population) for trial in plan.trials)
        self._needed = {"cpu": 0, "cuda": 0}
        if (
            plan.trials and not plan.built and self._resources.gpus is None
        ):  # nobody knows which share a trainer of the user's needs
            self._resources = self._resources.model_copy(update={"gpus": 1.0})
        self.expect(plan.trials)
        for placement in self._find_placements(nodes()):
            check_abilities(plan.built, placement.device, here=False)
            check_shares(plan.built, placement.ranks)
            if self._resources.shard:
                check_shard(plan.built, placement.ranks)
        if plan.trials:
            self._check_placements()

    def admit_blocks(self, variant: str, needed: int) -> None:
        self._needed = dict.fromkeys(self._needed, needed // self._parts)
        self._check_placements()

    def _check_placements(self) -> None:
        """Refuse to continue if no node has the resources of a job."""
        there = nodes()
        placements = self._find_placements(there)
        if not any(placements.values()):
            wanted = {name: amount for placement in placements for name, amount in placement.needs}
            shown = [
                f"{name} {amount / GIB:.1f} GiB" if name == "memory" else f"{name} {amount:g}"
                for name, amount in wanted.items()
            ]
            raise EngineError(
                "no machine of the cluster has the resources of a trial",
                where="--engine ray",
                expected=", ".join(
                    [*shown, *(f"label {key}={value}" for key, value in self._resources.labels.items())]
                ),
                got=f"{describe(there)} on {len(there)} machines",
                remedy="Ask for less (`resources` in the space, --cpus, --gpus, --memory), or start such a machine.",
            )

    def expect(self, trials: Iterable[Trial]) -> None:
        """Give further jobs placements with enough memory for the largest of these trials."""
        variants = {trial.variant.hash: trial.variant for trial in trials}.values()
        shares = [part_of_rank(variant, self._parts) for variant in variants]
        for device, before in self._needed.items():
            if device == "cpu" or self._gpus:
                needed = (trial_bytes(share, self._parts, device) for share in shares)
                self._needed[device] = max(before, *needed, 0)
        self._looked = 0.0

    def resumable_packs(self) -> list[ResumablePack]:
        """The packs with a complete checkpoint of an earlier driver, as their newest checkpoint describes them."""
        packs: list[ResumablePack] = []
        if self._resources.shard:
            return packs
        for checkpoints in self._storage.left(self._name).values():
            newest = next(filter(None, map(self._storage.members, checkpoints)), None)
            if newest is not None and len(newest.members) > 1:
                packs.append(newest)
        return packs

    def submit(self, job: Job) -> None:
        if self._tuning is None:
            self._tuning = self._tune()
        placement = self._next_placement()
        self._placed[job.number] = placement
        if population := population_of(job):
            key = population_key(job, population)
            self._missing[key] = self._missing.get(key, population.size) - 1
        self._tuning.submit(job, placement)

    def stop(self, number: int, member: int) -> None:
        """Ask a member to leave its job; it does so within about a second."""
        if self._tuning is not None and self._tuning.stop(number, member):
            self._courier.stop.remote(number, member)

    def poll(self, timeout: float) -> list[Message]:
        if self._tuning is None:
            time.sleep(timeout)
            return []
        messages: list[Message] = []
        with suppress(Empty):
            messages.append(
                self._tuning.messages.get(timeout=timeout) if timeout else self._tuning.messages.get_nowait()
            )
            while True:
                messages.append(self._tuning.messages.get_nowait())
        for message in messages:
            if isinstance(message, Done | Broken):
                self._placed.pop(message.number, None)
                self._tuning.forget(message.number)
        if not messages:
            self._tuning.check()
            self._look()
        return messages

    def close(self) -> None:
        """End all jobs. A cluster that was running before stays."""
        if self._tuning is not None:
            self._tuning.close(_CLOSE_SECONDS)
        if self._connected:
            ray.shutdown()
        self._scratch.cleanup()

    def next_device(self) -> JobDevice:
        """The device of the next job: a GPU as long as one is free."""
        placement = self._next_placement()
        return JobDevice(placement.device, placement.memory)

    def _look(self) -> None:
        """Read the list of nodes if it is old."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            if self._gpus:
                self._gpu_bytes = self._gpus.smallest()
            self._placements = self._find_placements(nodes())

    def _next_placement(self) -> Placement:
        """The kind of placement with the largest free share; a GPU if several are equal."""
        self._look()
        taken = Counter(self._placed.values())
        return max(self._placements, key=lambda placement: 1 - taken[placement] / max(1, self._placements[placement]))

    def _find_placements(self, there: list[Node]) -> dict[Placement, int]:
        on_cpu, on_gpu = self._needed.values()
        return find_placements(
            self._resources, self._device, there, on_cpu, self._gpu_bytes, self._pack, self._ranks, on_gpu
        )

    def _tune(self) -> TuneRun:
        here = on_node(ray.get_runtime_context().get_node_id())
        remote: Any = ray.remote(Courier)
        placed = remote.options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        self._courier = placed.remote(str(self._options.folder))
        trainable = tune.with_parameters(
            JobTrainable,
            options=self._options,
            courier=self._courier,
            plugins=self._plugins,
        )
        # Ray Tune looks classes up by this name, and another engine in this process has other parameters.
        trainable.__name__ = f"{JobTrainable.__name__}_{uuid4().hex}"
        trainable.__qualname__ = JobTrainable.__qualname__  # the name of the actors in Ray's dashboard
        return TuneRun(trainable, self._storage, self._name, _RETRIES, populations=self._populations)

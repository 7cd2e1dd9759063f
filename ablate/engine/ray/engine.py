"""The Ray engine: the driver's jobs as trials of Ray Tune, on a cluster or on this machine."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import ray
from ray import tune

from ablate.engine.base import Engine, Left, Place
from ablate.engine.memory import trial_bytes
from ablate.engine.plan import Plan, Trial
from ablate.engine.ray.connect import connect, nodes, on_node
from ablate.engine.ray.courier import Courier, read_plugin
from ablate.engine.ray.gpus import Gpus
from ablate.engine.ray.population import population_key, population_of
from ablate.engine.ray.seats import GIB, Node, Seat, describe, seats
from ablate.engine.ray.storage import open_storage
from ablate.engine.ray.trainable import JobTrainable
from ablate.engine.ray.tuning import Tuning
from ablate.engine.worker import Broken, Done, Job, Message
from ablate.errors import EngineError
from ablate.spec.resources import ResourcesSpec

_CLOSE_SECONDS = 10.0
_LOOK_SECONDS = 2.0
"""How old what we know of the cluster's machines may be."""
_GPU_SECONDS = 60.0
"""How long the machines that are there at the start have to tell how large their GPUs are."""
_RETRIES = 3
"""How often a job is begun again; a machine takes a while to be known as dead, and may take a job with it twice."""


class RayEngine(Engine):
    """Jobs as trials of Ray Tune.

    As many jobs again as run are submitted ahead, so that an actor that has ended one finds the next one waiting.

    Args:
        cache: Folder of prepared data on this machine.
        device: `auto`, `cpu` or `cuda`.
        resources: What each job gets.
        address: Of the cluster, see `connect`.
        workers: How many jobs run at once; None: as many as fit.
        plugins: Files that every worker imports.
        name: Of the run in Ray's own views.
        pack: The most trials that are trained together on a GPU.
    """

    def __init__(
        self,
        cache: Path,
        device: str,
        resources: ResourcesSpec,
        address: str | None = None,
        workers: int | None = None,
        plugins: tuple[str, ...] = (),
        name: str = "ablate",
        pack: int = 1,
    ) -> None:
        self._cache = cache
        self._device = device
        self._resources = resources
        self._workers = workers
        self._pack = pack
        self._plugins = [read_plugin(plugin) for plugin in plugins]
        self._name = name
        self._tuning: Tuning | None = None
        self._placed: dict[int, Seat] = {}
        self._missing: dict[str, int] = {}
        """Members that are still to come of each population: they are to train together, however many run at once."""
        self._populations = False
        self._needed = 0
        self._looked = 0.0
        shared = open_storage(resources.storage) if resources.storage else None
        self._connected = connect(address, max(1, int(resources.cpus)))
        self._scratch = tempfile.TemporaryDirectory(prefix="ablate-ray-", ignore_cleanup_errors=True)
        self._storage = shared or open_storage(self._scratch.name)
        self._gpus = Gpus() if device != "cpu" and resources.gpus != 0 else None
        self._gpu_bytes = self._gpus.smallest(_GPU_SECONDS) if self._gpus else 0
        self._seats: dict[Seat, int] = {}

    @property
    def size(self) -> int:
        """How many jobs the machines that are there now can train at once; at least one, for a cluster that grows."""
        self._look()
        fit = max(1, sum(self._seats.values()))
        return fit if self._workers is None else min(fit, self._workers)

    def room(self) -> int:
        """See `Engine.room`."""
        ahead = self.size if self._workers is None else 0
        return max(self.size + ahead - len(self._placed), *self._missing.values(), 0)

    def admit(self, plan: Plan) -> None:
        """See `Engine.admit`; by what is asked for each job, and the memory that the cost of the variants predicts."""
        self._populations = any(trial.variant.spec.training.population for trial in plan.trials)
        self._needed = 0
        self.expect(plan.trials)
        there = nodes()
        found = self._find_seats(there)
        if plan.trials and not any(found.values()):
            wanted = {name: amount for seat in found for name, amount in seat.needs}
            shown = [
                f"{name} {amount / GIB:.1f} GiB" if name == "memory" else f"{name} {amount:g}"
                for name, amount in wanted.items()
            ]
            raise EngineError(
                "no machine of the cluster has what a trial is to get",
                where="--engine ray",
                expected=", ".join(
                    [*shown, *(f"label {key}={value}" for key, value in self._resources.labels.items())]
                ),
                got=f"{describe(there)} on {len(there)} machines",
                remedy="Ask for less (`resources` in the space, --cpus, --gpus, --memory), or start such a machine.",
            )

    def expect(self, trials: Iterable[Trial]) -> None:
        """See `Engine.expect`: further jobs get seats that hold the largest."""
        self._needed = max(self._needed, *(trial_bytes(trial.variant) for trial in trials), 0)
        self._looked = 0.0

    def left(self) -> list[Left]:
        """See `Engine.left`; each as its newest whole checkpoint has it."""
        found = []
        for checkpoints in self._storage.left(self._name).values():
            newest = next(filter(None, map(self._storage.members, checkpoints)), None)
            if newest is not None and len(newest.members) > 1:
                found.append(newest)
        return found

    def submit(self, job: Job) -> None:
        """See `Engine.submit`."""
        if self._tuning is None:
            self._tuning = self._tune()
        seat = self._next_seat()
        self._placed[job.number] = seat
        if population := population_of(job):
            key = population_key(job, population)
            self._missing[key] = self._missing.get(key, population.size) - 1
        self._tuning.submit(job, seat)

    def stop(self, number: int, member: int) -> None:
        """See `Engine.stop`; heard within about a second."""
        if self._tuning is not None and self._tuning.stop(number, member):
            self._courier.stop.remote(number, member)

    def poll(self, timeout: float) -> list[Message]:
        """See `Engine.poll`."""
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
        """See `Engine.close`. A cluster that others started stays."""
        if self._tuning is not None:
            self._tuning.close(_CLOSE_SECONDS)
        if self._connected:
            ray.shutdown()
        self._scratch.cleanup()

    def next_place(self) -> Place:
        """See `Engine.next_place`: on a GPU, where packs pay, as long as one is free."""
        seat = self._next_seat()
        return Place(seat.device, seat.memory)

    def _look(self) -> None:
        """See which machines are there, if the last look was long ago."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            if self._gpus:
                self._gpu_bytes = self._gpus.smallest()
            self._seats = self._find_seats(nodes())

    def _next_seat(self) -> Seat:
        """The kind of seat with the largest share of free ones; at equality one on a GPU."""
        self._look()
        taken = Counter(self._placed.values())
        return max(self._seats, key=lambda seat: 1 - taken[seat] / max(1, self._seats[seat]))

    def _find_seats(self, there: list[Node]) -> dict[Seat, int]:
        return seats(self._resources, self._device, there, self._needed, self._gpu_bytes, self._pack)

    def _tune(self) -> Tuning:
        here = on_node(ray.get_runtime_context().get_node_id())
        remote: Any = ray.remote(Courier)
        options = remote.options(num_cpus=0, max_restarts=-1, scheduling_strategy=here)
        self._courier = options.remote(str(self._cache.absolute()))
        trainable = tune.with_parameters(
            JobTrainable,
            cache=str(self._cache.absolute()),
            courier=self._courier,
            plugins=self._plugins,
            every=self._resources.checkpoint_every,
        )
        trainable.__qualname__ = JobTrainable.__qualname__  # what Ray's dashboard calls the actors
        return Tuning(trainable, self._storage, self._name, _RETRIES, populations=self._populations)

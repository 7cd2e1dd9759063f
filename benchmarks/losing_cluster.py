"""A Ray cluster on this machine that loses nodes and gets others in their place."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

_NODE_SECONDS = 120
"""Seconds in which a Ray node must have started."""
_NODE = {"object_store_memory": 80_000_000}


class SetupError(Exception):
    """The server or the cluster of a study did not start: nothing was tried."""


class RayCluster:
    """A cluster on this machine: a head that trains nothing, and two nodes of one core.

    Raises:
        SetupError: It does not start.
    """

    def __init__(self) -> None:
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_raylet_start_wait_time_s": str(_NODE_SECONDS),  # where other programs have the cores
            "RAY_prestart_worker_first_driver": "0",  # workers start when a trial needs them
        }
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        with _setting_up("the head of a Ray cluster"):
            self._cluster: Any = Cluster(initialize_head=True, head_node_args=head | _NODE)
        self._nodes: list[Any] = []
        try:
            self.fill()
        except SetupError:
            self.close()
            raise

    def fill(self) -> None:
        """Start nodes until there are two, and wait for them.

        Raises:
            SetupError: One does not start.
        """
        with _setting_up("a Ray node"):
            while len(self._nodes) < 2:
                self._nodes.append(self._cluster.add_node(wait=False, num_cpus=1, num_gpus=0, **_NODE))
            self._cluster.wait_for_nodes(timeout=_NODE_SECONDS)

    @property
    def address(self) -> str:
        """Where a driver connects."""
        address: str = self._cluster.address
        return address

    def processes(self) -> list[psutil.Process]:
        """What all nodes have started."""
        found = []
        for node in self._nodes:
            with suppress(psutil.NoSuchProcess):
                raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
                found += raylet.children(recursive=True)
        return found

    def lose_node(self, numbers: random.Random) -> None:
        """Kill all processes of one node; the other one goes on."""
        self._cluster.remove_node(self._nodes.pop(numbers.randrange(len(self._nodes))), allow_graceful=False)

    def close(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()


@contextmanager
def _setting_up(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Ray raises many kinds
        raise SetupError(f"{what} did not start: {type(error).__name__}: {error}") from error

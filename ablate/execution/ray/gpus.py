"""The memory of the GPUs of a cluster.

Each node is asked once, by a task that reserves no GPU: a task that reserved one would wait until a GPU is free.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from ablate.execution.ray.connect import alive, on_node
from ablate.launching import python_command

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

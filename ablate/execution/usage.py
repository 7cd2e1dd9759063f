"""Samples of what a worker process uses of its machine while it trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import torch

EVERY = 10.0
"""Seconds between two samples at least: shorter trials have none, and long ones few."""


class UsageMeter:
    """Measures this process and its device, at most once in `EVERY` seconds.

    Args:
        device: The device that the process trains on.
        clock: Seconds that pass.
    """

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._clock = clock
        self._process = psutil.Process()
        self._at, self._busy = clock(), self._processor_seconds()

    def sample(self) -> dict[str, float]:
        """What was used since the last sample.

        Returns:
            `cores`: processor seconds of this process in a second, on average; `memory`: bytes that it holds in main
            memory. On a GPU also `gpu_memory`, the most bytes that its tensors have had, and `gpu`, the share of time
            in which the GPU worked of late, if the driver's Python library is installed. Empty if the last sample is
            too recent.
        """
        now = self._clock()
        passed = now - self._at
        if passed < EVERY:
            return {}
        busy = self._processor_seconds()
        used = {"cores": (busy - self._busy) / passed, "memory": float(self._process.memory_info().rss)}
        self._at, self._busy = now, busy
        if self._device.type == "cuda":
            used["gpu_memory"] = float(torch.cuda.max_memory_allocated(self._device))
            with suppress(Exception):  # the library is not there, or the driver refuses: no reason to end a trial
                used["gpu"] = torch.cuda.utilization(self._device) / 100
        return used

    def _processor_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

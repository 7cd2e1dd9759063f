"""Training batches of a pack: one for each member, stacked and moved to the device.

On a GPU, a thread prepares the next batch during a step. On a CPU, the batches of several steps are prepared at once,
because after the arithmetic of a step the caches are cold and the first batch takes many times longer than the next
ones.

Shapes: K pack, B batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from ablate.spec.training import TrainingSpec
from ablate.tasks.base import Task

if TYPE_CHECKING:
    from ablate.tasks.base import Batch


_MOST_AHEAD = 16
"""Maximum number of steps whose batches are prepared at once on a CPU."""
_BYTES_AHEAD = 1 << 20
"""No further batch is prepared in advance once the prepared ones have this many bytes."""


class Batches:
    """The batches of a pack, step by step. Call `close` after use.

    Args:
        task: The opened task.
        training: Gives the last step, and the batch size B and the length of inputs at each step.
        device: Device of the batches.
    """

    def __init__(self, task: Task, training: TrainingSpec, device: torch.device) -> None:
        self._task = task
        self._training = training
        self._steps = training.steps
        self._device = device
        self._executor = ThreadPoolExecutor(1) if device.type == "cuda" else None
        self._next: tuple[int, tuple[int, ...], Future[Batch]] | None = None
        self._prepared: dict[tuple[int, tuple[int, ...]], Batch] = {}

    def get(self, seeds: Sequence[int], step: int) -> Batch:
        """The batch of a step, [K, B, ...], for members with these seeds."""
        key = (step, tuple(seeds))
        if self._executor is None:
            if key not in self._prepared:
                self._prepared = dict(self._prepare_steps(*key))
            return self._prepared.pop(key)
        ready = self._next[2].result() if self._next is not None and self._next[:2] == key else None
        batch = ready if ready is not None else self._pinned(seeds, step)
        if step < self._steps:
            self._next = (step + 1, tuple(seeds), self._executor.submit(self._pinned, tuple(seeds), step + 1))
        return {name: values.to(self._device, non_blocking=True) for name, values in batch.items()}

    def close(self) -> None:
        """Stop preparing batches."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _prepare_steps(self, step: int, seeds: tuple[int, ...]) -> Iterator[tuple[tuple[int, tuple[int, ...]], Batch]]:
        """Yield the batches of a step and of some following steps, with their steps and seeds."""
        size = 0
        for ahead in range(step, max(step, min(step + _MOST_AHEAD - 1, self._steps)) + 1):
            batch = self._prepare(seeds, ahead)
            yield (ahead, seeds), batch
            size += sum(values.nbytes for values in batch.values())
            if size >= _BYTES_AHEAD:
                return

    def _prepare(self, seeds: Sequence[int], step: int) -> Batch:
        """The stacked batch of a step. Members with equal seeds share a batch, which is prepared once."""
        context = self._task.shape.context
        size, length = self._training.shape_at(step, context)
        if length == context:
            batches = {seed: self._task.train_batch(seed, step, size) for seed in dict.fromkeys(seeds)}
        else:
            batches = {seed: self._task.shorter_batch(seed, step, size, length) for seed in dict.fromkeys(seeds)}
        if len(seeds) == 1:
            return {name: values.unsqueeze(0) for name, values in batches[seeds[0]].items()}
        return {name: torch.stack([batches[seed][name] for seed in seeds]) for name in batches[seeds[0]]}

    def _pinned(self, seeds: Sequence[int], step: int) -> Batch:
        return {name: values.pin_memory() for name, values in self._prepare(seeds, step).items()}

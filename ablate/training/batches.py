"""Training batches of a pack: one for each member, stacked, on the device.

On a GPU the next batch is made meanwhile. On a CPU those of some steps are made in one go: after the arithmetic of a
step little of what makes batches is left in the processor's caches, so that the first costs many times what the next
ones do.

Shapes: K pack, B batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from ablate.tasks.base import Task

if TYPE_CHECKING:
    from ablate.tasks.base import Batch


_MOST_AHEAD = 16
"""Steps whose batches are made in one go on a CPU."""
_BYTES_AHEAD = 1 << 20
"""No further step is made in advance once batches take this much memory."""


class Batches:
    """The batches of a pack, one step after the other. Used as a context.

    Args:
        task: Whose data it is.
        batch_size: B.
        steps: The last step.
        device: Where to put them.
    """

    def __init__(self, task: Task, batch_size: int, steps: int, device: torch.device) -> None:
        self._task = task
        self._batch_size = batch_size
        self._steps = steps
        self._device = device
        self._ahead = ThreadPoolExecutor(1) if device.type == "cuda" else None
        self._next: tuple[int, tuple[int, ...], Future[Batch]] | None = None
        self._made: dict[tuple[int, tuple[int, ...]], Batch] = {}

    def get(self, seeds: Sequence[int], step: int) -> Batch:
        """The batch of a step, [K, B, ...], for members with these seeds."""
        wanted = (step, tuple(seeds))
        if self._ahead is None:
            if wanted not in self._made:
                self._made = dict(self._make_some(*wanted))
            return self._made.pop(wanted)
        ready = self._next[2].result() if self._next is not None and self._next[:2] == wanted else None
        batch = ready if ready is not None else self._pinned(seeds, step)
        if step < self._steps:
            self._next = (step + 1, tuple(seeds), self._ahead.submit(self._pinned, tuple(seeds), step + 1))
        return {name: values.to(self._device, non_blocking=True) for name, values in batch.items()}

    def close(self) -> None:
        """End what is being made."""
        if self._ahead is not None:
            self._ahead.shutdown(cancel_futures=True)

    def _make_some(self, step: int, seeds: tuple[int, ...]) -> Iterator[tuple[tuple[int, tuple[int, ...]], Batch]]:
        """The batches of a step and of some after it, each by its step and seeds."""
        size = 0
        for ahead in range(step, max(step, min(step + _MOST_AHEAD - 1, self._steps)) + 1):
            batch = self._make(seeds, ahead)
            yield (ahead, seeds), batch
            size += sum(values.nbytes for values in batch.values())
            if size >= _BYTES_AHEAD:
                return

    def _make(self, seeds: Sequence[int], step: int) -> Batch:
        """Members of one seed see the same batch, which is made once."""
        made = {seed: self._task.train_batch(seed, step, self._batch_size) for seed in dict.fromkeys(seeds)}
        if len(seeds) == 1:
            return {name: values.unsqueeze(0) for name, values in made[seeds[0]].items()}
        return {name: torch.stack([made[seed][name] for seed in seeds]) for name in made[seeds[0]]}

    def _pinned(self, seeds: Sequence[int], step: int) -> Batch:
        return {name: values.pin_memory() for name, values in self._make(seeds, step).items()}

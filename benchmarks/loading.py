"""The cost of preparing batches relative to a training step, at the sizes of the ready spaces.

`alone` prepares each batch right before its step, when the arithmetic of the previous step has evicted the processor's
caches; `ahead` is what training does: the batches of several steps at once. Both are measured in turns in one run. The
time of a step excludes its batch.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch

from ablate.locations import cache_folder
from ablate.spec.reading import load_space
from ablate.training.members import Member
from ablate.training.pack import Pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ablate.spec.task import Batch
    from ablate.training.batches import Batches

SPACES = ("simplify_block", "packages", "same_file", "masked_code", "recall", "number_words", "listops")
ROUNDS = 5
STEPS = 16
"""Steps in a round: the number of batches that are prepared at once."""


class Timed:
    """Measures the processor time of preparing batches.

    Args:
        batches: The batches to measure.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.seconds = 0.0

    def get(self, seeds: Sequence[int], step: int) -> Batch:
        begin = time.process_time()
        batch = self._batches.get(seeds, step)
        self.seconds += time.process_time() - begin
        return batch


def main(smoke: bool = False) -> None:
    """Print for each space with built-in data the time for a batch as a share of a training step (one seed)."""
    torch.set_num_threads(1)
    print(f"{'space':16} {'step':>10} {'alone':>10} {'share':>7} {'ahead':>10} {'share':>7} {'spread':>16}")
    spaces, rounds = (("recall",), 1) if smoke else (SPACES, ROUNDS)
    for name in spaces:
        variant = load_space(name).resolve({})
        size = variant.training.batch_size
        task = variant.task.open(cache_folder(), variant.task.prepare(cache_folder(), lambda line: None))
        run = Pack([Member(variant, 0)], task, torch.device("cpu"))
        run.batches = timed = Timed(run.batches)  # type: ignore[assignment]
        steps, alone, ahead = [], [], []
        for first in range(1, (1 + rounds) * STEPS, STEPS):
            before, begin = timed.seconds, time.process_time()
            for step in range(first, first + STEPS):
                run.step(step)
            ahead.append(timed.seconds - before)
            steps.append(time.process_time() - begin - ahead[-1])
            alone.append(0.0)
            for step in range(first, first + STEPS):
                run.step(step)
                begin = time.process_time()
                task.train_batch(0, step + 1, size)
                alone[-1] += time.process_time() - begin
        cells = [f"{1000 * median(steps) / STEPS:8.1f}ms"]
        for batches in (alone, ahead):  # the first round is a warm-up
            shares = sorted(part / rest for part, rest in zip(batches[1:], steps[1:], strict=True))
            cells += [f"{1000 * median(batches[1:]) / STEPS:8.3f}ms", f"{median(shares):7.2%}"]
        print(f"{name:16} {' '.join(cells)} {f'{shares[0]:.2%} to {shares[-1]:.2%}':>16}", flush=True)


if __name__ == "__main__":
    main()

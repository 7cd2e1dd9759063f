"""What the batches of a training step cost beside the step itself, at the sizes of the ready spaces."""

from __future__ import annotations

import time
from statistics import median

import torch

from ablate.spec.reading import load_space
from ablate.tasks.cache import default_cache
from ablate.training.members import Member
from ablate.training.pack import Pack

SPACES = ("simplify_block", "packages", "same_file", "masked_code", "recall", "number_words", "listops")
STEPS = 12


def main() -> None:
    """Print for each space with built-in data the time of one batch as a share of one training step (one seed)."""
    torch.set_num_threads(1)
    print(f"{'space':16} {'batch':>10} {'step':>10} {'share':>8} {'spread':>16}")
    for name in SPACES:
        variant = load_space(name).resolve({})
        task = variant.task.open(default_cache(), variant.task.prepare(default_cache(), lambda line: None))
        run = Pack([Member(variant, 0)], task, torch.device("cpu"))
        run.step(1)
        batches, steps = [], []
        for step in range(2, 2 + STEPS):
            begin = time.process_time()
            task.train_batch(0, step, variant.training.batch_size)
            batches.append(time.process_time() - begin)
            begin = time.process_time()
            run.step(step)
            steps.append(time.process_time() - begin)
        shares = sorted(batch / whole for batch, whole in zip(batches, steps, strict=True))
        spread = f"{shares[1]:.2%} to {shares[-2]:.2%}"
        milliseconds = [1000 * median(times) for times in (batches, steps)]
        cells = f"{milliseconds[0]:8.3f}ms {milliseconds[1]:8.1f}ms"
        print(f"{name:16} {cells} {median(shares):8.2%} {spread:>16}")


if __name__ == "__main__":
    main()

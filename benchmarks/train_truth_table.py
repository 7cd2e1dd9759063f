"""Trains every variant of the truth tables with every seed and writes the losses to files; resumes if interrupted.

`python -m benchmarks.train_truth_table` takes about two hours on one core. Its results are kept in `tests/`, so that
`benchmarks/truth_table.py` can replay designs in seconds.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import torch

from ablate.locations import cache_folder
from ablate.planning.plan import Variant
from ablate.planning.planner import Planner
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from ablate.spec.task import Task
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member

FOLDER = Path(__file__).parent.parent / "tests" / "designs" / "truth_tables"
"""A space and its table for each grid: NAME.yaml and NAME.csv."""
SEEDS = tuple(range(10))


def losses(variant: Variant, task: Task) -> list[float]:
    """The last validation loss of each seed (NaN: diverged); the seeds are trained as one pack."""
    last = [math.nan] * len(SEEDS)
    for event in train([Member(variant.spec, seed) for seed in SEEDS], task, torch.device("cpu")):
        if isinstance(event, Measurement):
            last = event.metrics["val_loss"]
    return last


def write_table(space: SpaceSpec, table: Path) -> None:
    """Train the variants that are missing in a table and append a line for each."""
    planner = Planner(space, cache_folder(), print)
    points = planner.design().points()
    done = {row["variant"] for row in csv.DictReader(table.read_text().splitlines())} if table.exists() else set()
    for point in points:
        variant = planner.resolve(point)
        if variant is None or point.name in done:
            continue
        task = space.task.open(cache_folder(), variant.fingerprint)
        with table.open("a", newline="") as file:
            out = csv.writer(file)
            if not done:
                out.writerow(["variant", *space.switches, "parameters", "flops", *(f"seed_{seed}" for seed in SEEDS)])
            numbers = ["" if math.isnan(loss) else f"{loss:.6f}" for loss in losses(variant, task)]
            settings = [point.settings[switch] for switch in space.switches]
            out.writerow([point.name, *settings, variant.cost.parameters, f"{variant.flops:.0f}", *numbers])
        done.add(point.name)
        print(len(done), point.name, numbers[0], flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for file in sorted(FOLDER.glob("*.yaml")):
        write_table(load_space(str(file)), file.with_suffix(".csv"))

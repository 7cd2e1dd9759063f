"""K small models as one program on a GPU, compared with serial training: eager, and compiled in a CUDA graph.

Needs only torch and pydantic: `python -m benchmarks.gpu_packs [--pack 64] [--width 128] [--depth 4] [--steps 200]`.
Data are synthetic. The losses of each row are compared with those of the first. The targets are 40 times the trials
per hour of serial eager training, and 10 times those of serial compile + CUDA graph.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.spec.model import ModelSpec
from ablate.spec.task import DataShape, Task
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec
from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.program import BuildProgram, Compute, EagerProgram, GraphProgram, Program, build_program

if TYPE_CHECKING:
    from ablate.spec.task import Batch

TOLERANCE = 5e-3
"""Maximum difference of training losses in nats, due to float32 rounding in different kernels."""
COMPARED_STEPS = 20
WARM_UP_STEPS = 8
REPEATS = 3


class Tokens(Task):
    """Windows of a long random walk over the vocabulary, at positions that are a function of seed and step."""

    def __init__(self, vocabulary: int, context: int) -> None:
        self.fingerprint = "walk"
        self.shape = DataShape(vocabulary=vocabulary, context=context)
        moves = torch.randint(1, 4, (1_000_003,), generator=torch.Generator().manual_seed(0))
        self._text = moves.cumsum(0) % vocabulary
        self._window = torch.arange(context + 1)

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        starts = (torch.arange(batch_size) * 7_919 + seed * 104_729 + step * 15_485_863) % (
            self._text.numel() - self._window.numel()
        )
        windows = self._text[starts[:, None] + self._window]
        return {"inputs": windows[:, :-1], "targets": windows[:, 1:]}

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        yield self.train_batch(-1, 0, batch_size)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        nats = F.cross_entropy(outputs.flatten(0, -2), batch["targets"].reshape(-1), reduction="none")
        return nats.view(outputs.shape[0], -1).mean(1)

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"loss": self.loss(outputs, batch)}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        return {"val_loss": sums["loss"]}

    def tokens_per_batch(self, batch_size: int) -> int:
        return batch_size * self.shape.context


def eager(compute: Compute, device: torch.device) -> Program:
    """Run one operation at a time."""
    return EagerProgram(compute)


def members(options: argparse.Namespace) -> list[Member]:
    """Members with seeds 0, 1, 2 ... and four learning rates."""
    model = ModelSpec.model_validate(
        {
            "family": "decoder",
            "depth": options.depth,
            "width": options.width,
            "heads": 4,
            "block": {"mixer": {"kind": "attention"}},
        }
    )
    trained = []
    for seed in range(options.pack):
        optimizer = {"lr": 5e-4 * (1 + seed % 4), "weight_decay": 0.1}
        training = TrainingSpec.model_validate(
            {"steps": 1_000_000, "batch_size": options.batch, "optimizer": optimizer}
        )
        # Without a task spec, whose kinds need further packages: `Tokens` is passed directly.
        variant = VariantSpec.model_construct(model=model, training=training)  # type: ignore[call-arg]
        trained.append(Member(variant, seed))
    return trained


class Row:
    """One way to train the members."""

    def __init__(self, trained: Sequence[Member], task: Task, program: BuildProgram, *, compiled: bool = False) -> None:
        self.count = len(trained)
        self.pack = Pack(trained, task, torch.device("cuda"), program)
        if compiled:
            self.pack.model.compile(dynamic=False)
        self.done = 0
        self.losses: list[list[float]] = []

    def begin(self) -> None:
        """Run the first steps, which compile, capture and yield the losses to compare."""
        for _ in range(max(COMPARED_STEPS, WARM_UP_STEPS)):
            self.step()
            self.losses.append(self.pack.last_loss())

    def step(self) -> None:
        """Run a step."""
        self.done += 1
        self.pack.step(self.done)

    def rate(self, steps: int) -> float:
        """Steps per second, summed over members."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return self.count * steps / (time.perf_counter() - begin)


def compare(options: argparse.Namespace) -> None:
    """Print one line for each row."""
    from torch._inductor.exc import InductorError  # takes a second, for which every benchmark would wait

    torch.set_float32_matmul_precision("highest")
    task, everyone = Tokens(options.vocabulary, options.context), members(options)
    single = everyone[:1]
    rows: list[tuple[str, Sequence[Member], BuildProgram, bool]] = [
        ("serial eager", single, eager, False),
        ("serial CUDA graph", single, GraphProgram, False),
        (f"pack of {options.pack}, eager", everyone, eager, False),
        (f"pack of {options.pack}, CUDA graph (what ablate does)", everyone, build_program, False),
        ("serial compile + CUDA graph", single, GraphProgram, True),
        (f"pack of {options.pack}, compile + CUDA graph", everyone, GraphProgram, True),
    ]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; width {options.width}, {options.depth} layers,")
    print(f"{options.batch} x {options.context} tokens, fp32")
    print(f"{'':48}{'steps/s':>10}{'x eager':>9}   spread; seconds until the first timed step")
    losses: list[list[float]] = []
    plain = math.nan
    for name, trained, program, compiled in rows:
        row, begin = Row(trained, task, program, compiled=compiled), time.perf_counter()
        try:
            row.begin()
        except InductorError as error:  # continue with the other rows
            print(f"{name} cannot be compiled: {str(error).splitlines()[0]}", flush=True)
            continue
        losses = losses or row.losses
        worst = max(abs(ours[0] - theirs[0]) for ours, theirs in zip(row.losses, losses, strict=True))
        if worst > TOLERANCE:
            raise SystemExit(f"{name}: losses are {worst:.1e} nats off those of the single eager run")
        ready = time.perf_counter() - begin
        rates = sorted(row.rate(options.steps) for _ in range(REPEATS))
        median = statistics.median(rates)
        plain = median if plain != plain else plain
        spread = f"{rates[0]:,.0f} to {rates[-1]:,.0f}; {ready:.0f} s  {row.pack.warning}"
        print(f"{name:48}{median:10,.0f}{median / plain:9.2f}   {spread}", flush=True)


def main(smoke: bool = False) -> None:
    """Print the table, or a message if there is no GPU."""
    measure(["--pack", "2", "--width", "16", "--depth", "1", "--steps", "2"] if smoke else [])


def measure(arguments: Sequence[str]) -> None:
    """Print the table at these sizes, or a message if there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    sizes = {"pack": 64, "width": 128, "depth": 4, "batch": 8, "context": 128, "vocabulary": 256, "steps": 200}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default: {value}")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("torch finds no CUDA device; run `python -m benchmarks.gpu_packs` on a machine with a GPU.")
        return
    compare(options)


if __name__ == "__main__":
    measure(sys.argv[1:])

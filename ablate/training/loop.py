"""The training loop of one pack. Shapes: K pack, B batch, T tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ablate.model.build import build_model, mean_flops
from ablate.pack.initial import stream
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.base import Task
from ablate.training.events import Diverged, Event, Point, Tick
from ablate.training.optimizer import build_optimizer, clip_gradients

if TYPE_CHECKING:
    from ablate.tasks.base import Batch

_TICK_SECONDS = 0.25
_CUDA_CHECK_STEPS = 16


def train(
    variant: VariantSpec,
    seeds: Sequence[int],
    task: Task,
    device: torch.device,
    keep: Callable[[nn.Module, int], None] | None = None,
) -> Iterator[Event]:
    """Train one variant with several seeds as one program.

    Seed s sees the batches and, for parameters of equal name and shape, the initial values that every other variant
    sees with s.

    Args:
        variant: What to train, and how.
        seeds: One for each member; their number is K.
        task: The opened task.
        device: Where to train.
        keep: Is given the trained model and, one after the other, each member that did not diverge.

    Yields:
        `Tick` now and then, `Diverged` once for each member whose loss is not finite, and `Point` at every evaluation.
        The `Point` after the last step holds the final metrics. If every member diverges, training ends early.
    """
    run = _Run(variant, seeds, task, device)
    yield run.point()
    due = set(variant.training.evaluation_steps())
    last_tick = time.monotonic()
    for step in range(1, variant.training.steps + 1):
        run.step(step)
        if device.type == "cpu" or step in due or step % _CUDA_CHECK_STEPS == 0:
            yield from run.diverged()
            if run.alive == 0:
                return
        if step in due:
            point = run.point()
            yield point
            yield from run.diverged()  # a last step can leave weights whose validation loss is not finite
        elif time.monotonic() - last_tick >= _TICK_SECONDS:
            last_tick = time.monotonic()
            yield Tick(step, run.last_loss.tolist())
    if keep is not None:
        for member in run.survivors():
            keep(run.model, member)


class _Run:
    """The state of one training run."""

    def __init__(self, variant: VariantSpec, seeds: Sequence[int], task: Task, device: torch.device) -> None:
        self.training: TrainingSpec = variant.training
        self.seeds = list(seeds)
        self.task = task
        self.device = device
        shape = task.shape
        self.model: nn.Module = build_model(
            variant.model, vocabulary=shape.vocabulary, context=shape.context, classes=shape.classes, seeds=seeds
        ).to(device)
        self.parameters = list(self.model.parameters())
        self.optimizer = build_optimizer(self.model, self.training.optimizer)
        # Dropout is the one random number that is drawn while training.
        torch.manual_seed(stream(self.seeds[0], "dropout").initial_seed())
        forward = mean_flops(
            variant.model,
            task.input_lengths(),
            vocabulary=shape.vocabulary,
            context=shape.context,
            classes=shape.classes,
        )
        self.step_flops = 3.0 * forward * self.training.batch_size  # backward is twice the forward
        self.step_tokens = task.tokens_per_batch(self.training.batch_size)
        self.steps = 0
        self.seconds = 0.0
        self.alive = len(self.seeds)
        self.last_loss = torch.zeros(len(self.seeds), device=device)
        self._loss_sum = torch.zeros(len(self.seeds), dtype=torch.float64, device=device)
        self._losses = 0
        self._stopped = torch.zeros(len(self.seeds), dtype=torch.int64, device=device)
        self._stopped_loss = torch.zeros(len(self.seeds), device=device)
        self._told: set[int] = set()

    def step(self, step: int) -> None:
        """One optimiser step of every member."""
        begin = time.perf_counter()
        batch = self._batch(step)
        rate = self.training.optimizer.lr * self.training.schedule.factor(step, self.training.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self._precision():
            outputs = self.task.outputs(self.model, batch)
        loss = self.task.loss(outputs.float(), batch)
        self.optimizer.zero_grad(set_to_none=True)
        # Members share no parameter, so the gradient of the sum is each member's own.
        loss.sum().backward()  # type: ignore[no-untyped-call]
        clip_gradients(self.parameters, len(self.seeds), self.training.optimizer.clip)
        self.optimizer.step()
        self.last_loss = loss.detach()
        self._note(self.last_loss, step)
        self._loss_sum += self.last_loss
        self._losses += 1
        self.steps = step
        self.seconds += time.perf_counter() - begin

    def point(self) -> Point:
        """Measure the validation metrics; the training loss is the mean since the last point."""
        if self.device.type == "cuda":
            begin = time.perf_counter()
            torch.cuda.synchronize(self.device)
            self.seconds += time.perf_counter() - begin
        metrics = self._evaluate(self.task.validation_batches(self.training.batch_size))
        if self.steps == self.training.steps:
            tested = self._evaluate(self.task.test_batches(self.training.batch_size))
            metrics |= {name.replace("val_", "test_", 1): values for name, values in tested.items()}
            metrics |= self.task.final_metrics(self.model, self.device)
        self._note(torch.tensor(metrics["val_loss"], device=self.device), self.steps)
        mean = (self._loss_sum / max(1, self._losses)).tolist() if self._losses else [math.nan] * len(self.seeds)
        self._loss_sum.zero_()
        self._losses = 0
        return Point(
            step=self.steps,
            seconds=self.seconds,
            tokens=self.steps * self.step_tokens,
            flops=self.steps * self.step_flops,
            train_loss=mean,
            metrics=metrics,
        )

    def diverged(self) -> Iterator[Diverged]:
        """Members found to have diverged since the last call."""
        for member, step in enumerate(self._stopped.tolist()):
            if step > 0 and member not in self._told:
                self._told.add(member)
                self.alive -= 1
                yield Diverged(member, step, self._stopped_loss[member].item())

    def survivors(self) -> list[int]:
        """Members whose losses were all finite."""
        return [member for member in range(len(self.seeds)) if member not in self._told]

    def _note(self, loss: Tensor, step: int) -> None:
        bad = (self._stopped == 0) & ~loss.isfinite()
        self._stopped = torch.where(bad, step, self._stopped)
        self._stopped_loss = torch.where(bad, loss, self._stopped_loss)

    def _batch(self, step: int) -> Batch:
        members = [self.task.train_batch(seed, step, self.training.batch_size) for seed in self.seeds]
        return {name: torch.stack([member[name] for member in members]).to(self.device) for name in members[0]}

    @torch.no_grad()
    def _evaluate(self, batches: Iterator[Batch]) -> dict[str, list[float]]:
        """The metrics over some batches, by their names in validation; none without a batch."""
        self.model.eval()
        sums: dict[str, Tensor] = {}
        for batch in batches:
            packed = {
                name: values.to(self.device).expand(len(self.seeds), *values.shape) for name, values in batch.items()
            }
            with self._precision():
                outputs = self.task.outputs(self.model, packed)
            for name, total in self.task.measure(outputs.float(), packed).items():
                sums[name] = sums[name] + total.double() if name in sums else total.double()
        self.model.train()
        return self.task.metrics({name: total.tolist() for name, total in sums.items()}) if sums else {}

    def _precision(self) -> AbstractContextManager[object]:
        if self.training.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

"""Training batches of a pack, stacked and moved to the device, the noise of dropout, and the totals of a trial.

Batches may grow from step to step. On a GPU, a thread prepares the next batch during a step. On a CPU, the batches of
several steps are prepared at once, because after the arithmetic of a step the caches are cold and the first batch takes
many times longer than the next ones.

Shapes: K pack, B batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ablate.nn.pack.initial import stream
from ablate.spec.schedule import Phase
from ablate.spec.task import Task
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec
from ablate.training.events import State
from ablate.training.sharding import Ranks

if TYPE_CHECKING:
    from ablate.spec.task import Batch


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """The cost of each step of a phase.

    Attributes:
        tokens: Training tokens of a step.
        flops: Arithmetic of a step: forward and backward pass, and optimizer.
    """

    phase: Phase
    tokens: int
    flops: float


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens and arithmetic of one trial.

    Attributes:
        phases: What the steps take, in order.
    """

    phases: tuple[PhaseCost, ...]

    def until(self, step: int) -> tuple[int, float]:
        """Tokens and arithmetic of the steps up to this one, which is counted from 1; nothing for 0."""
        tokens, flops = 0, 0.0
        for cost in self.phases:
            steps = min(step, cost.phase.last) - cost.phase.first + 1
            if steps > 0:
                tokens, flops = tokens + steps * cost.tokens, flops + steps * cost.flops
        return tokens, flops

    @property
    def whole(self) -> tuple[int, float]:
        """Tokens and arithmetic of all steps."""
        return self.until(self.phases[-1].phase.last if self.phases else 0)


def totals(variant: VariantSpec, task: Task, trainable: int, forward: Callable[[int], float], frozen: float) -> Totals:
    """The cost of the steps of a trial.

    Args:
        trainable: Number of trainable parameters.
        forward: Arithmetic of the forward pass over an example with inputs of this length; for the context of the task
            the mean over its examples.
        frozen: The part of it that frozen projections do, for a token.
    """
    training, context = variant.training, task.shape.context
    lengths = task.input_lengths()
    costs = []
    for phase in training.phases(context):
        whole = task.tokens_per_batch(phase.batch_size)
        rows = task.mean_rows(phase.batch_size)
        undone = frozen * (sum(lengths) / len(lengths) if phase.context == context else phase.context)
        flops = training.step_flops(forward(phase.context), trainable, variant.model.width, undone, rows)
        # Tasks whose inputs shorten have inputs of one length.
        tokens = whole if phase.context == context else phase.batch_size * phase.context
        costs.append(PhaseCost(phase, tokens, flops))
    return Totals(tuple(costs))


_MOST_AHEAD = 16
"""Maximum number of steps whose batches are prepared at once on a CPU."""
_BYTES_AHEAD = 1 << 20
"""No further batch is prepared in advance once the prepared ones have this many bytes."""


class Batches:
    """The batches of a pack, step by step. Call `close` after use.

    Args:
        training: Gives the last step, and the batch size B and the length of inputs at each step.
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
        batch = ready if ready is not None else self._prepare_pinned(seeds, step)
        if step < self._steps:
            self._next = (step + 1, tuple(seeds), self._executor.submit(self._prepare_pinned, tuple(seeds), step + 1))
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

    def _prepare_pinned(self, seeds: Sequence[int], step: int) -> Batch:
        return {name: values.pin_memory() for name, values in self._prepare(seeds, step).items()}


class DropoutRandomness:
    """The random generators of dropout: one for each member on a CPU, else torch's default generator.

    Args:
        seeds: Of the member at each position of the model.
        ranks: The processes that train together; each has random numbers of its own.

    Attributes:
        streams: The generator of each position; None if dropout uses torch's default generator.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device, ranks: Ranks) -> None:
        self._device = device
        self._ranks = ranks
        name = f"dropout/{ranks.index}" if ranks.index else "dropout"
        initial = [stream(seed, name).initial_seed() for seed in seeds]
        torch.manual_seed(initial[0])
        separate = len(seeds) > 1 and device.type == "cpu"
        self.streams = [torch.Generator().manual_seed(seed) for seed in initial] if separate else None

    def generators(self) -> list[torch.Generator]:
        """All generators in use."""
        if self.streams is not None:
            return self.streams
        if self._device.type == "cuda":
            index = torch.cuda.current_device() if self._device.index is None else self._device.index
            return [torch.cuda.default_generators[index]]
        return [torch.default_generator]

    def keep(self, kept: Sequence[int]) -> None:
        """Keep only the members at these positions."""
        if self.streams is not None:
            self.streams = [self.streams[position] for position in kept]

    def states(self) -> list[Tensor]:
        """The state of each generator, for `rewind`."""
        return [generator.get_state() for generator in self.generators()]

    def rewind(self, states: Sequence[Tensor]) -> None:
        """Set the generators to earlier states."""
        for generator, state in zip(self.generators(), states, strict=True):
            generator.set_state(state)

    def state(self) -> State:
        """The part of a checkpoint: the states of this rank, and those of all ranks if there are several."""
        own = self.states()
        return {"random": own} | ({} if self._ranks.count == 1 else {"random_of_ranks": list(self._ranks.of_each(own))})

    def restore(self, state: State) -> None:
        """Load the part of a checkpoint.

        After a change of the number of ranks, each rank but the first continues with a fresh random state.
        """
        of_ranks = state.get("random_of_ranks", [])
        own = state["random"] if self._ranks.index == 0 else []
        if len(of_ranks) == self._ranks.count:
            own = of_ranks[self._ranks.index]
        for generator, saved in zip(self.generators(), own, strict=False):
            if saved.shape == generator.get_state().shape:  # another shape: it was saved on another type of device
                generator.set_state(saved.cpu())

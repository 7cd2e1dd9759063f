"""`Pack`: the members that are trained together, and their state. Shapes: K pack, B batch, T tokens.

The number of a member is its index among the members with which the pack started. Its position in the model differs:
members with equal optimizers are adjacent, and members that have left are removed from the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from ablate.metrics import INSIDE_INITIAL, Metric, at_length, rounded_loss
from ablate.nn.model import mean_flops
from ablate.nn.model.pricing import evaluation_activations
from ablate.nn.pack import member_streams
from ablate.spec.task import Task
from ablate.training.activations import loss_on_validation, measure_insides, update_ratios
from ablate.training.batches import Batches, DropoutRandomness, Totals, totals
from ablate.training.block_recordings import look_inside
from ablate.training.events import Diverged, Measurement, State
from ablate.training.members import Member, assemble, compact, frozen_counts
from ablate.training.objective import Evaluation, Objective, evaluate, join_batches, rounded_weights
from ablate.training.optimizer import PackOptimizer, WeightAverage, optimizer_order
from ablate.training.program import (
    BuildProgram,
    Changed,
    EagerProgram,
    build_program,
    cast_to,
    compile_blocks,
    compile_clock,
    compiler_failures,
    eager_blocks,
    first_sentence,
    missing_compiler,
    products_in,
    run_eagerly,
)
from ablate.training.sharding import Ranks, divide_like, free_gathered, shard_model, whole_tensors

if TYPE_CHECKING:
    from ablate.spec.task import Batch

_COUNTERS = ("steps", "seconds", "_losses")
_BY_POSITION = ("_loss", "_loss_sum", "_stopped", "_stopped_loss")


class Pack:
    """The state of one training run. A context manager.

    While it is open, this thread takes numbers below 1.2e-38 as 0 on a CPU. They occur in models without norms, and
    each of them costs an Intel processor about a hundred cycles.

    Args:
        program: Builds the program that runs steps.
        ranks: The processes that train the pack together.

    Attributes:
        positions: Number of the member at each position of the model, including members that have left but not yet been
            removed.
        alive: Numbers of the members that have not left.
        events: All points and divergences so far.
        compile_seconds: Wall time of compilation so far, which `seconds` does not count.
        totals: Tokens and arithmetic of each member.
    """

    def __init__(
        self,
        members: Sequence[Member],
        task: Task,
        device: torch.device,
        program: BuildProgram = build_program,
        ranks: Ranks = Ranks(),  # noqa: B008 - frozen
    ) -> None:
        self.ranks = ranks
        self.members = list(members)
        self.task = task
        self.device = device
        self.training = members[0].variant.training
        self._compiles = self.training.compile == "blocks"
        if self._compiles and (missing := missing_compiler(device.type)):
            raise RuntimeError(f"this machine cannot compile the blocks of a model; it lacks {missing}")
        self.compile_seconds = 0.0
        self._not_compiled = ""
        self._absent_insides = ""
        self._inside_steps = self.training.inside_steps()
        count = len(members)
        self.positions = sorted(range(count), key=lambda member: optimizer_order(members[member].variant.training))
        self.alive = set(range(count))
        self.model = assemble(self._members_by_position(), task.shape)
        if ranks.shard:
            assert count == 1, "engines train no packs whose weights are divided"
            shard_model(self.model, device)
        self.model = self.model.to(device)
        self._random = DropoutRandomness([member.seed for member in self._members_by_position()], device, ranks)
        # Messages between ranks, which divided weights need too, are not captured in a CUDA graph.
        alone = ranks.count == 1 and not ranks.shard
        self._build_program = program if alone else lambda compute, device: EagerProgram(compute)
        scalars = evaluation_activations(members[0].variant.model, task.shape.vocabulary, task.shape.context)
        self._objective = Objective(task, self.training, self._forward_context, ranks, scalars)
        self._prepare()
        self.totals = self._totals()
        self.batches = Batches(task, self.training, device)
        self.steps = 0
        self._update_ratios: dict[str, list[float]] = {}
        self.seconds = 0.0
        self.events: list[Measurement | Diverged] = []
        self._batch_shape: tuple[int, int] | None = None
        self._losses = 0
        self._loss = torch.zeros(count, device=device)
        self._loss_sum = torch.zeros(count, dtype=torch.float64, device=device)
        self._stopped = torch.zeros(count, dtype=torch.int64, device=device)
        self._stopped_loss = torch.zeros(count, device=device)

    def __enter__(self) -> Self:
        torch.set_flush_denormal(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.set_flush_denormal(False)
        self.batches.close()

    @property
    def warning(self) -> str:
        """A note on how steps are run; usually empty."""
        if self.compile_seconds and not self._not_compiled:
            return f"compiling its blocks took {self.compile_seconds:.1f} s, which its training seconds do not count"
        return self.eager_warning or self._absent_insides

    @property
    def eager_warning(self) -> str:
        """Why steps run eagerly that should run as a graph or compiled; usually empty."""
        return self._not_compiled or self._program.warning

    def step(self, step: int) -> None:
        """Run one optimizer step of all members."""
        begin, compiled = time.perf_counter(), self._clock()
        batch = self.batches.get([member.seed for member in self._members_by_position()], step)
        shape = self.training.shape_at(step, self.task.shape.context)
        if self._batch_shape not in (None, shape):  # a CUDA graph is of one shape
            self._renew_program()
        self._batch_shape = shape
        self._optimizer.set_rates(step)
        before = [weight.detach().clone() for weight in self.model.parameters()] if step in self._inside_steps else []
        with self.ranks.exchanging():
            self._loss = self._program.run(batch)
        self._update_ratios = update_ratios(self.model, before, len(self.positions)) if before else {}
        if self._average is not None:
            self._average.update(step)
        self._note_divergence(self._loss, step)
        self._loss_sum += self._loss
        self._losses += 1
        self.steps = step
        compiling = self._clock() - compiled
        self.compile_seconds += compiling
        self._add_seconds(begin + compiling)

    def _compute(self, batch: Batch) -> Tensor:
        """What a program runs for a step, eagerly or as a graph: forward, backward and optimizer step.

        Returns the loss of each position before the step, [K].
        """
        with products_in(self.training.precision):
            loss = self._backward(batch)
            self._optimizer.step()
        return loss

    def _backward(self, batch: Batch) -> Tensor:
        """The loss of each position, [K], with its gradients. Blocks that do not compile run eagerly from then on."""
        if self._compiles:
            before = self._random.states()
            try:
                self._optimizer.zero_grad()
                return self._objective.backward(self.model, batch, self._random.generators())
            except compiler_failures() as error:
                self._compiles = False
                self._not_compiled = f"its blocks cannot be compiled and run eagerly: {first_sentence(error)}"
                run_eagerly(self.model)
                self._random.rewind(before)
        self._optimizer.zero_grad()
        return self._objective.backward(self.model, batch, self._random.generators())

    def point(self) -> Measurement:
        """Evaluate the validation metrics. The training loss is the mean since the last point."""
        if self.device.type == "cuda":
            begin = time.perf_counter()
            torch.cuda.synchronize(self.device)
            self._add_seconds(begin)
        at_end = self.steps == self.training.steps
        with (
            self.ranks.exchanging(),
            self.evaluated_weights(),
            products_in(self.training.precision),
            self._eager_blocks(),
        ):
            transferred = any(member.variant.training.init_from is not None for member in self.members)
            validation = self.task.validation_batches(self.training.batch_size)
            if not at_end:  # the parts of the last evaluation are of training batches
                validation = join_batches(validation, self._objective.evaluated_rows(self.model, len(self.positions)))
            evaluation = self._evaluate(validation, parts=at_end, windows=at_end and transferred)
            metrics = dict(evaluation.metrics)
            if at_end:
                tested = self._evaluate(self.task.test_batches(self.training.batch_size)).metrics
                metrics |= {str(Metric.of(name).on("test")): values for name, values in tested.items()}
                metrics |= self.task.final_metrics(self.whole_model(), self.device)
                metrics |= self._rounded_losses()
                metrics |= self._at_lengths(evaluation.metrics)
            if self.steps in self._inside_steps:
                metrics |= self._insides()
        if self.ranks.shard:
            free_gathered(self.model)
        self._note_divergence(torch.tensor(metrics["val_loss"], device=self.device), self.steps)
        nothing = [math.nan] * len(self.positions)
        mean = (self._loss_sum / self._losses).tolist() if self._losses else nothing
        self._loss_sum.zero_()
        self._losses = 0
        tokens, flops = self.totals.until(self.steps)
        point = Measurement(
            step=self.steps,
            seconds=self.seconds,
            tokens=tokens,
            flops=flops,
            train_loss=self._by_member(mean),
            metrics={name: self._by_member(values) for name, values in metrics.items()} | self._initial_insides(),
            inside=self._record_blocks(),
            parts={name: [self._by_member(part) for part in parts] for name, parts in evaluation.parts.items()},
            windows={name: self._by_member(values) for name, values in evaluation.windows.items()},
            compile_seconds=self.compile_seconds,
        )
        self.events.append(point)
        return point

    def _evaluate(self, batches: Iterator[Batch], *, parts: bool = False, windows: bool = False) -> Evaluation:
        count = len(self.positions)
        return evaluate(
            self.model, self.task, self._objective, batches, count, self.device, parts=parts, windows=windows
        )

    def _rounded_losses(self) -> dict[str, list[float]]:
        """The validation losses with rounded weights, by position."""
        losses = {}
        for bits in self.training.rounded_bits:
            with rounded_weights(self.model, bits):
                validation = self._evaluate(self.task.validation_batches(self.training.batch_size))
            losses[rounded_loss(bits)] = validation.metrics["val_loss"]
        return losses

    def _at_lengths(self, metrics: Mapping[str, list[float]]) -> dict[str, list[float]]:
        """The metrics at each length of `training.evaluate_at`, by position; `metrics` are those at the trained length.

        As many tokens are processed at once as in an evaluation at the trained length.
        """
        spec, found = self.members[0].variant.task, dict[str, list[float]]()
        count = len(self.positions)
        rows = self.training.micro_batch or self._objective.evaluated_rows(self.model, count)
        for length in self.training.lengths:
            measured = metrics
            if length != getattr(spec, spec.length_field):
                task = self.task.at_length(length)
                objective = Objective(task, self.training, self._forward_context, self.ranks)
                batches = task.validation_batches(max(1, rows * self.task.shape.context // task.shape.context))
                measured = evaluate(self.model, task, objective, batches, count, self.device).metrics
            found |= {at_length(name, length): values for name, values in measured.items()}
        return found

    def _eager_blocks(self) -> AbstractContextManager[object]:
        return eager_blocks() if self._compiles else nullcontext()

    def evaluated_weights(self) -> AbstractContextManager[object]:
        """Context manager: the model has the weights to evaluate in the body, their average if there is one."""
        return nullcontext() if self._average is None else self._average.applied()

    def whole_model(self) -> nn.Module:
        """The model; a copy with whole weights if they are divided among the ranks, all of which must call this."""
        if not self.ranks.shard:
            return self.model
        with self.ranks.exchanging():
            tensors = whole_tensors(self.model)
        model = assemble(self._members_by_position(), self.task.shape)
        model.load_state_dict(tensors)
        return model.to(self.device)

    def _record_blocks(self) -> dict[str, dict[str, list[Any]]]:
        """Recordings from inside the blocks, if a member asks for them."""
        if not any(self.members[member].variant.training.record_blocks for member in self.alive):
            return {}
        norms = self._optimizer.norms if self.steps else None
        at_end = self.steps == self.training.steps
        with self._eager_blocks():
            recorded = look_inside(self.model, norms, lambda: self.outputs_of_validation(1), maps=at_end)
        return {
            quantity: {part: self._by_member(values) for part, values in parts.items()}
            for quantity, parts in recorded.items()
        }

    def _insides(self) -> dict[str, list[float]]:
        """The metrics of `training.insides` now, by position."""
        loss = loss_on_validation(self.task, self.device, len(self.positions), self._forward_context)
        insides = measure_insides(self.model, loss)
        if insides.absent:
            why = next(iter(insides.absent.values()))
            mixers = dict.fromkeys(block.mixer.kind_name() for block in self.members[0].variant.model.blocks)
            self._absent_insides = f"no {', no '.join(insides.absent)} of {', '.join(mixers)}: {why}"
        return insides.metrics(initial=not self.steps) | self._update_ratios

    def _initial_insides(self) -> dict[str, list[float]]:
        """The metrics from before the first step, by member, which every later point keeps."""
        first = next((event for event in self.events if isinstance(event, Measurement)), None)
        kept = {} if first is None or self.steps not in self._inside_steps else first.metrics
        return {
            name: [value if member in self.alive else math.nan for member, value in enumerate(values)]
            for name, values in kept.items()
            if name.startswith(INSIDE_INITIAL)
        }

    def outputs_of_validation(self, rows: int) -> Tensor:
        """What the model, in the mode in which it is, predicts for the first rows of the validation data."""
        first = next(self.task.validation_batches(self.training.batch_size))
        sample = {
            name: values[:rows].to(self.device).expand(len(self.positions), -1, *values.shape[1:])
            for name, values in first.items()
        }
        return self.task.outputs(self.model, sample)

    def last_loss(self) -> list[float]:
        """The training loss of each member at the last step."""
        return self._by_member(self._loss.tolist())

    def remove_diverged(self) -> Iterator[Diverged]:
        """Remove members that have diverged since the last call, and yield an event for each."""
        for position, step in enumerate(self._stopped.tolist()):
            member = self.positions[position]
            if step > 0 and member in self.alive:
                self.leave(member)
                event = Diverged(member, step, self._stopped_loss[position].item())
                self.events.append(event)
                yield event

    def leave(self, member: int) -> None:
        """Stop tracking this member."""
        self.alive.discard(member)

    def compact(self) -> None:
        """Remove members that have left from the model: all on a CPU; on a GPU down to the next power of two.

        Each new number of members needs a new capture of the CUDA graph, so sizes change rarely.
        """
        size = len(self.alive)
        if self.device.type != "cpu":
            size = min(len(self.positions), 1 << (size - 1).bit_length())
        if size == len(self.positions):
            return
        spare = size - len(self.alive)
        kept = []
        for position, member in enumerate(self.positions):
            if member in self.alive or spare > 0:
                spare -= member not in self.alive
                kept.append(position)
        self._keep(kept)

    def _keep(self, kept: Sequence[int]) -> None:
        """Keep only the members at these positions."""
        self.positions = [self.positions[position] for position in kept]
        self.model = compact(self.model, self._members_by_position(), kept, self.task.shape)
        self._random.keep(kept)
        index = torch.tensor(kept, device=self.device)
        before, averaged = self._optimizer, self._average
        self._prepare()
        self._optimizer.take_over(before, index)
        if self._average is not None and averaged is not None:
            self._average.restore(averaged.state(), index)
        for name in _BY_POSITION:
            setattr(self, name, getattr(self, name)[index])

    def state(self) -> State:
        """The state except for the events; shares memory with the pack."""
        return {
            "positions": list(self.positions),
            "alive": sorted(self.alive),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "by_position": {name: getattr(self, name) for name in _BY_POSITION},
            "average": [] if self._average is None else self._average.state(),
        } | self._random.state()

    def restore(self, state: State) -> None:
        """Load the state of another pack of the same members."""
        kept = [self.positions.index(member) for member in state["positions"]]
        if len(kept) < len(self.positions):
            self._keep(kept)
        self.alive = set(state["alive"])
        self.model.load_state_dict(divide_like(state["model"], self.model.state_dict()))
        self._optimizer.restore(state["optimizer"])
        if self._average is not None:
            self._average.restore(state["average"])
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        for name in _BY_POSITION:
            getattr(self, name).copy_(state["by_position"][name])
        self._random.restore(state)

    def _totals(self) -> Totals:
        """Tokens and arithmetic of a member."""
        first, shape = self.members[0].variant, self.task.shape
        whole = sum(parameter.numel() for parameter in self.model.parameters()) // len(self.members)
        frozen, frozen_maps = frozen_counts(self.model, self.training.freeze)

        def forward(length: int) -> float:
            lengths = self.task.input_lengths() if length == shape.context else (length,)
            return mean_flops(
                first.model, lengths, vocabulary=shape.vocabulary, context=shape.context, classes=shape.classes
            )

        return totals(first, self.task, whole - frozen, forward, 2.0 * frozen_maps)

    def _members_by_position(self) -> list[Member]:
        return [self.members[member] for member in self.positions]

    def _prepare(self) -> None:
        """Build optimizer and program for the current model."""
        settings = [member.variant.training for member in self._members_by_position()]
        self._optimizer = PackOptimizer(
            self.model,
            settings,
            capturable=self.device.type == "cuda",
            scaling=self.members[0].variant.model.rate_scaling,
            total=self.ranks.total if self.ranks.shard else None,
        )
        average = self.training.average
        self._average = None if average is None else WeightAverage(self.model, average, self.training.steps)
        if self._compiles:
            compile_blocks(self.model)
        self._renew_program()

    def _renew_program(self) -> None:
        self._program = self._build_program(self._compute, self.device)
        self._program.compare(self._changed_tensors)

    def _changed_tensors(self) -> Changed:
        """What a step changes."""
        others = [*self.model.buffers(), *self._optimizer.tensors()]
        return Changed(list(self.model.parameters()), others, self._random.generators())

    def _clock(self) -> float:
        """Seconds that this process has spent compiling."""
        return compile_clock().seconds if self.training.compile == "blocks" else 0.0

    def _add_seconds(self, begin: float) -> None:
        self.seconds += (time.perf_counter() - begin) / len(self.alive)

    def _by_member(self, values: Sequence[Any]) -> list[Any]:
        by_member: list[Any] = [math.nan] * len(self.members)
        for member, value in zip(self.positions, values, strict=True):
            if member in self.alive:
                by_member[member] = value
        return by_member

    def _note_divergence(self, loss: Tensor, step: int) -> None:
        bad = (self._stopped == 0) & ~loss.isfinite()
        self._stopped = torch.where(bad, step, self._stopped)
        self._stopped_loss = torch.where(bad, loss, self._stopped_loss)

    @contextmanager
    def _forward_context(self) -> Iterator[None]:
        """The precision and the random streams of a forward pass."""
        with cast_to(self.training.precision, self.device.type), member_streams(self._random.streams):
            yield

"""What training a point of a design takes, before anything is trained: spec, data, tokens and FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from ablate.designs.base import Point
from ablate.errors import PluginError
from ablate.nn.model import model_cost
from ablate.planning.plan import InvalidPoint
from ablate.planning.starting import Starting
from ablate.spec.cost import Cost
from ablate.spec.space import SpaceSpec
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.training.batches import totals


@dataclass(slots=True)
class PointCosts:
    """Resolves each point of a space once, prepares the data that it needs, and prices it.

    Attributes:
        cache: The folder of prepared data.
        say: Receives what happens to the data.
        starting: Where variants start from trained weights.
        tasks: By canonical JSON of the task.
        tasks_at: The same at the lengths of `training.evaluate_at`.
        specs: Every resolved point, by its name and its tuned values.
        costs: Cost of the longest input, and arithmetic of a usual one, by canonical JSON of the model and of the task.
    """

    space: SpaceSpec
    cache: Path
    say: Callable[[str], None]
    starting: Starting
    tasks: dict[str, Task] = field(default_factory=dict)
    tasks_at: dict[tuple[str, int], Task] = field(default_factory=dict)
    specs: dict[tuple[str, str], VariantSpec | InvalidPoint] = field(default_factory=dict)
    costs: dict[tuple[str, str, int], tuple[Cost, float]] = field(default_factory=dict)

    def spec(self, point: Point) -> VariantSpec | InvalidPoint:
        """The variant of a point as the space writes it, without matching."""
        key = point.name, repr(point.tuned) if point.tuned else ""
        if key not in self.specs:
            try:
                self.specs[key] = self.space.composer.compose(point.settings, {**point.values, **point.tuned})
            except ValidationError as error:
                self.specs[key] = InvalidPoint(point, self.space.composer.reason(point.settings, error))
        return self.specs[key]

    def valid_spec(self, point: Point) -> VariantSpec | None:
        """The same; None if the point is not valid."""
        spec = self.spec(point)
        return spec if isinstance(spec, VariantSpec) else None

    def prepare(self, spec: VariantSpec) -> Task:
        """The task of a variant, its data made ready.

        Raises:
            DataError: Its data cannot be prepared, or is too short for a length of `training.evaluate_at`.
        """
        key = spec.task.canonical_json()
        if key not in self.tasks:
            self.tasks[key] = spec.task.open(self.cache, spec.task.prepare(self.cache, self.say))
        for length in spec.training.lengths:
            if (key, length) not in self.tasks_at:
                self.tasks_at[key, length] = self.tasks[key].at_length(length)
        return self.tasks[key]

    def forward_cost(self, spec: VariantSpec, point: Point, length: int = 0) -> tuple[Cost, float]:
        """The cost of a variant, and the arithmetic of a forward pass: the mean, or that of inputs of this length."""
        task = self.prepare(spec)
        read = spec.model.canonical_json(), spec.task.canonical_json(), length
        if read not in self.costs:
            self.costs[read] = _cost(spec, task, point, (length,) if length else task.input_lengths())
        return self.costs[read]

    def trial_cost(self, spec: VariantSpec, point: Point) -> tuple[Cost, int, tuple[float, float]]:
        """The cost with trained parameters, how many are frozen, and tokens and arithmetic of a trial.

        All are 0 where the user's trainer builds the model.
        """
        if not spec.builds_model:
            return Cost(), 0, (0.0, 0.0)
        cost, _ = self.forward_cost(spec, point)
        task = self.prepare(spec)
        frozen, undone = self.starting.frozen(spec, task)
        cost = replace(cost, parameters=cost.parameters - frozen)

        def forward(length: int) -> float:
            return self.forward_cost(spec, point, 0 if length == task.shape.context else length)[1]

        return cost, frozen, totals(spec, task, cost.parameters, forward, undone).whole

    def step_cost(self, spec: VariantSpec, point: Point) -> tuple[Cost, float, float]:
        """The cost of a variant, and the tokens and arithmetic of one of its steps, on average if its batches grow."""
        cost, _, (tokens, flops) = self.trial_cost(spec, point)
        return cost, tokens / max(1, spec.training.steps), flops / max(1, spec.training.steps)


def _cost(spec: VariantSpec, task: Task, point: Point, lengths: tuple[int, ...]) -> tuple[Cost, float]:
    """The cost of a whole input, and the mean arithmetic of the forward pass over inputs of these lengths."""
    shape = {"vocabulary": task.shape.vocabulary, "context": task.shape.context, "classes": task.shape.classes}
    with cost_of_a_plugin(point.name):
        costs = {at: model_cost(spec.model, **shape, length=at) for at in {task.shape.context, *lengths}}
        return costs[task.shape.context], sum(costs[at].flops for at in lengths) / len(lengths)


@contextmanager
def cost_of_a_plugin(variant: str) -> Iterator[None]:
    """Convert an exception in the `cost` of a user's mixer to an error that names the variant.

    Raises:
        PluginError: It raised.
    """
    try:
        yield
    except Exception as error:
        raise PluginError(
            f"working out its cost raised {type(error).__name__}: {error}",
            where=f"variant {variant}",
            remedy="If the mixer is your own, correct its `cost`; `--debug` shows where it was raised.",
        ) from error

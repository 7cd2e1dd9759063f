"""What training a point takes, and the steps or the size at which each variant matches the baseline in a quantity.

The costs are known before anything is trained: spec, data, tokens and FLOPs.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue, ValidationError

from ablate.designs.base import BASELINE, Point
from ablate.designs.wrappers import TIMING_STEPS, keeps_step_time, timing_point
from ablate.errors import PluginError
from ablate.nn.model import model_cost
from ablate.planning.plan import InvalidPoint
from ablate.planning.starting import Starting
from ablate.spec.cost import Cost
from ablate.spec.fairness import MatchSpec
from ablate.spec.paths import full_path, value_at
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


_REMARKS = {
    "steps": (),
    "tokens": ("Every variant trains on as many tokens as the baseline; its steps are adjusted.",),
    "flops": ("Every variant uses as much arithmetic as the baseline; its steps are adjusted.",),
    "parameters": ("Every variant has as many parameters as the baseline; its size is adjusted.",),
    "seconds": (
        "Every variant trains as many seconds as the baseline. Steps are timed when the study begins, on the machine "
        "that runs it; until then they are estimated from the arithmetic. Another machine gives other steps.",
    ),
}
_USUAL_RATIO = 4
"""Hidden width of an MLP over the width of its model, where the search for one begins."""
_NEAR = 0.005
"""A size that is further off than this share of the target is compared with all sizes up to a quarter away: some kinds,
such as Mamba-2 with its own head width, do not grow steadily."""
_MOST_TIMES = 8
"""How much larger than it was written a size may become."""


class Budget:
    """Solves the setting of each point with which it matches the baseline.

    Args:
        space: Its `match` names the equal quantity.
    """

    def __init__(self, space: SpaceSpec, costs: PointCosts) -> None:
        self._match = space.match
        self._costs = costs
        self._solved: dict[str, VariantSpec] = {}
        self._timed: dict[str, dict[int, float]] = {}
        self._tuned_paths = (*(space.tune.grid if space.tune is not None else ()), *space.tuned)
        self.baseline = Point(BASELINE, space.baseline_settings)
        """The baseline without matching: the target of all variants."""

    def warnings(self) -> Sequence[str]:
        """Remarks on the budget for the user, one line each."""
        return _REMARKS[self._match.equal]

    @functools.cached_property
    def written(self) -> dict[str, JsonValue]:
        """The tuned paths that do not change how long a step takes, as the space writes them."""
        spec = self._baseline_spec
        paths = [path for path in self._tuned_paths if keeps_step_time(full_path(path))]
        return {path: value_at(spec.model_dump(mode="json"), full_path(path)) for path in paths}

    def time(self, digest: str, seed: int, seconds: float) -> None:
        """Record the seconds of a step of the timing trial with this content hash."""
        self._timed.setdefault(digest, {})[seed] = seconds

    def matched(self, point: Point, spec: VariantSpec) -> VariantSpec:
        """The variant of a point with the budget of the baseline.

        Raises:
            UnmatchedError: It cannot match that budget.
        """
        path = self._match.path
        if path is None or path in point.tuned:  # timing trials set their own steps
            return spec
        digest = spec.content_hash()
        if digest in self._solved:
            return self._solved[digest]
        if self._match.equal == "parameters":
            target = self._costs.step_cost(self._baseline_spec, self.baseline)[0].parameters
            solved = equal_parameters(self._match, target, spec, functools.partial(self._parameters, point))
        else:
            # Estimated or measured: both sides alike.
            times = self._seconds(self.baseline), self._seconds(point)
            timed = times if None not in times else (None, None)
            ours, theirs = self._step(self._baseline_spec, self.baseline, timed[0]), self._step(spec, point, timed[1])
            solved = {path: equal_steps(self._match, ours, self._baseline_spec.training.steps, theirs)}
            if self._match.equal == "seconds" and None in times:
                return self._with(point, solved)
        self._solved[digest] = self._with(point, solved)
        return self._solved[digest]

    @functools.cached_property
    def _baseline_spec(self) -> VariantSpec:
        spec = self._costs.valid_spec(self.baseline)
        assert spec is not None, "a space whose baseline is invalid is refused"
        return spec

    def _with(self, point: Point, solved: Mapping[str, JsonValue]) -> VariantSpec:
        return self._costs.space.composer.compose(point.settings, {**point.values, **point.tuned, **solved})

    def _parameters(self, point: Point, values: Mapping[str, JsonValue]) -> int | None:
        try:
            return self._costs.step_cost(self._with(point, values), point)[0].parameters
        except ValidationError:
            return None

    def _step(self, spec: VariantSpec, point: Point, seconds: float | None) -> Step:
        _, tokens, flops = self._costs.step_cost(spec, point)
        return Step(tokens, flops, flops if seconds is None else seconds)

    def _seconds(self, point: Point) -> float | None:
        """Seconds of a step, the median over the timing trials; None before they have ended."""
        if self._match.equal != "seconds":
            return None
        spec = self._costs.valid_spec(timing_point(point, self.written))
        if spec is None:
            raise UnmatchedError(
                f"its steps cannot be timed: with `training.steps: {TIMING_STEPS}` its settings are invalid; use "
                "`match: flops`"
            )
        timed = self._timed.get(spec.content_hash(), {})
        return statistics.median(timed.values()) if timed else None


@dataclass(frozen=True, slots=True)
class Step:
    """What one training step of a variant takes.

    Attributes:
        tokens: Seen by the model.
        flops: Arithmetic: forward, backward and optimizer.
        seconds: Measured, or estimated before anything is.
    """

    tokens: float
    flops: float
    seconds: float


class UnmatchedError(Exception):
    """No value of the adjusted path is within the tolerance; the message gives the nearest one."""


def equal_steps(match: MatchSpec, baseline: Step, steps: int, variant: Step) -> int:
    """The whole number of steps at which the budget of a variant is nearest to the baseline's.

    Args:
        match: What is equal: `tokens`, `flops` or `seconds`.
        baseline: One step of the baseline.
        variant: One step of the variant.

    Raises:
        UnmatchedError: One step of the variant alone exceeds 1.5 times the budget, or the baseline takes no step.
    """
    each: float = getattr(variant, match.equal)
    budget: float = getattr(baseline, match.equal) * steps
    if steps == 0:
        raise UnmatchedError(
            f"the baseline takes no step, so there are no {match.equal} to match; set `training.steps`"
        )
    if each <= 0:
        return steps
    if budget / each < 2 / 3:
        raise UnmatchedError(
            f"one step alone is {each / budget:.3g} times the {match.equal} of the baseline's {steps} steps; "
            "raise `training.steps`"
        )
    return max(1, round(budget / each))


@dataclass(frozen=True, slots=True)
class Size:
    """A whole number that was solved for, and the parameters that it gives."""

    number: int
    parameters: int

    def off(self, target: int) -> float:
        """How far from the target, as a share of it."""
        return abs(self.parameters - target) / target


def nearest_size(parameters: Callable[[int], int | None], target: int, start: int) -> Size | None:
    """The size whose parameters are nearest to a target; parameters grow almost monotonically with the size.

    Args:
        parameters: Of a size; None where it is invalid, as when heads do not divide a width.
        start: Where to begin.

    Returns:
        The size; of two that are as near the smaller one. None if no size up to 8 times the start makes a model.
    """
    known: dict[int, int | None] = {}

    def at(number: int) -> int | None:
        if number not in known:
            known[number] = parameters(number)
        return known[number]

    def first(numbers: range) -> Size | None:
        return next((Size(number, count) for number in numbers if (count := at(number)) is not None), None)

    # A bracket: below it too few parameters (or no size at all), above it enough.
    low, high, most = 0, start, _MOST_TIMES * start
    above = first(range(high, most + 1))
    while above is not None and above.parameters < target:
        low = above.number
        above = first(range(max(low + 1, min(2 * low, most)), most + 1))
    high = above.number if above is not None else most + 1
    while high - low > 1:
        # From the middle upwards, then downwards, to a size that makes a model; none between: the bracket is tight.
        middle = (low + high) // 2
        size = first(range(middle, high)) or first(range(middle - 1, low, -1))
        if size is None:
            break
        low, high = (size.number, high) if size.parameters < target else (low, size.number)
    ends = [Size(number, count) for number in (low, high) if 0 < number <= most and (count := at(number)) is not None]
    nearest = min(ends, key=lambda size: abs(size.parameters - target), default=None)
    if nearest is None or nearest.off(target) <= _NEAR:
        return nearest
    around = range(max(1, nearest.number * 3 // 4), min(most, nearest.number * 5 // 4) + 1)
    sizes = [Size(number, count) for number in around if (count := at(number)) is not None]
    return min(sizes, key=lambda size: abs(size.parameters - target))


def equal_parameters(
    match: MatchSpec,
    target: int,
    spec: VariantSpec,
    parameters: Callable[[Mapping[str, JsonValue]], int | None],
) -> dict[str, JsonValue]:
    """The value of the solved path with which a variant has the parameters of the baseline.

    Args:
        match: What is adjusted, and the tolerance.
        parameters: Of the variant with these values besides; None if it is invalid with them.

    Raises:
        UnmatchedError: Nothing comes within the tolerance.
    """
    assert match.path is not None
    width, path = spec.model.width, match.path
    start = width if match.by == "width" else _USUAL_RATIO * width

    def values(number: int) -> dict[str, JsonValue]:
        # The hidden width of an MLP is written as a share of the model's; a whole number is solved for either way.
        return {path: number if match.by == "width" else number / width}

    size = nearest_size(lambda number: parameters(values(number)), target, start)
    if size is None:
        raise UnmatchedError(f"no `{path}` makes a model")
    if size.off(target) > match.within:
        (value,) = values(size.number).values()
        raise UnmatchedError(
            f"the nearest that can be is `{path}: {value:.6g}` with {size.parameters:,} parameters, "
            f"{100 * size.off(target):.2g} % off {target:,}, and {100 * match.within:g} % is asked for; "
            f"{_way_out(match, size, target, spec, parameters)}"
        )
    return values(size.number)


def _way_out(
    match: MatchSpec,
    size: Size,
    target: int,
    spec: VariantSpec,
    parameters: Callable[[Mapping[str, JsonValue]], int | None],
) -> str:
    raise_within = f"set `within: {_rounded_up(size.off(target)):g}`"
    if match.by == "mlp":
        return f"{raise_within}, or solve `by: width`"
    ways = [raise_within]
    width, ratio = spec.model.width, "model.block.mlp.ratio"
    by_mlp = nearest_size(lambda number: parameters({ratio: number / width}), target, _USUAL_RATIO * width)
    if by_mlp is not None and by_mlp.off(target) <= match.within:
        ways.append("solve `by: mlp`")
    if spec.model.heads > 1:
        ways.append("take fewer heads, which must divide the width")
    return ", or ".join(ways)


def _rounded_up(share: float) -> float:
    """To two digits, and never below the share."""
    return next(value for value in (float(f"{share * (1 + k / 100):.2g}") for k in range(20)) if value >= share)

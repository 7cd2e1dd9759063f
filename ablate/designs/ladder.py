"""Ladder: the same comparisons on rungs of growing compute, to see whether a difference survives scale.

A dial (depth, parameters, or FLOPs) gives each rung its model; the other rules set width, heads and length of training
from it. Within a rung every variant is trained with as many FLOPs as the baseline, by its number of steps. The rungs
are trained in ascending order, so that `stop: clearly_worse` can drop a variant before the expensive ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, WithJsonSchema, model_validator

from ablate.designs.base import BASELINE, Design, DesignContext, DesignSpec, Point, Proposal, named_points, setting_name
from ablate.errors import SpaceError
from ablate.spec.annotations import Number
from ablate.spec.base import refusal
from ablate.spec.fairness import tuned_for
from ablate.stats import paired_difference

Dial = Literal["depth", "parameters", "flops"]
RUNG = "rung"
MOST_RUNGS = 12
_DEPTHS = range(1, 65)
"""Depths among which a dial of parameters or FLOPs chooses."""
_STEPS = "training.steps"
_ERROR = 0.05
"""Chance that a variant which is not worse by more than the margin is dropped on any rung."""


def at_rung(name: str, rung: int) -> str:
    """The name of a variant on a rung; rungs count from 1."""
    return f"{name}@{RUNG}={rung}"


def baseline_of_rung(name: str) -> str:
    """The name of the baseline on the rung of a variant; that of the baseline where there are no rungs."""
    return "".join((BASELINE, *name.partition(f"@{RUNG}=")[1:]))


def _before_steps(name: str) -> str:
    """The name of a point that is only asked for its cost: one name is one point."""
    return f"{name} before its steps"


class LadderSpec(DesignSpec):
    """Every variant on every rung of growing compute; points are named `variant@rung=2`.

    The variants are those of `leave_one_out`: each setting of a switch on its own, and the named variants.
    """

    example: ClassVar[Mapping[str, Any]] = {"rungs": [1, 2], "target": 1}
    kind: Literal["ladder"] = "ladder"
    equalises = True
    rungs: tuple[Number, ...] = Field(min_length=2, max_length=MOST_RUNGS)
    """The values of the dial, ascending."""
    dial: Dial = "depth"
    """What the rungs are: depths; or parameters or training FLOPs of the baseline, for which the nearest depth is
    chosen."""
    width_per_depth: int | None = Field(default=None, ge=1, le=4096)
    """Width of the model for each block; default: the width of the space on every rung."""
    head_width: int | None = Field(default=None, ge=1, le=1024)
    """Width of a head, which sets the number of heads; default: the heads of the space on every rung."""
    tokens_per_parameter: float | None = Field(default=None, gt=0, le=10_000)
    """Training tokens for each parameter of the baseline, which set its steps; default: the steps of the space."""
    per_rung: Annotated[
        dict[str, tuple[JsonValue, ...]],
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "array", "minItems": 2}}),
    ] = Field(default_factory=dict)
    """Values of other spec paths, one for each rung, such as `training.optimizer.lr` or `training.batch_size`."""
    seeds_per_rung: tuple[int, ...] = ()
    """Seeds of each rung; default: `seeds` on all of them."""
    target: float = Field(default=10.0, ge=1, le=10)
    """To which multiple of the compute of the largest rung the laws are extrapolated; 1: not at all."""
    stop: Literal["never", "clearly_worse"] = "never"
    """`clearly_worse` drops a variant from the larger rungs once it is shown to be worse than the baseline by more than
    the margin. A variant that is not is dropped with a chance of at most 5 %, over all rungs together."""

    @model_validator(mode="after")
    def _climbs(self) -> Self:
        if any(value <= 0 for value in self.rungs) or list(self.rungs) != sorted(set(self.rungs)):
            raise refusal(
                ("rungs",), list(self.rungs), "rungs are numbers above 0 that ascend", "Write `[2, 3, 4, 6]`."
            )
        if self.dial == "depth" and any(value != int(value) for value in self.rungs):
            raise refusal(("rungs",), list(self.rungs), "a depth is a whole number", "Write whole numbers.")
        lists: dict[tuple[str, ...], int] = {("per_rung", path): len(of) for path, of in self.per_rung.items()}
        if self.seeds_per_rung:
            lists["seeds_per_rung",] = len(self.seeds_per_rung)
        for path, length in lists.items():
            if length != len(self.rungs):
                rule = f"there are {len(self.rungs)} rungs, and {length} values"
                raise refusal(path, length, rule, "Write one value for each rung.")
        self.fixed_seeds()
        if any(seeds < 1 for seeds in self.seeds_per_rung):
            raise refusal(("seeds_per_rung",), list(self.seeds_per_rung), "each rung has seeds", "Write 1 or more.")
        return self

    def paths(self) -> tuple[str, ...]:
        solved = {
            "model.depth": True,
            "model.width": self.width_per_depth is not None,
            "model.heads": self.head_width is not None,
            _STEPS: True,
        }
        return (*(path for path, is_set in solved.items() if is_set), *self.per_rung)

    def declares(self, seed: int) -> bool:
        """As `DesignSpec.declares`, of the rung with the most seeds."""
        return seed < max(self.seeds_per_rung or (self.fixed_seeds(),))

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: Two rungs have one model, the baseline is invalid on a rung, or the laws would be
                extrapolated from rungs whose learning rate was not tuned.
        """
        shared = context.rates == "tuned" and any("@" not in name for name in context.tuned)
        if self.target > 1 and (context.rates == "given" or shared):
            raise SpaceError(
                "a law is not extrapolated from rungs whose learning rate was not tuned: a mistuned rung bends it",
                where=context.where("target"),
                got=f"{self.target:g} times the largest rung",
                remedy="Add `tune: {training.optimizer.lr: [...]}`, which tunes every variant on every rung; take the "
                "initialiser `mup` or `complete_p`, with which rates transfer; or set `target: 1`.",
            )
        baseline, *named = named_points(context)
        alone = [
            Point(setting_name(changed, baseline.settings), changed)
            for switch, settings in context.switches.items()
            for setting in settings[1:]
            for changed in ({**baseline.settings, switch: setting},)
        ]
        rungs = [[*self._rung(place, [baseline, *alone, *named], context)] for place in range(len(self.rungs))]
        depths = [rung[0].values["model.depth"] for rung in rungs]
        if len(set(map(str, depths))) < len(depths):
            raise SpaceError(
                f"two rungs have a model of one depth: {', '.join(map(str, depths))}",
                where=context.where("rungs"),
                remedy="Write values of the dial that lie further apart.",
            )
        return LadderDesign(rungs, self.seeds_per_rung or (self.fixed_seeds(),) * len(rungs), self.stop, context)

    def _rung(self, place: int, points: Sequence[Point], context: DesignContext) -> Iterator[Point]:
        """The points of a rung, the baseline first; each with the FLOPs of the baseline."""
        own = {path: values[place] for path, values in self.per_rung.items()}
        baseline = self._baseline(place, points[0], own, context)
        yield baseline
        aim = context.cost(baseline).flops
        for point in points[1:]:
            name = at_rung(point.name, place + 1)
            at = replace(point, name=_before_steps(name), values=baseline.values)
            values = dict(baseline.values)
            if aim and context.refusal(at) is None:
                cost = context.cost(at)
                values[_STEPS] = max(1, round(cost.steps * aim / cost.flops))
            yield replace(point, name=name, values=values, tuned=tuned_for(context.tuned, name))

    def _baseline(self, place: int, point: Point, own: Mapping[str, JsonValue], context: DesignContext) -> Point:
        name, value = at_rung(point.name, place + 1), self.rungs[place]
        if self.dial == "depth":
            chosen = self._of_depth(int(value), replace(point, name=name), own, context)
        else:
            distances = []
            for depth in _DEPTHS:
                found = self._of_depth(depth, replace(point, name=f"{name} of depth {depth}"), own, context)
                cost = context.cost(found)
                size = cost.parameters if self.dial == "parameters" else cost.flops
                distances.append((abs(math.log(max(size, 1e-300) / value)), depth, found))
                if size >= value or not size:
                    break
            *_, chosen = min(distances, key=lambda at: at[:2])
        return replace(chosen, name=name, tuned=tuned_for(context.tuned, name))

    def _of_depth(self, depth: int, point: Point, own: Mapping[str, JsonValue], context: DesignContext) -> Point:
        """The baseline of a depth, with width, heads and steps that follow.

        Raises:
            SpaceError: It is invalid.
        """
        values: dict[str, JsonValue] = {"model.depth": depth}
        if self.width_per_depth is not None:
            values["model.width"] = width = self.width_per_depth * depth
            if self.head_width is not None:
                values["model.heads"] = max(1, width // self.head_width)
        at = replace(point, name=_before_steps(point.name), values={**values, **own})
        if reason := context.refusal(at):
            raise SpaceError(
                f"the baseline is invalid on the rung of depth {depth}: {reason}",
                where=context.where("rungs"),
                remedy="Change the rungs, `width_per_depth`, `head_width` or `per_rung`.",
            )
        cost = context.cost(at)
        steps = cost.steps
        if self.tokens_per_parameter is not None and cost.tokens:
            steps = round(self.tokens_per_parameter * cost.parameters / (cost.tokens / max(1, cost.steps)))
        return replace(point, values={**at.values, _STEPS: max(1, steps)})


class LadderDesign(Design):
    """Trains rung after rung, and may drop variants between them.

    Args:
        rungs: The points of each rung, the baseline first.
        seeds: How many seeds each rung has.
        stop: `clearly_worse` drops variants that are shown to be worse by more than the margin.
        context: Gives margin, direction and refusals.
    """

    def __init__(
        self, rungs: Sequence[Sequence[Point]], seeds: Sequence[int], stop: str, context: DesignContext
    ) -> None:
        self._rungs = rungs
        self._seeds = seeds
        self._stops = stop == "clearly_worse"
        self._context = context
        self._next = 0
        self._open: set[tuple[str, int]] = set()
        self._values: dict[str, dict[int, float]] = {}
        self._dropped: set[int] = set()

    def points(self) -> list[Point]:
        return [point for rung in self._rungs for point in rung]

    def warnings(self) -> Sequence[str]:
        if not self._stops:
            return ()
        return (
            "a variant that is shown to be worse by more than the margin is dropped from the larger rungs; one that is "
            f"not is dropped with a chance of at most {100 * _ERROR:g} %",
        )

    def waiting(self) -> list[Proposal]:
        return [proposal for place in range(self._next, len(self._rungs)) for proposal in self._proposals(place)]

    def further_trials(self) -> int | None:
        return 0

    def ask(self) -> list[Proposal]:
        """The next rung, when all trials of the one before have ended."""
        if self._open or self._next >= len(self._rungs):
            return []
        if self._stops and self._next:
            self._drop(self._rungs[self._next - 1])
        proposals = self._proposals(self._next)
        self._next += 1
        self._open = {(proposal.point.name, proposal.seed) for proposal in proposals}
        return proposals

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        self._open.discard((point.name, seed))
        if value is not None:
            self._values.setdefault(point.name, {})[seed] = value

    def _proposals(self, place: int) -> list[Proposal]:
        kept = [
            point
            for number, point in enumerate(self._rungs[place])
            if number not in self._dropped and self._context.refusal(point) is None
        ]
        return [Proposal(point, seed) for seed in range(self._seeds[place]) for point in kept]

    def _drop(self, rung: Sequence[Point]) -> None:
        baseline = self._values.get(rung[0].name, {})
        if len(baseline) < self._seeds[self._next - 1]:  # the seeds that are left flatter it
            return
        sign = 1 if self._context.direction == "minimize" else -1
        for number, point in enumerate(rung[1:], 1):
            paired = paired_difference(
                {seed: sign * value for seed, value in self._values.get(point.name, {}).items()},
                {seed: sign * value for seed, value in baseline.items()},
            )
            if not paired.is_flat and paired.p_above(self._context.margin) < _ERROR / (len(self._rungs) - 1):
                self._dropped.add(number)

"""`tune`, `match` and `budgets` of a space: tuned values, equal quantities, and lengths at which all are trained."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ablate.spec.annotations import Number
from ablate.spec.base import Spec, below, refusal
from ablate.spec.design import Point, split_axis
from ablate.spec.paths import full_path, overlaps
from ablate.spec.sentences import describe

STEPS = "training.steps"
"""What a budget multiplies."""
BUDGET = "budget"
"""The axis along which claims follow a difference over the budgets."""


def _lengths(budgets: tuple[float, ...]) -> tuple[float, ...]:
    if not budgets:
        return budgets
    for place, budget in enumerate(budgets):
        if not 0 < budget <= 1000:
            raise refusal((place,), budget, "a budget is a multiple of the space's steps", "Write a number above 0.")
        if budget in budgets[:place]:
            raise refusal((place,), budget, f"{budget:g} is listed twice", "List each budget once.")
    if 1 not in budgets or len(budgets) < 2:
        rule = "the study itself is budget 1, and others are compared with it"
        raise refusal((), list(budgets), rule, "Write `budgets: [1, 2, 4]`, for example.")
    return tuple(sorted(budgets))


BudgetsField = Annotated[tuple[Annotated[Number, Field()], ...], AfterValidator(_lengths)]


def at_budget(name: str, budget: float) -> str:
    """The name of a variant at a budget; at 1 it is its own."""
    return name if budget == 1 else f"{name}@{BUDGET}={budget:g}"


def check_budgets(budgets: Sequence[float], steps: int, *, plans_points: bool, taken: Mapping[str, str]) -> None:
    """Refuse budgets that a space cannot be trained at.

    Args:
        plans_points: Whether the design names its points before results, and sets nothing but switches in them.
        taken: Full paths that something sets, with what sets them.

    Raises:
        ValidationError: A budget is refused; paths start at `budgets`.
    """
    if not budgets:
        return
    if not plans_points:
        rule = "only variants that the design names before any result are compared at several lengths"
        remedy = "Choose another design, such as leave_one_out or grid, or give what was chosen a study of its own."
        raise refusal((), list(budgets), rule, remedy)
    for path, who in taken.items():
        if overlaps(path, STEPS):
            rule = f"budgets multiply `{STEPS}`, which {who} also sets"
            raise refusal((), list(budgets), rule, "Leave out one of the two.")
    for place, budget in enumerate(budgets):
        if round(budget * steps) < 1:
            raise refusal((place,), budget, f"less than one of {steps} steps is left", "Write a larger budget.")


Quantity = Literal["steps", "tokens", "seconds", "flops", "parameters"]

ErrorOf = Callable[[Mapping[str, JsonValue]], ValidationError | None]
"""Returns why the baseline is invalid with some values of paths; None if it is valid."""

MOST_COMBINATIONS = 100
"""Maximum number of combinations in a grid, which is trained for every variant."""

_SEEDS = "seeds"


class TuneSpec(Spec):
    """A small grid of values that is trained for each variant, with equal effort, before the comparison.

    Written as paths with lists of values: `{training.optimizer.lr: [5.0e-4, 1.0e-3, 2.0e-3], seeds: 2}`. Every
    combination is trained with seeds that no comparison uses (1000, 1001 ...). Each variant gets the combination with
    the best mean objective; fewer diverged seeds come before a better mean.
    """

    grid: dict[str, tuple[JsonValue, ...]] = Field(min_length=1)
    """Values of each spec path. The paths may also be written next to `seeds`, without `grid`."""
    seeds: int = Field(default=2, ge=1, le=100)
    """Number of trials of each variant with each combination. They are not compared, which avoids selection bias."""

    @model_validator(mode="before")
    @classmethod
    def _paths_beside_seeds(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        grid = value["grid"] if "grid" in value else {key: item for key, item in value.items() if key != _SEEDS}
        if not isinstance(grid, Mapping) or ("grid" in value and not value.keys() <= {"grid", _SEEDS}):
            return value
        if not grid:
            raise refusal((), {}, "there is nothing to tune", "Name a path and its values, or leave `tune` out.")
        for path, values in grid.items():
            _check_values(str(path), values)
        return {"grid": dict(grid)} | ({_SEEDS: value[_SEEDS]} if _SEEDS in value else {})

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        plain = super().__get_pydantic_json_schema__(schema, handler)
        body = handler.resolve_ref_schema(plain)
        values = {"type": "array", "minItems": 2}
        grid = {"description": body["properties"]["grid"]["description"], "type": "object"}
        body["properties"]["grid"] = {**grid, "additionalProperties": values}
        body["additionalProperties"] = values  # paths next to `seeds`
        body.pop("required", None)
        return plain

    def combinations(self) -> Iterator[dict[str, JsonValue]]:
        """All combinations of values by path; the last path varies fastest."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def check(
        self, taken: Mapping[str, str], error_of: Callable[[dict[str, JsonValue]], ValidationError | None]
    ) -> None:
        """Refuse paths that something else sets or that do not exist, and values that are invalid for the baseline.

        Args:
            taken: For each full path that is set, what sets it.
            error_of: Returns why the baseline is invalid with some values; None if it is valid.

        Raises:
            ValidationError: The grid cannot be trained; paths are relative to this spec.
        """
        for path in self.grid:
            _check_free(path, taken, "tuned")
        count = math.prod(map(len, self.grid.values()))
        if count > MOST_COMBINATIONS:
            rule = f"the grid has {count:,} combinations, and each is trained for every variant"
            raise refusal((), {}, rule, f"Leave values out until there are at most {MOST_COMBINATIONS}.")
        combinations = list(self.combinations())
        errors = [error_of(combination) for combination in combinations]
        for path, values in self.grid.items():
            for index, value in enumerate(values):
                errors_of_value = [e for c, e in zip(combinations, errors, strict=True) if c[path] == value]
                if all(error is not None for error in errors_of_value):
                    assert errors_of_value[0] is not None
                    (_, problem), *_ = describe(errors_of_value[0])
                    rule = f"the baseline is invalid with it: {problem}"
                    # The inner sentence says what was found.
                    raise refusal((path, index), {}, rule, "Give an existing path and valid values.")


TunedValues = Annotated[
    dict[str, dict[str, JsonValue]],
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "object", "minProperties": 1}}),
]
"""Values that were tuned before the study, by spec path and variant."""


def tuned_by_variant(tuned: TunedValues) -> dict[str, dict[str, JsonValue]]:
    """Tuned values by variant and spec path."""
    by_variant: dict[str, dict[str, JsonValue]] = {}
    for path, values in tuned.items():
        for name, value in values.items():
            by_variant.setdefault(name, {})[path] = value
    return by_variant


def tuned_for(by_variant: Mapping[str, Mapping[str, JsonValue]], name: str) -> dict[str, JsonValue]:
    """Tuned values of a point: its own, and those of its variant at all rungs, places of a sweep and tasks."""
    return {**by_variant.get(split_axis(name)[0], {}), **by_variant.get(name, {})}


def check_tuned(
    tuned: TunedValues,
    points: Mapping[str, Point],
    taken: Iterable[tuple[str, str]],
    error_of: Callable[[Mapping[str, JsonValue], Mapping[str, str]], ValidationError | None],
) -> None:
    """Refuse tuned values that do not fit the variants that the design trains.

    Args:
        points: The points of the design, including the tuned values.
        taken: Paths as written, with what else sets them.
        error_of: Returns why settings are invalid with some values; None if they are valid.

    Raises:
        ValidationError: A variant is not trained or not listed, or a value is invalid; paths start at `tuned`.
    """
    full = {full_path(path): who for path, who in taken}
    for path, values in tuned.items():
        _check_free(path, full, "tuned")
        for name, value in values.items():
            named = {at: point for at, point in points.items() if name in (at, split_axis(at)[0])}
            if not named:
                near = difflib.get_close_matches(name, points, n=1)
                remedy = f"Did you mean `{near[0]}`?" if near else "`ablate plan` lists the variants."
                raise refusal((path, name), value, f"the design trains no variant `{name}`", remedy)
            if not all(path in point.tuned for point in named.values()):
                rule = "this design chooses its variants by results, so they cannot be tuned before the study"
                raise refusal((path,), {}, rule, "Use `tune`, which tunes during the study, or another design.")
            for point in named.values():
                alone, with_value = (error_of(assigned, point.settings) for assigned in ({}, {path: value}))
                if with_value is not None and alone is None:
                    (_, problem), *_ = describe(with_value)
                    rule = f"the variant is invalid with it: {problem}"
                    raise refusal((path, name), value, rule, "Give another value.")
        missing = [
            name
            for name, point in points.items()
            if not {name, split_axis(name)[0]} & values.keys() and not error_of({}, point.settings)
        ]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            rule = f"no value was tuned for the variant `{missing[0]}`{more}, so the comparison would be unfair"
            raise refusal((path,), {}, rule, "List a value for every variant that the design trains.")


class MatchSpec(Spec):
    """The quantity that is equal for all variants. A bare word is a quantity."""

    equal: Quantity = "steps"
    """`steps`: all variants train for the steps of the space. `tokens`, `flops` (arithmetic of training), `seconds` (of
    training, measured on the machine of the study): `training.steps` of each variant is chosen to match the total of
    the baseline. `parameters`: the size of each variant's model is adjusted."""
    by: Literal["width", "mlp"] = "width"
    """What is adjusted for equal parameters: `width` (`model.width`, with unchanged heads) or `mlp`
    (`block.mlp.ratio`)."""
    within: float = Field(default=0.01, gt=0, le=0.5)
    """The largest relative deviation from the parameters of the baseline that counts as equal."""

    @model_validator(mode="before")
    @classmethod
    def _only_parameters_are_near(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("equal", "steps") != "parameters":
            for key in ("by", "within"):
                if key in value and value[key] != cls.model_fields[key].default:
                    rule = f"`{key}` applies to equal parameters only"
                    raise refusal((key,), value[key], rule, f"Leave `{key}` out, or set `equal: parameters`.")
        return value

    @property
    def path(self) -> str | None:
        """The spec path that is adjusted; None if there is none."""
        if self.equal == "parameters":
            return "model.width" if self.by == "width" else "model.block.mlp.ratio"
        return None if self.equal == "steps" else "training.steps"

    def check(self, taken: Mapping[str, str]) -> None:
        """Refuse a quantity whose path is also set by something else.

        Args:
            taken: For each full path that is set, what sets it.

        Raises:
            ValidationError: The path is also set; paths are relative to this spec.
        """
        for path, who in taken.items():
            if self.path is not None and overlaps(path, self.path):
                rule = f"equal {self.equal} are reached by adjusting `{self.path}`, which {who} also sets"
                raise refusal(("equal",), self.equal, rule, "Match another quantity, or do not set that path.")


def _check_values(path: str, values: object) -> None:
    if not isinstance(values, (list, tuple)):
        near = difflib.get_close_matches(path, [_SEEDS], n=1)
        remedy = f"Did you mean `{_SEEDS}`?" if near else "List at least two values."
        raise refusal((path,), values, f"`{path}` is tuned over a list of values", remedy)
    if len(values) < 2:
        rule = f"`{path}` is tuned over at least two values, but has {len(values)}"
        raise refusal(
            (path,), list(values), rule, "List more values, or set the value at its path and leave it out here."
        )
    for index, value in enumerate(values):
        if value in values[:index]:
            raise refusal((path, index), value, f"`{value}` is listed twice", "List each value once.")


def _check_free(path: str, taken: Mapping[str, str], what: str) -> None:
    """Refuse a path that something else sets too; below a path that is set as a whole its value is laid over that."""
    for other, who in taken.items():
        if f"{other}.".startswith(f"{full_path(path)}."):
            rule = f"`{path}` is {what}, but {who} also sets it"
            raise refusal((path,), {}, rule, "Leave it out of one of the two.")


def check_fairness(
    tune: TuneSpec | None,
    match: MatchSpec,
    taken: Iterable[tuple[str, str]],
    error_of: ErrorOf,
) -> None:
    """Refuse tuning and matching that is not possible in a space.

    Args:
        taken: Paths as written, with what sets them.
        error_of: Returns why the baseline is invalid with some values; None if it is valid.

    Raises:
        ValidationError: Tuning or matching is refused; paths start at the space.
    """
    full = {full_path(path): who for path, who in taken}
    try:
        match.check(full)
    except ValidationError as error:
        raise below(("match",), error) from None
    if tune is not None:
        solved = {match.path: f"`match: {match.equal}`"} if match.path else {}
        try:
            tune.check(full | solved, error_of)
        except ValidationError as error:
            raise below(("tune",), error) from None

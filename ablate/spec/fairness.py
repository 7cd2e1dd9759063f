"""Fair comparison: values tuned for each variant (`tune`, `tuned`), and the budget that all share (`match`)."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, JsonValue, ValidationError, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ablate.spec.base import Spec, below, refusal
from ablate.spec.design import Point
from ablate.spec.paths import overlaps
from ablate.spec.sentences import describe

Quantity = Literal["steps", "tokens", "seconds", "flops", "parameters"]

ErrorOf = Callable[[Mapping[str, JsonValue]], ValidationError | None]
"""Values of paths to why the baseline makes no model with them; None if it makes one."""

MOST_COMBINATIONS = 100
"""A grid is trained whole for every variant; beyond this it is no small grid."""

_SEEDS = "seeds"


class TuneSpec(Spec):
    """A small grid of values that each variant is tried with, at the same expense, before it is compared.

    Written as paths with lists of values: `{training.optimizer.lr: [5.0e-4, 1.0e-3, 2.0e-3], seeds: 2}`. Every
    combination is trained with seeds that no comparison uses (1000, 1001 ...), and the one with the best mean
    objective is the variant's; one with fewer diverged seeds goes before any mean.
    """

    grid: dict[str, tuple[JsonValue, ...]] = Field(min_length=1)
    """Spec path to the values that it is tried at. The paths may also stand beside `seeds`, without `grid`."""
    seeds: int = Field(default=2, ge=1, le=100)
    """Trials of each variant with each value. They choose and are not compared: the compared seeds stay unbiased."""

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
        body["additionalProperties"] = values  # paths that stand beside `seeds`
        body.pop("required", None)
        return plain

    def combinations(self) -> Iterator[dict[str, JsonValue]]:
        """Every combination of values by path; the last path goes round fastest."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def check(
        self, taken: Mapping[str, str], error_of: Callable[[dict[str, JsonValue]], ValidationError | None]
    ) -> None:
        """Refuse paths that something else sets, that do not exist, and values that the baseline cannot have.

        Args:
            taken: Full path to who sets it.
            error_of: Why the baseline makes no model with these values; None if it makes one.

        Raises:
            ValidationError: The grid cannot be tried; paths start at this spec.
        """
        for path in self.grid:
            _check_free(path, taken, "tuned")
        combinations = list(self.combinations())
        if len(combinations) > MOST_COMBINATIONS:
            rule = f"the grid has {len(combinations):,} combinations, and each is trained for every variant"
            raise refusal((), {}, rule, f"Leave values out until at most {MOST_COMBINATIONS} are left.")
        errors = [error_of(combination) for combination in combinations]
        for path, values in self.grid.items():
            for index, value in enumerate(values):
                found = [e for c, e in zip(combinations, errors, strict=True) if c[path] == value]
                if all(error is not None for error in found):
                    assert found[0] is not None
                    (_, told), *_ = describe(found[0])
                    rule = f"the baseline makes no model with it: {told}"
                    # What was found, the inner sentence says.
                    raise refusal((path, index), {}, rule, "Give a path that exists and values that fit it.")


TunedValues = Annotated[
    dict[str, dict[str, JsonValue]],
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "object", "minProperties": 1}}),
]
"""Spec path to variant and the value that was tuned for it before the study."""


def tuned_by_variant(tuned: TunedValues) -> dict[str, dict[str, JsonValue]]:
    """Variant to spec path and value."""
    turned: dict[str, dict[str, JsonValue]] = {}
    for path, values in tuned.items():
        for name, value in values.items():
            turned.setdefault(name, {})[path] = value
    return turned


def check_tuned(
    tuned: TunedValues,
    points: Mapping[str, Point],
    taken: Iterable[tuple[str, str]],
    error_of: Callable[[Mapping[str, JsonValue], Mapping[str, str]], ValidationError | None],
) -> None:
    """Refuse tuned values that are not those of the variants that the design trains.

    Args:
        tuned: The values.
        points: What the design trains, with the tuned values in them.
        taken: Paths as written, with who else sets them.
        error_of: Why settings make no model with some values; None if they make one.

    Raises:
        ValidationError: A variant is not trained or not listed, or a value does not fit; paths start at `tuned`.
    """
    full = {full_path(path): who for path, who in taken}
    for path, values in tuned.items():
        _check_free(path, full, "tuned")
        for name, value in values.items():
            if name not in points:
                near = difflib.get_close_matches(name, points, n=1)
                remedy = f"Did you mean `{near[0]}`?" if near else "`ablate plan` lists the variants."
                raise refusal((path, name), value, f"the design trains no variant `{name}`", remedy)
            if path not in points[name].tuned:
                rule = "this design chooses its variants by their results, so nothing can be tuned for them before"
                raise refusal((path,), {}, rule, "Use `tune`, which tunes during the study, or another design.")
            alone, with_value = (error_of(found, points[name].settings) for found in ({}, {path: value}))
            if with_value is not None and alone is None:
                (_, told), *_ = describe(with_value)
                raise refusal((path, name), value, f"the variant makes no model with it: {told}", "Give another value.")
        missing = [name for name, point in points.items() if name not in values and not error_of({}, point.settings)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            rule = f"no value was tuned for the variant `{missing[0]}`{more}, so that the comparison would be unfair"
            raise refusal((path,), {}, rule, "List a value for every variant that the design trains.")


class MatchSpec(Spec):
    """What all variants have as much of as the baseline. A bare word is a quantity."""

    equal: Quantity = "steps"
    """`steps`: each trains as many as the space says. `tokens`, `flops` (arithmetic of training), `seconds` (of
    training, measured on the machine of the study): each variant's `training.steps` are solved for the baseline's sum.
    `parameters`: each variant's model is widened or narrowed."""
    by: Literal["width", "mlp"] = "width"
    """What is solved for equal parameters: `width` (`model.width`, heads left alone) or `mlp` (`block.mlp.ratio`)."""
    within: float = Field(default=0.01, gt=0, le=0.5)
    """How far off the baseline's parameters still counts as equal, as a share of them."""

    @model_validator(mode="before")
    @classmethod
    def _only_parameters_are_near(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("equal", "steps") != "parameters":
            for key in ("by", "within"):
                if key in value and value[key] != cls.model_fields[key].default:
                    rule = f"`{key}` is of equal parameters; whole steps come as near as they can"
                    raise refusal((key,), value[key], rule, f"Leave `{key}` out, or set `equal: parameters`.")
        return value

    @property
    def path(self) -> str | None:
        """The spec path that is solved; None where nothing is."""
        if self.equal == "parameters":
            return "model.width" if self.by == "width" else "model.block.mlp.ratio"
        return None if self.equal == "steps" else "training.steps"

    def check(self, taken: Mapping[str, str]) -> None:
        """Refuse a quantity whose path something else sets.

        Args:
            taken: Full path to who sets it.

        Raises:
            ValidationError: One does; paths start at this spec.
        """
        for path, who in taken.items():
            if self.path is not None and overlaps(path, self.path):
                rule = f"equal {self.equal} are reached by solving `{self.path}`, which {who} sets too"
                raise refusal(("equal",), self.equal, rule, "Match another quantity, or leave that path alone.")


def _check_values(path: str, values: object) -> None:
    if not isinstance(values, (list, tuple)):
        near = difflib.get_close_matches(path, [_SEEDS], n=1)
        remedy = f"Did you mean `{_SEEDS}`?" if near else "List at least two values."
        raise refusal((path,), values, f"`{path}` is tuned over a list of values", remedy)
    if len(values) < 2:
        rule = f"`{path}` is tuned over at least two values, and here {'is' if values else 'are'} {len(values)}"
        raise refusal((path,), list(values), rule, "List more, or set the value where it stands and leave it out here.")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise refusal((path, index), value, f"`{value}` is there twice", "List each value once.")


def _check_free(path: str, taken: Mapping[str, str], what: str) -> None:
    for other, who in taken.items():
        if overlaps(full_path(path), other):
            rule = f"`{path}` is {what}, and {who} sets it too: only one of them can have its way"
            raise refusal((path,), {}, rule, "Leave it out of one of the two.")


def full_path(path: str) -> str:
    """A spec path as written in a space, from its root: `block` is short for `model.block`."""
    return f"model.{path}" if path == "block" or path.startswith("block.") else path


def check_fairness(
    tune: TuneSpec | None,
    match: MatchSpec,
    taken: Iterable[tuple[str, str]],
    error_of: ErrorOf,
) -> None:
    """Refuse what cannot be tuned or matched in a space.

    Args:
        tune: What is tuned.
        match: What is equal.
        taken: Paths as written, with who sets them.
        error_of: Why the baseline makes no model with these values; None if it makes one.

    Raises:
        ValidationError: Something cannot be; paths start at the space.
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

"""Designs that use no results: every valid combination of settings (`grid`), variants at the values of a numeric path
(`sweep`), one changed switch (`leave_one_out`, `add_one_in`).
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ablate.designs.base import (
    BASELINE,
    Design,
    DesignContext,
    DesignSpec,
    Point,
    named_points,
    over_seeds,
    setting_name,
    settings_key,
)
from ablate.errors import SpaceError
from ablate.spec.annotations import Number
from ablate.spec.base import refusal


def combinations(context: DesignContext) -> list[Point]:
    """All combinations of settings, valid or not; the baseline first, the last switch varying fastest."""
    baseline = context.baseline
    corners = (dict(zip(baseline, chosen, strict=True)) for chosen in itertools.product(*context.switches.values()))
    return [Point(setting_name(settings, baseline), settings) for settings in corners]


class GridSpec(DesignSpec):
    """All valid combinations of the switches; invalid ones are left out and counted."""

    adds_seeds = True
    kind: Literal["grid"] = "grid"
    most: int = Field(default=10_000, ge=1, le=100_000)
    """Maximum number of combinations; larger grids are refused."""

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: There are more combinations than `most`.
        """
        count = math.prod(len(settings) for settings in context.switches.values())
        if count > self.most:
            raise SpaceError(
                f"the grid has {count:,} combinations",
                where=context.where("most"),
                expected=f"at most {self.most:,}",
                remedy="Choose `kind: fractional` or `kind: search`, leave switches out, or raise `most`.",
            )
        return over_seeds(combinations(context), self, context)


class SweepSpec(DesignSpec):
    """Every variant at every value of a spec path. Points are named `variant@path=value`."""

    adds_seeds = True
    example: ClassVar[Mapping[str, Any]] = {"path": "model.heads", "values": [1, 2, 4]}
    kind: Literal["sweep"] = "sweep"
    path: str
    """Spec path to sweep, for example `model.heads`. As in switches, `block` is short for `model.block`."""
    values: tuple[Number, ...]
    """Values of the path, in the order of training."""
    variants: tuple[str, ...] = ()
    """Variants to sweep: `baseline` and named variants; default: all of them."""

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        if not self.values:
            raise refusal(("values",), [], "a sweep needs values", f"List the values of `{self.path}`.")
        repeated = sorted({value for value in self.values if self.values.count(value) > 1})
        if repeated:
            raise refusal(("values",), list(self.values), f"{repeated[0]} is listed twice", "List each value once.")
        return self

    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: A variant is not in the space, or no variant makes a model at any value.
        """
        known = {point.name: point for point in named_points(context)}
        for name in self.variants:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise SpaceError(
                    "there is no such variant",
                    where=context.where("variants"),
                    got=repr(name),
                    remedy=f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(known)}.",
                )
        names = self.variants or tuple(known)
        points = {
            value: {
                name: Point(f"{name}@{self.path}={value}", known[name].settings, {self.path: value}) for name in names
            }
            for value in self.values
        }
        reasons = [context.refusal(point) for at in points.values() for point in at.values()]
        if all(reason is not None for reason in reasons):
            raise SpaceError(
                f"no variant makes a model at any value of `{self.path}`; the first reason: {reasons[0]}",
                where=context.where("path"),
                remedy="Give an existing path and valid values.",
            )
        compared = [
            [at[BASELINE], *(point for name, point in at.items() if name != BASELINE)]
            for at in points.values()
            if len(at) > 1 and BASELINE in at and context.refusal(at[BASELINE]) is None
        ]
        return over_seeds([point for at in points.values() for point in at.values()], self, context, compared)


class LeaveOneOutSpec(DesignSpec):
    """The baseline, every variant that differs from it in one setting, and the named variants."""

    adds_seeds = True
    kind: Literal["leave_one_out"] = "leave_one_out"

    def build(self, context: DesignContext) -> Design:
        baseline, *variants = named_points(context)
        points = [baseline]
        for switch, settings in context.switches.items():
            for setting in settings[1:]:
                changed = {**baseline.settings, switch: setting}
                points.append(Point(setting_name(changed, baseline.settings), changed))
        return over_seeds([*points, *variants], self, context)


PLAINEST = "plainest"


class AddOneInSpec(DesignSpec):
    """The plainest variant, all variants that differ from it in one setting, the baseline, and the named variants.

    They are compared with the plainest variant: a verdict says what adding a part to it gains.
    """

    adds_seeds = True
    kind: Literal["add_one_in"] = "add_one_in"
    plainest: str | None = None
    """Named variant to start from; default: every switch at its last setting."""

    @property
    def reference(self) -> str:
        return self.plainest or PLAINEST

    def build(self, context: DesignContext) -> Design:
        """As `DesignSpec.build`.

        Raises:
            SpaceError: The plainest variant is not named in the space, is the baseline, or is invalid.
        """
        baseline, *variants = named_points(context)
        plainest = self._plainest(context, variants)
        points = [plainest, baseline]
        for switch, settings in context.switches.items():
            for setting in settings:
                name, changed = f"{plainest.name},{switch}={setting}", {**plainest.settings, switch: setting}
                points.append(Point(name, changed))
        first_named = {settings_key(point): point for point in reversed(points)}  # keeps the first name of equal points
        kept = [point for point in points if first_named[settings_key(point)] is point]
        names = {point.name for point in kept}
        kept += [variant for variant in variants if variant.name not in names]
        return over_seeds(kept, self, context)

    def _plainest(self, context: DesignContext, variants: list[Point]) -> Point:
        if self.plainest is None:
            plainest = Point(PLAINEST, {switch: settings[-1] for switch, settings in context.switches.items()})
        else:
            named = {variant.name: variant for variant in variants}
            if self.plainest not in named:
                raise SpaceError(
                    "there is no such variant",
                    where=context.where("plainest"),
                    expected=f"one of {', '.join(named)}" if named else "a named variant",
                    got=repr(self.plainest),
                    remedy="Name it under `variants:`, or leave `plainest` out.",
                )
            plainest = named[self.plainest]
        if plainest.settings == context.baseline:
            raise SpaceError(
                "the plainest variant is the baseline, so there is nothing to add",
                where=context.where("plainest"),
                got=plainest.name,
                remedy="Choose a variant with removed parts.",
            )
        reason = context.refusal(plainest)
        if reason is not None:
            raise SpaceError(
                f"the plainest variant is invalid: {reason}",
                where=context.where("plainest"),
                remedy="Name a variant that removes as much as possible, and give its name as `plainest`.",
            )
        return plainest

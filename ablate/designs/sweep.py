"""Sweep: a set of variants at several values of a numeric path."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from ablate.designs.base import BASELINE, Design, DesignContext, DesignSpec, Point, named_points, over_seeds
from ablate.errors import SpaceError
from ablate.spec.annotations import Number
from ablate.spec.base import refusal


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

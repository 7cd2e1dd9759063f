"""Sweep: one numeric axis for a set of variants."""

from __future__ import annotations

import difflib
from typing import Literal, Self

from pydantic import model_validator

from ablate.designs.base import Design, DesignContext, DesignSpec, Point, named_points
from ablate.designs.seeding import over_seeds
from ablate.errors import SpaceError
from ablate.spec.annotations import Number
from ablate.spec.base import refusal


class SweepSpec(DesignSpec):
    """Every variant at every value of a spec path; points are called `variant@path=value`."""

    kind: Literal["sweep"] = "sweep"
    path: str
    """Spec path that is swept, for example `model.heads`; as in switches, `block` is short for `model.block`."""
    values: tuple[Number, ...]
    """What the path is set to, in the order of training."""
    variants: tuple[str, ...] = ()
    """Variants to sweep: `baseline` and names of the space; if left out, all of them."""

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        if not self.values:
            raise refusal(("values",), [], "a sweep has values", f"List the values that `{self.path}` shall take.")
        twice = sorted({value for value in self.values if self.values.count(value) > 1})
        if twice:
            raise refusal(("values",), list(self.values), f"{twice[0]} is there twice", "List each value once.")
        return self

    def paths(self) -> tuple[str, ...]:
        return (self.path,)

    def build(self, context: DesignContext) -> Design:
        """See `DesignSpec.build`.

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
        points = [
            Point(f"{name}@{self.path}={value}", known[name].settings, {self.path: value})
            for value in self.values
            for name in self.variants or known
        ]
        reasons = [context.refusal(point) for point in points]
        if all(reason is not None for reason in reasons):
            raise SpaceError(
                f"no variant makes a model at any value of `{self.path}`; the first reason: {reasons[0]}",
                where=context.where("path"),
                remedy="Give a path that exists and values that fit it.",
            )
        return over_seeds(points, self.seeds, context)

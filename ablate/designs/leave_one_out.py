"""Designs of one changed switch: leave one out of the baseline, or add one in to the plainest variant."""

from __future__ import annotations

from typing import Literal

from ablate.designs.base import (
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

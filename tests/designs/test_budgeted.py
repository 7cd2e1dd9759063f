"""Budgets around a design: every point and seed at every length; the inner design sees only its own results."""

from __future__ import annotations

from typing import Any

import pytest
from design_contexts import a_context, drive

from ablate.designs.base import Design, Point
from ablate.designs.wrappers import BudgetedDesign
from ablate.spec.design import DesignSpec

SWITCHES = {"a": ("on", "off"), "b": ("on", "off")}


def built(spec: dict[str, Any]) -> Design:
    return DesignSpec.parse(spec).build(a_context(SWITCHES))


def loss(point: Point, seed: int) -> float:
    return {"baseline": 1.0, "a=off": 1.05}.get(point.name.partition("@")[0], 1.1) + 0.001 * (seed % 3)


@pytest.mark.parametrize("seeds", [3, {"start": 2, "max": 4}])
def test_every_trial_is_trained_at_every_length(seeds: Any) -> None:
    spec = {"kind": "leave_one_out", "seeds": seeds}
    alone = {(one.point.name, one.seed) for one in drive(built(spec), loss)}
    asked = drive(BudgetedDesign(built(spec), (0.5, 1, 4), 10), loss)
    found = {(one.point.name, one.point.values.get("training.steps"), one.seed) for one in asked}
    expected = {(f"{name}{end}", steps, seed) for name, seed in alone
                for end, steps in (("", None), ("@budget=0.5", 5), ("@budget=4", 40))}  # fmt: skip
    assert found == expected
    assert len(asked) == len(found)


def test_points_come_with_their_lengths_and_results_there_are_not_told() -> None:
    told: list[str] = []

    class Listening(BudgetedDesign):
        def tell(self, point: Point, seed: int, value: float | None) -> None:
            before = len(told)
            super().tell(point, seed, value)
            assert len(told) == before + ("@" not in point.name)

    inner = built({"kind": "leave_one_out", "seeds": 2})
    tell = inner.tell
    inner.tell = lambda point, seed, value: (told.append(point.name), tell(point, seed, value))[1]  # type: ignore[method-assign]
    design = Listening(inner, (1, 2), 10)
    names = [point.name for point in design.points()]
    assert names == ["baseline", "a=off", "b=off", "baseline@budget=2", "a=off@budget=2", "b=off@budget=2"]
    drive(design, loss)
    assert set(told) == {"baseline", "a=off", "b=off"}
    assert "20 steps" in design.warnings()[-1]

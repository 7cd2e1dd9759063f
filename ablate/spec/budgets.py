"""`budgets`: lengths at which every variant of a space is trained, in units of the space's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from ablate.spec.annotations import Number
from ablate.spec.base import refusal
from ablate.spec.paths import overlaps

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
        budgets: Of the space.
        steps: Optimizer steps of the space.
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

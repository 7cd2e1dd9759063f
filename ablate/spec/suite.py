"""Several tasks in one space: every variant is trained on each of them, and its scores are averaged.

A task of a suite is a setting that is applied before the switches. So a trial is that of a space with this one task,
has its key, and is shared with it. The names of points end with their task: `mixer=linear@task=recall`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic_core import PydanticCustomError

from ablate.metrics import split_length
from ablate.spec.base import Margin, Spec, below, refusal
from ablate.spec.design import Point
from ablate.spec.fairness import TunedValues, tuned_by_variant, tuned_for

TASK = "task"
SCORE = "score"
"""The metric of the aggregate."""


def at_task(name: str, task: str) -> str:
    """The name of a variant on a task of a suite; that of the variant for an empty task, as of `split_task`."""
    return f"{name}@{TASK}={task}" if task else name


def on_data(rule: str, task: str) -> str:
    """The name of a trivial baseline on one of the tasks that the variants of a study differ in.

    Args:
        task: Its content hash (`task_hash`); empty for the part of the name that all of them have.
    """
    return f"{rule}@data={task}"


def split_task(name: str) -> tuple[str, str]:
    """A name as the variant and the task; the task is empty for a name without one."""
    variant, _, task = name.partition(f"@{TASK}=")
    return variant, task


class AggregateSpec(Spec):
    """What a suite is judged by: the mean of the scores of its tasks, each with equal weight.

    The score of a task is (metric - trivial) / (perfect - trivial): 0 at its best trivial baseline, 1 at the best value
    that the metric can have. Below the trivial baseline it is negative.
    """

    margin: Margin
    """The smallest difference of the mean score that matters."""
    perfect: float | None = None
    """The best value of the objective's metric. Default: 1 where its name ends with `accuracy`; needed elsewhere."""
    trivial: dict[str, Annotated[float, Field()]] = Field(default_factory=dict)
    """Task to the metric without learning; default: its best trivial baseline, as `ablate data` shows it."""

    def perfect_value(self, metric: str) -> float | None:
        """The best value of a metric; None if it is not known."""
        return 1.0 if self.perfect is None and is_accuracy(metric) else self.perfect


def is_accuracy(metric: str) -> bool:
    """Whether a metric lies between 0 and 1, as a task declares by its name (`TaskSpec.metric_names`)."""
    return split_length(metric)[0].endswith("accuracy")


def written_out(value: Any) -> Any:
    """A task of a suite as values of spec paths, `task` among them; a task alone is short for `{task: TASK}`."""
    if isinstance(value, str) or (isinstance(value, Mapping) and "kind" in value):
        return {TASK: value}
    if not isinstance(value, Mapping) or TASK not in value:
        remedy = (
            "Write `{kind: recall}`; or paths of which one is `task`: `{task: {kind: recall}, training.steps: 500}`."
        )
        raise PydanticCustomError("no_task", "a task is a mapping with `kind`", {"remedy": remedy})
    return value


def with_first_task(space: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a space in which `task` is the first one of its `tasks`, if it has any.

    Raises:
        ValidationError: It has `task` too; or `tasks` is not a mapping.
    """
    plain = dict(space)
    tasks = plain.get("tasks")
    if not tasks:
        return plain
    if plain.get(TASK) is not None:
        rule = "a space has either `task` or `tasks`"
        raise refusal(("tasks",), {}, rule, "Leave one of the two out; `task: null` removes that of an extended space.")
    if not isinstance(tasks, Mapping):
        remedy = "Write `tasks: {recall: {kind: recall}, copy: {kind: copy}}`, for example."
        raise refusal(("tasks",), tasks, "`tasks` is a mapping of names to tasks", remedy)
    try:
        plain[TASK] = written_out(next(iter(tasks.values())))[TASK]
    except PydanticCustomError as error:
        raise refusal(("tasks", str(next(iter(tasks)))), {}, str(error), (error.context or {})["remedy"]) from None
    return plain


def in_first_task(error: ValidationError, space: Mapping[str, Any]) -> ValidationError:
    """An error of `task`, which `with_first_task` has set, with the place where the space has it."""
    lines = error.errors()
    if not space.get("tasks") or any(line["loc"][:1] != (TASK,) for line in lines):
        return error
    return below(("tasks", str(next(iter(space["tasks"])))), error)


def points_on_tasks(points: Iterable[Point], tasks: Iterable[str], tuned: TunedValues) -> dict[str, Point]:
    """The points of a design on each task, point by point, by name.

    Args:
        tuned: Values that were tuned before the study, by path and variant, or variant on a task.
    """
    of = tuned_by_variant(tuned)
    tasks = tuple(tasks)
    return {
        name: replace(point, name=name, settings={**point.settings, TASK: task}, tuned=tuned_for(of, name))
        for point in points
        for task in tasks
        for name in (at_task(point.name, task),)
    }

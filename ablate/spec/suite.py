"""Several tasks in one space: every variant is trained on each of them, and its scores are averaged.

A task of a suite is a setting that is applied before the switches. So a trial is that of a space with this one task,
has its key, and is shared with it. The names of points end with their task: `mixer=linear@task=recall`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, JsonValue, ValidationError
from pydantic_core import PydanticCustomError

from ablate.spec.base import Margin, Spec, below, refusal
from ablate.spec.design import Point
from ablate.spec.fairness import TunedValues, tuned_by_variant
from ablate.spec.paths import full_path, overlaps
from ablate.spec.sentences import Loc, describe

if TYPE_CHECKING:
    from ablate.spec.space_fields import SpaceFields

TASK = "task"
SCORE = "score"
"""The metric of the aggregate."""


def at_task(name: str, task: str) -> str:
    """The name of a variant on a task of a suite."""
    return f"{name}@{TASK}={task}"


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
        return 1.0 if self.perfect is None and metric.endswith("accuracy") else self.perfect


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
    lines = error.errors(include_url=False)
    if not space.get("tasks") or any(line["loc"][:1] != (TASK,) for line in lines):
        return error
    return below(("tasks", str(next(iter(space["tasks"])))), error)


def tuned_on_tasks(
    tuned: Mapping[str, Mapping[str, JsonValue]], tasks: Iterable[str]
) -> dict[str, dict[str, JsonValue]]:
    """Tuned values by path and point: those of a variant alone count on all tasks for which it has no own."""
    found: dict[str, dict[str, JsonValue]] = {}
    for path, values in tuned.items():
        named = {name: value for name, value in values.items() if split_task(name)[1]}
        of_all = {at_task(name, task): value for name, value in values.items() if name not in named for task in tasks}
        found[path] = {**of_all, **named}
    return found


def points_on_tasks(points: Iterable[Point], tasks: Iterable[str], tuned: TunedValues) -> dict[str, Point]:
    """The points of a design on each task, point by point, by name.

    Args:
        points: Of the design.
        tasks: Names of the tasks.
        tuned: Of `tuned_on_tasks`.
    """
    of = tuned_by_variant(tuned)
    tasks = tuple(tasks)
    return {
        name: replace(point, name=name, settings={**point.settings, TASK: task}, tuned=of.get(name, {}))
        for point in points
        for task in tasks
        for name in (at_task(point.name, task),)
    }


def check_suite(space: SpaceFields) -> None:
    """Refuse a suite that cannot be trained or averaged.

    Raises:
        ValidationError: With the path inside the space, the rule and a remedy.
    """
    if not space.tasks:
        if space.aggregate is not None:
            raise refusal(("aggregate",), {}, "an aggregate is a mean over `tasks`", "Write `tasks`, or leave it out.")
        return
    if len(space.tasks) < 2:
        raise refusal(("tasks",), {}, "a suite has at least two tasks", "Add one, or write `task` instead of `tasks`.")
    if space.aggregate is None:
        rule = "a suite declares the smallest difference of its mean score that matters"
        raise refusal(("tasks",), {}, rule, "Add `aggregate: {margin: 0.05}`, for example.")
    _check_unsupported(space)
    for task, setting in space.tasks.items():
        if (error := space.composer.error_with({}, {TASK: task})) is not None:
            raise _at_task(space, {}, task, error)
        _check_free(space, task, setting)
    for task, spec in space.task_specs.items():
        if space.objective.metric not in spec.metric_names | spec.final_metric_names:
            known = ", ".join(sorted(space.metric_names)) or "none"
            rule = f"the task `{task}` ({spec.kind_name()}) has no metric `{space.objective.metric}`"
            raise refusal(("objective", "metric"), {}, rule, f"Name a metric that all tasks have: {known}.")
    for name in space.aggregate.trivial:
        if name not in space.tasks:
            raise refusal(
                ("aggregate", "trivial", name), {}, f"there is no task `{name}`", f"Name {', '.join(space.tasks)}."
            )
    if space.aggregate.perfect_value(space.objective.metric) is None:
        rule = f"the best value of `{space.objective.metric}` is not known"
        raise refusal(("aggregate",), {}, rule, "Add `perfect`, such as `perfect: 0.0`.")


def check_on_tasks(space: SpaceFields, points: Mapping[str, Point]) -> None:
    """Refuse a variant that cannot be trained on one of the tasks, as its mean would be over fewer tasks.

    Raises:
        ValidationError: With the path inside the space, the rule and a remedy.
    """
    composer = space.composer
    for task in space.tasks:
        for point in points.values():
            valid = composer.error_with(point.values, point.settings) is None
            settings = {**point.settings, TASK: task}
            if valid and (error := composer.error_with(point.values, settings)) is not None:
                raise _at_task(space, settings, task, error)


def _check_unsupported(space: SpaceFields) -> None:
    """Refuse what follows one objective or one baseline, of which a suite has several."""
    design = space.design
    refused = {
        ("design", "kind"): (
            design.chooses or not design.plans_points or bool(design.paths()),
            f"a {design.kind_name()} design follows one objective, or sets paths of its own",
            "Choose a design that names its variants before results, such as leave_one_out or grid.",
        ),
        ("design", "seeds"): (
            not isinstance(design.seeds, int),
            "a schedule adds seeds by the verdicts of one task",
            "Write a number of seeds.",
        ),
        ("tune",): (
            space.tune is not None,
            "`tune` chooses by the objective of one task",
            "Tune on each task in a study of its own, and write the values under `tuned`.",
        ),
        ("match",): (
            space.match.equal != "steps",
            f"equal {space.match.equal} are those of one baseline",
            "Leave `match` out.",
        ),
        ("budgets",): (bool(space.budgets), "budgets are lengths of one task", "Leave `budgets` out."),
        ("timing",): (space.timing, "variants are timed on one task", "Leave `timing` out."),
        ("switches", TASK): (
            TASK in space.switches,
            f"`{TASK}` is the name of the tasks themselves",
            "Rename the switch.",
        ),
    }
    for place, (found, rule, remedy) in refused.items():
        if found:
            raise refusal(place, {}, f"{rule}, and this space has several tasks", remedy)
    for path, who in space.taken():
        if overlaps(full_path(path), TASK):
            raise refusal(
                ("tasks",), {}, f"{who} sets `{path}`, and tasks differ in it", "Write it in each task that has it."
            )


def _check_free(space: SpaceFields, task: str, setting: Mapping[str, JsonValue]) -> None:
    """Refuse a path of a task that a switch or a tuned value sets too: it would have no effect there."""
    taken = {full_path(path): who for path, who in space.taken()}
    taken |= {full_path(path): "`tuned`" for path in space.tuned}
    for path in setting:
        for other, who in taken.items():
            if overlaps(full_path(path), other):
                rule = f"`{path}` of a task is replaced, because {who} sets `{other}` after it"
                raise refusal(("tasks", task, path), {}, rule, "Leave it out of one of the two.")


def _at_task(space: SpaceFields, settings: Mapping[str, str], task: str, error: ValidationError) -> ValidationError:
    changed = [f"{name}={value}" for name, value in settings.items() if name != TASK]
    baseline = space.composer.baseline_settings
    changed = [one for one in changed if one.partition("=")[2] != baseline[one.partition("=")[0]]]
    (path, problem), *_ = describe(error)
    who = f"`{', '.join(changed)}`" if changed else "the baseline"
    rule = f"{who} cannot be trained on it: `{'.'.join(map(str, path))}`: {problem}"
    loc: Loc = ("tasks", task)
    return refusal(loc, {}, rule.rstrip("."), "Set what the task needs beside it: `{task: {...}, model.head: {...}}`.")

"""The rules of a space: its texts, switches, objective, budgets and claims fit together. `SpaceSpec` applies them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from ablate.metrics import COSTS, CURVE_METRIC, Metric, no_metric
from ablate.spec.base import below, refusal
from ablate.spec.claims import check_claims
from ablate.spec.composer import check_settings, unknown_name
from ablate.spec.design import BASELINE, Point
from ablate.spec.fairness import BUDGET, at_budget, check_budgets, check_fairness, check_tuned
from ablate.spec.paths import WORDS, Place, full_path, name_of, overlaps
from ablate.spec.sentences import Loc, describe, sentence, where
from ablate.spec.space_fields import SpaceFields
from ablate.spec.suite import SCORE, TASK, points_on_tasks


def check_texts(plain: Mapping[str, Any], texts: Mapping[Place, Mapping[str, Any]]) -> None:
    """Refuse invalid texts, two texts in one place, texts of baseline settings, and reserved names.

    Args:
        plain: The data of a space without its texts.
        texts: The texts by the path of their mapping.

    Raises:
        ValidationError: A text is refused; paths start at the space.
    """
    for place, held in texts.items():
        (word, text), *others = held.items()
        if others:
            rule = "there can be one text, either `removes` or `replaces`"
            remedy = f"Leave one of them out; `{word}: null` removes the text of an extended space."
            raise refusal((*place, word), text, rule, remedy)
        if not isinstance(text, str) or not text.strip():
            rule = f"`{word}` is a text that says what is {word.removesuffix('s')}d"
            raise refusal((*place, word), text, rule, f"Write `{word}: the skip around attention`, for example.")
    for kind, home in (("switches", "switch"), ("variants", "named variant")):
        holders = plain.get(kind)
        for name, holder in holders.items() if isinstance(holders, Mapping) else ():
            if name in WORDS:
                raise refusal(
                    (kind, name),
                    holder,
                    f"`{name}` is the key of a text and cannot be the name of a {home}",
                    "Rename it.",
                )
            if not isinstance(holder, Mapping) or not holder:
                continue
            first = name_of(next(iter(holder)))
            if kind == "switches" and (baseline := (kind, name_of(name), first)) in texts:
                (word, text), *_ = texts[baseline].items()
                rule = f"`{first}` is the baseline's setting, to which the texts of the others refer"
                raise refusal((*baseline, word), text, rule, "Leave the text out, or move it to another setting.")
            _check_words(plain, kind, name, holder)


def _check_words(plain: Mapping[str, Any], kind: str, name: str, holder: Mapping[Any, Any]) -> None:
    """Refuse misspelt keys of texts, which pydantic would report as invalid settings."""
    known = plain.get("switches") if kind == "variants" else ()
    for key, value in holder.items():
        is_text = isinstance(value, str) and key not in (known or ())
        if is_text and (near := difflib.get_close_matches(str(key), WORDS, n=1, cutoff=0.75)):
            raise refusal((kind, name, str(key)), value, f"there is no key `{key}` here", f"Did you mean `{near[0]}`?")


def check_space(space: SpaceFields) -> None:
    """Refuse a space whose parts do not fit together.

    Raises:
        ValidationError: With the path inside the space, the rule and a remedy.
    """
    for name, settings in space.variants.items():
        _check_variant(space, name, settings)
    _check_baseline(space)
    _check_suite(space)
    _check_target(space)
    if (metric := Metric.of(space.objective.metric)).split == "test":
        raise refusal(
            ("objective", "metric"),
            space.objective.metric,
            "a test metric cannot be an objective, because variants chosen by it would no longer be tested",
            f"Name `{metric.on('val')}`; the test is shown next to it.",
        )
    if space.objective.metric not in space.metric_names:
        known = dict.fromkeys(sorted(space.metric_names))
        rule = no_metric(space.objective.metric, f"the task {space.task.kind_name()}")
        raise unknown_name(("objective", "metric"), rule, space.objective.metric, known)
    for place, column in enumerate(space.columns):
        if column not in (shown := {*space.metric_names, *COSTS}):
            raise unknown_name(("columns", place), no_metric(column), column, dict.fromkeys(sorted(shown)))
    for switch, setting in space.single_settings():
        _check_setting(space, switch, setting)
    if space.timing == "inference" and space.model.family != "decoder":
        rule = f"text is read and written by decoders, and this model is of family {space.model.family}"
        raise refusal(("timing",), space.timing, rule, "Write `timing: true`.")
    _check_seeds(space)
    if space.design.equalises and space.match.path is not None:
        rule = f"a {space.design.kind_name()} gives the variants of a rung equal FLOPs itself, and its models must grow"
        raise refusal(("match",), space.match.equal, rule, "Leave `match` out.")
    check_fairness(space.tune, space.match, space.taken(), space.composer.error_with)
    _check_budgets(space)
    if space.tasks:
        _check_on_tasks(space, space.points())
    if space.tuned or space.claims:
        _check_trained(space, space.points())


def _check_variant(space: SpaceFields, name: str, settings: Mapping[str, str]) -> None:
    if name == BASELINE:
        raise refusal(
            ("variants", name), name, f"`{BASELINE}` is the variant with all first settings", "Choose another name."
        )
    check_settings(space.switches, ("variants", name), settings)


def _check_baseline(space: SpaceFields) -> None:
    """Refuse a baseline that is invalid, with the first switch that causes it."""
    if space.composer.error_with({}) is None:
        return
    space.composer.lay_over_baseline({})
    applied: dict[str, str] = {}
    for switch, setting in space.baseline_settings.items():
        applied[switch] = setting
        try:
            space.composer.lay_over_baseline(applied)
        except ValidationError as error:
            lines = error.errors()
            raise _at_switches(space, applied, lines, (switch, setting)) from None


def _check_setting(space: SpaceFields, switch: str, setting: str) -> None:
    """Refuse paths that exist in no spec. A setting that is invalid alone may be valid together with others."""
    try:
        space.composer.compose({switch: setting})
    except ValidationError as error:
        lines = [line for line in error.errors() if line["type"] != "impossible"]
        if lines:
            settings = {**space.baseline_settings, switch: setting}
            raise _at_switches(space, settings, lines, (switch, setting)) from None


def _at_switches(
    space: SpaceFields, settings: Mapping[str, str], lines: Iterable[ErrorDetails], changed: tuple[str, str]
) -> ValidationError:
    """Attribute errors of a variant to the settings that set the paths, or else to the changed setting."""
    details: list[InitErrorDetails] = []
    for line in lines:
        path, problem = ".".join(str(part) for part in where(line)), sentence(line)
        switch, setting, written = space.composer.setter_of(settings, path) or (*changed, "")
        home = ("tasks",) if space.tasks and switch == TASK else ("switches", switch)
        loc: Loc = (*home, setting, *([written] if written else ()))
        if written and f"{path}.".startswith(f"{full_path(written)}."):
            loc += where(line)[len(full_path(written).split(".")) :]
        else:
            problem = f"`{path}`: {problem}"
        details.append(
            InitErrorDetails(
                type=PydanticCustomError("invalid_setting", "{text}", {"text": problem}), loc=loc, input={}
            )
        )
    return ValidationError.from_exception_data("spec", details)


def _check_seeds(space: SpaceFields) -> None:
    """Refuse several seeds where they would give the same number."""
    start = space.training.init_from
    if space.training.steps == 0 and start is not None and start.stage is None and space.design.seeds != 1:
        raise refusal(
            ("design", "seeds"),
            space.design.model_dump(mode="json")["seeds"],
            "without training, one model gives the same number at every seed; verdicts pair its validation windows",
            "Set `seeds: 1`, or `training.steps`.",
        )


def _check_budgets(space: SpaceFields) -> None:
    """Refuse budgets that multiply a path that something else sets, or that the design cannot train."""
    taken = {full_path(path): who for path, who in space.taken()}
    if space.match.path is not None:
        taken[space.match.path] = f"`match: {space.match.equal}`"
    taken |= {full_path(path): "`tune`" for path in (space.tune.grid if space.tune is not None else ())}
    planned = space.design.plans_points and not space.design.paths()
    try:
        check_budgets(space.budgets, space.training.steps, plans_points=planned, taken=taken)
    except ValidationError as error:
        raise below(("budgets",), error) from None


def _check_trained(space: SpaceFields, points: Mapping[str, Point]) -> None:
    """Refuse tuned values and claims that do not fit what the design trains."""

    def refused(name: str) -> str | None:
        point = points[name.partition(f"@{BUDGET}=")[0]]
        error = space.composer.error_with({**point.values, **point.tuned}, point.settings)
        return None if error is None else space.composer.reason(point.settings, error)

    taken = [*space.taken(), *((path, "`tune`") for path in (space.tune.grid if space.tune is not None else ()))]
    if space.match.path is not None:
        taken.append((space.match.path, f"`match: {space.match.equal}`"))
    try:
        trained = points_on_tasks(points.values(), space.tasks, space.tuned) if space.tasks else points
        check_tuned(space.tuned, trained, taken, space.composer.error_with)
    except ValidationError as error:
        raise below(("tuned",), error) from None
    settings = {
        at_budget(name, budget): point.settings for name, point in points.items() for budget in space.budgets or (1,)
    }
    try:
        check_claims(
            space.claims,
            settings,
            _metrics_by_task(space),
            refused,
        )
    except ValidationError as error:
        raise below(("claims",), error) from None


def _metrics_by_task(space: SpaceFields) -> dict[str, tuple[str, frozenset[str]]]:
    """What claims may be about: a task, or an empty name for all tasks together, to its objective and its metrics."""
    if not space.tasks:
        return {"": (space.objective.compared, space.metric_names | {space.objective.compared})}
    of_tasks = {name: (space.objective.metric, names) for name, names in space.metric_names_of_tasks.items()}
    return {"": (SCORE, frozenset({SCORE})), **of_tasks}


def _check_suite(space: SpaceFields) -> None:
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
    for task, names in space.metric_names_of_tasks.items():
        if space.objective.metric not in names:
            known = ", ".join(sorted(space.metric_names)) or "none"
            kind = space.task_specs[task].kind_name()
            rule = f"the task `{task}` ({kind}) has no metric `{space.objective.metric}`"
            raise refusal(("objective", "metric"), {}, rule, f"Name a metric that all tasks have: {known}.")
    for name in space.aggregate.trivial:
        if name not in space.tasks:
            raise refusal(
                ("aggregate", "trivial", name), {}, f"there is no task `{name}`", f"Name {', '.join(space.tasks)}."
            )
    if space.aggregate.perfect_value(space.objective.metric) is None:
        rule = f"the best value of `{space.objective.metric}` is not known"
        raise refusal(("aggregate",), {}, rule, "Add `perfect`, such as `perfect: 0.0`.")


def _check_on_tasks(space: SpaceFields, points: Mapping[str, Point]) -> None:
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
    """Refuse designs and options that need a single task."""
    _refuse(
        {
            **_following_one_objective(space, "of one task"),
            ("match",): (
                space.match.equal != "steps",
                f"equal {space.match.equal} are those of one baseline",
                "Leave `match` out.",
            ),
            ("timing",): (bool(space.timing), "variants are timed on one task", "Leave `timing` out."),
            ("switches", TASK): (
                TASK in space.switches,
                f"`{TASK}` is the name of the tasks themselves",
                "Rename the switch.",
            ),
        },
        "and this space has several tasks",
    )
    for path, who in space.taken():
        if overlaps(full_path(path), TASK):
            raise refusal(
                ("tasks",), {}, f"{who} sets `{path}`, and tasks differ in it", "Write it in each task that has it."
            )


_Refusals = dict[tuple[str, ...], tuple[bool, str, str]]
"""Place in a space to whether it is refused, the rule, and a remedy."""


def _following_one_objective(space: SpaceFields, of_one: str) -> _Refusals:
    """The designs and options that follow the final value of one objective while a study runs.

    Args:
        space: The space.
        of_one: Of what that value is.
    """
    design = space.design
    return {
        ("design", "kind"): (
            design.chooses or not design.plans_points or bool(design.paths()),
            f"a {design.kind_name()} design follows one objective, or sets paths of its own",
            "Choose a design that names its variants before results, such as leave_one_out or grid.",
        ),
        ("design", "seeds"): (
            not isinstance(design.seeds, int),
            f"a schedule adds seeds by the verdicts {of_one}",
            "Write a number of seeds.",
        ),
        ("tune",): (
            space.tune is not None,
            f"`tune` chooses by the objective {of_one}",
            "Tune in a study of its own, and write the values under `tuned`.",
        ),
        ("budgets",): (bool(space.budgets), f"budgets are lengths {of_one}", "Leave `budgets` out."),
    }


def _refuse(refused: _Refusals, why: str) -> None:
    for place, (found, rule, remedy) in refused.items():
        if found:
            raise refusal(place, {}, f"{rule}, {why}", remedy)


def _check_target(space: SpaceFields) -> None:
    """Refuse a target that no curve of the study would tell the time to.

    Raises:
        ValidationError: With the path inside the space, the rule and a remedy.
    """
    objective = space.objective
    if objective.reach is None:
        if objective.measure != "steps":
            rule = "`measure` is that of the time to a target"
            raise refusal(("objective", "measure"), objective.measure, rule, "Add `reach`, or leave `measure` out.")
        return
    where = ("objective", "reach")
    if objective.metric != CURVE_METRIC or objective.direction != "minimize":
        rule = f"the time to a target is read from curves, which hold `{CURVE_METRIC}` alone, and smaller is better"
        raise refusal(where, objective.reach, rule, f"Set `metric: {CURVE_METRIC}`, or leave `reach` out.")
    if objective.margin >= 1:
        rule = "with `reach` the margin is a share of the baseline's time, below 1"
        raise refusal(("objective", "margin"), objective.margin, rule, "Write 0.05 for 5 % more.")
    if space.tasks:
        raise refusal(where, objective.reach, "several tasks have no target in common", "Leave `reach` out.")
    if not space.training.steps:
        raise refusal(where, objective.reach, "without training there is no time to a target", "Leave `reach` out.")
    _refuse(_following_one_objective(space, "at the end of training"), "and this objective is the time to a target")


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

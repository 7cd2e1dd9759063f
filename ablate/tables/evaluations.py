"""Rows to runs: the evaluation of each run that counts, and why a run failed."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ablate.analysis.numbers import listed, plural
from ablate.errors import DataError
from ablate.tables.cells import cell_text, is_missing, number_of
from ablate.tables.description import REACH, QuestionSpec, RunTableSpec
from ablate.tables.formats import ORIGIN

if TYPE_CHECKING:
    import pandas as pd

OURS = "\N{SECTION SIGN}"
"""The beginning of the names of columns that are none of the table's."""
VARIANT, UNIT, FILE = f"{OURS}variant", f"{OURS}unit", f"{OURS}file"
FAILED, STEP, VALUE = f"{OURS}failed", f"{OURS}step", f"{OURS}value"
LARGEST = 1e100
"""Of a value that is a result: the squares of larger ones overflow, as those of a run that diverged do."""


@dataclass(frozen=True, slots=True)
class TableRun:
    """One run of a variant.

    Attributes:
        variant: Its name.
        unit: Its seed, task ... as text; of runs without any a number.
        value: Its metric; None if it failed.
        failure: Why it failed; empty if it did not.
        censored: Whether it ended before it reached the target, so that the true value is at least as bad.
        step: The step whose evaluation counts; None without steps.
        curve: Step to value of all its evaluations; empty without steps.
    """

    variant: str
    unit: str
    value: float | None
    failure: str = ""
    censored: bool = False
    step: float | None = None
    curve: Mapping[float, float] = field(default_factory=dict, repr=False)


NEARLY = 0.05
"""Share of the steps by which the last evaluations of runs may differ that are compared at a shared step."""
Keyed = tuple[tuple[str, ...], TableRun]
"""A run with the texts that identify it: its variant, its unit, and what is averaged within the unit."""


_STEP = re.compile(r"(^|[._/ ])(global_?step|step|iteration|iter|epoch)s?$", re.IGNORECASE)
"""Names of columns that count how far a run has come."""


def counts_progress(column: str) -> bool:
    """Whether the name of a column says that it counts how far a run has come."""
    return _STEP.search(column) is not None


def check_column(frame: pd.DataFrame, name: str, key: str, where: str) -> None:
    """Refuse a name that is not a column of the table.

    Raises:
        DataError: With the columns of the table.
    """
    if name not in frame.columns:
        known = [str(column) for column in frame.columns if not str(column).startswith(OURS)]
        raise DataError(
            f"the table has no column {name!r}",
            where=f"`{key}` of {where}",
            expected=f"one of {listed(known)}",
            remedy=_remedy_of_column(name, key, known),
        )


def _remedy_of_column(name: str, key: str, known: Sequence[str]) -> str:
    alike = (re.fullmatch(rf"{re.escape(name)}([^\d]*)\d+(\D*)", column) for column in known)
    seeds = [match for match in alike if match]
    if key == "metric" and len(seeds) > 1:
        between, after = map(re.escape, seeds[0].groups())
        pattern = rf"^(?P<metric>{re.escape(name)}){between}(?P<seed>\d+){after}$"
        return f"There is a column for each seed: give `columns: '{pattern}'`."
    if key == "variant" and name == "variant":
        return "Name the column of what is compared: `variant`, or a group `variant` of `path`, `line` or `columns`."
    return "Correct the name; columns are those of the file and the named groups of `path`, `line` and `name`."


def _numbers(rows: pd.DataFrame, column: str) -> list[float | None]:
    return [
        number_of(cell, f"{origin}, column {column!r}") for cell, origin in zip(rows[column], rows[ORIGIN], strict=True)
    ]


def _failure(value: float | None, marked: str, metric: str, origin: str) -> str:
    if marked:
        return f"{marked} ({origin})"
    if value is None:
        return f"{metric} is missing ({origin})"
    return "" if abs(value) <= LARGEST else f"{metric} is {value:g} ({origin})"


def runs_of_rows(rows: pd.DataFrame, keys: Sequence[str], metric: str, where: str) -> list[Keyed]:
    """A run for each row."""
    if keys:
        _refuse_duplicates(rows, keys, where)
    found = []
    names = [rows[key].map(cell_text) for key in keys]
    values = zip(rows[VARIANT], _numbers(rows, metric), rows[FAILED], rows[ORIGIN], strict=True)
    for number, (variant, value, marked, origin) in enumerate(values):
        key = tuple(str(name.iloc[number]) for name in names) or (variant, str(number))
        failure = _failure(value, marked, metric, origin)
        found.append((key, TableRun(variant, key[1], None if failure else value, failure)))
    return found


def _refuse_duplicates(rows: pd.DataFrame, keys: Sequence[str], where: str) -> None:
    texts = rows[list(keys)].map(cell_text)
    twice = texts.duplicated(keep=False)
    if not twice.any():
        return
    first = texts[twice].iloc[0]
    same = (texts == first).all(axis=1)
    alike = rows[same]
    varies = [
        str(name)
        for name in rows.columns
        if not str(name).startswith(OURS) and name not in keys and alike[name].map(cell_text).nunique() == len(alike)
    ]
    origins = [*map(str, alike[ORIGIN])]
    said = ", ".join(f"{str(key).removeprefix(OURS)} {text!r}" for key, text in first.items())
    remedy = "Keep one row of each, or name a column that tells them apart"
    remedy += f" ({listed(varies)} differ): as `step`, `over`, `each` or `unit`." if varies else "."
    if steps := [column for column in varies if counts_progress(column)]:
        remedy = f"Say that a run has a row for each evaluation: `step: {steps[0]}`."
    raise DataError(
        f"{len(alike)} rows are one run",
        where=f"{where}: {listed(origins if len(origins) < 4 else [origins[0], f'{len(origins) - 1} others'])}",
        expected="one row for each variant and seed",
        got=said,
        remedy=remedy,
    )


def runs_of_curves(
    rows: pd.DataFrame,
    keys: Sequence[str],
    metric: str,
    step: str,
    direction: str,
    question: QuestionSpec,
    spec: RunTableSpec,
    notes: list[str],
    where: str,
) -> list[Keyed]:
    """A run for all rows of one key, with the evaluation that counts."""
    rows = rows.assign(**{STEP: _steps(rows, step), VALUE: _numbers(rows, metric)})
    if len(keys) == 1:
        rows, keys = rows.assign(**{FILE: rows[ORIGIN].map(file_of)}), [*keys, FILE]
    texts: list[tuple[str, ...]] = list(zip(*(rows[key].map(cell_text) for key in keys), strict=True))
    last = dict(zip(texts, rows[ORIGIN], strict=True))
    found, repeated = [], 0
    if question.reach is None:
        rows = rows[_are_evaluations(rows, texts, metric)]
        rows = _without_rows_of_other_metrics(rows, keys, metric)
    parts = rows.groupby([rows[key].map(cell_text) for key in keys], sort=False)
    unrepeated = []
    for key, part in parts:
        twice = part.duplicated(STEP, keep=False)
        if twice.any() and not (part[FAILED] != "").any():  # a failed run has no value at any step
            repeated += 1
            if spec.repeated == "refuse":
                _refuse_repeated(part[twice], key, step, where)
            part = part.drop_duplicates(STEP, keep=spec.repeated)
        unrepeated.append((key, part.sort_values(STEP, kind="stable")))
    if repeated:
        notes.append(f"{plural(repeated, 'run')} hold a step twice: the {spec.repeated} row of each counts.")
    if isinstance(question.at, int) and not (rows[STEP] == question.at).any():
        known = sorted({f"{at:g}" for at in rows[STEP]}, key=float)
        shown = listed(known) if len(known) <= 8 else f"{', '.join(known[:4])} ... {known[-1]}"
        raise DataError(f"no run has {metric} at this step", where=where, expected=shown, got=f"{question.at:g}")
    common = _shared_step(unrepeated, step, where, notes) if question.at == "shared" else math.inf
    grows = question.reach is not None and _only_gets_worse([part for _, part in unrepeated], direction)
    for key, part in unrepeated:
        values = list(zip(part[STEP], part[VALUE], part[FAILED], part[ORIGIN], strict=True))
        curve = {at: value for at, value, _, _ in values if value is not None and math.isfinite(value)}
        unit = key[1] if len(key) > 1 else ""
        if question.reach is not None:
            found.append((key, _run_to_target(part, key, metric, question.reach, curve, grows=grows)))
            continue
        at, value, marked, origin = _evaluation_that_counts(
            values, "last" if question.at is None else question.at, direction, common
        )
        failure = _failure(value, marked, metric, origin)
        found.append((key, TableRun(key[0], unit, None if failure else value, failure, step=at, curve=curve)))
    evaluated = {key for key, _ in unrepeated}
    for key, origin in last.items():
        if key not in evaluated:  # it ended before its first evaluation
            found.append((key, TableRun(key[0], key[1], None, _failure(None, "", metric, origin))))
    return found


def file_of(origin: str) -> str:
    """The file in the origin of a row."""
    return re.sub(r"(:\d+| row \d+| step \S+)$", "", origin)


def _are_evaluations(rows: pd.DataFrame, texts: Sequence[tuple[str, ...]], metric: str) -> list[bool]:
    """Which rows are evaluations: those at steps at which any run has a value, and those that say how a run ended.

    A run may end at a step of its own: with a mark of failure, infinite, or `nan`. Where a number follows a `nan` in
    the same run, `nan` stands for what was not measured.
    """
    values, marked = [*rows[VALUE]], [*(rows[FAILED] != "")]
    finite = [value is not None and math.isfinite(value) for value in values]
    grid = {at for at, there in zip(rows[STEP], finite, strict=True) if there}
    if not grid:
        return [True] * len(values)
    ends: dict[tuple[str, ...], float] = {}
    for key, at, there in zip(texts, rows[STEP], finite, strict=True):
        if there:
            ends[key] = max(at, ends.get(key, -math.inf))
    written = [
        value is not None and (math.isinf(value) or (isinstance(cell, str) and math.isnan(value)))
        for value, cell in zip(values, rows[metric], strict=True)
    ]
    off = [at not in grid for at in rows[STEP]]
    unmeasured = any(
        out and wrote and math.isnan(value) and at < ends.get(key, -math.inf)
        for key, at, value, wrote, out in zip(texts, rows[STEP], values, written, off, strict=True)
    )
    return [
        not out or mark or (wrote and (math.isinf(value) or not unmeasured))
        for value, wrote, mark, out in zip(values, written, marked, off, strict=True)
    ]


def _shared_step(
    parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], step: str, where: str, notes: list[str]
) -> float:
    """The last step that all runs have reached, and were evaluated at, or nearly; of those that failed, none."""
    runs = [
        sorted(part[STEP])
        for _, part in parts
        if not (part[FAILED] != "").any() and math.isfinite(math.nan if (end := part[VALUE].iloc[-1]) is None else end)
    ]
    if not runs:
        return math.inf
    reached = min(steps[-1] for steps in runs)
    ends = [max((at for at in steps if at <= reached), default=-math.inf) for steps in runs]
    if max(ends) - min(ends) > NEARLY * abs(reached):
        shared = set.intersection(*map(set, runs))
        if not shared:
            raise DataError(
                f"no {step} is shared by all runs",
                where=where,
                remedy="Give a step as `at`, or leave out with `where` the runs that were evaluated at others.",
            )
        ends = [reached := max(shared)]
    at = f"{min(ends):g}" if min(ends) == max(ends) else f"{min(ends):g} to {max(ends):g}"
    notes.append(f"All runs are compared at {step} {at}, the last that all of them have.")
    return float(reached)


def _only_gets_worse(parts: Sequence[pd.DataFrame], direction: str) -> bool:
    """Whether a metric never gets better from one evaluation of a run to the next, as the time that it has taken."""
    sign = 1.0 if direction == "lower" else -1.0
    runs = [[sign * value for value in part[VALUE] if value is not None and math.isfinite(value)] for part in parts]
    return all(after >= before for run in runs for before, after in itertools.pairwise(run))


def _without_rows_of_other_metrics(rows: pd.DataFrame, keys: Sequence[str], metric: str) -> pd.DataFrame:
    """Without rows that lack the metric where the same run has it at the same step, as trainers log each in its row."""
    absent = rows[metric].map(lambda cell: is_missing(cell) and not (isinstance(cell, str) and cell.lower() == "nan"))
    absent &= rows[FAILED] == ""
    there = (~absent).groupby([rows[key].map(cell_text) for key in (*keys, STEP)]).transform("any")
    return rows[~(absent & there)]


def _steps(rows: pd.DataFrame, step: str) -> list[float]:
    steps = _numbers(rows, step)
    for number, at in enumerate(steps):
        if at is None or not math.isfinite(at):
            raise DataError(
                "this row has no step", where=str(rows[ORIGIN].iloc[number]), expected=f"a number in {step!r}"
            )
    return [at for at in steps if at is not None]


def _refuse_repeated(part: pd.DataFrame, key: Sequence[str], step: str, where: str) -> None:
    at = part[STEP].iloc[0]
    same = part[part[STEP] == at]
    raise DataError(
        f"one run has {step} {at:g} {len(same)} times: does a second run stand under its name?",
        where=f"{where}: {listed(map(str, same[ORIGIN]))}",
        expected="each step once",
        got=", ".join(key),
        remedy="Say which counts by `repeated: first` or `repeated: last`, or name what tells the runs apart.",
    )


Evaluation = tuple[float, float | None, str, str]


def _evaluation_that_counts(values: Sequence[Evaluation], at: str | int, direction: str, common: float) -> Evaluation:
    """The evaluation of a run that counts: its step, value, mark of failure and origin."""
    marked = next((value for value in values if value[2]), None)
    if marked is not None:
        return marked
    if at == "first":
        return values[0]
    if at == "shared":
        return [value for value in values if value[0] <= common][-1] if values[0][0] <= common else values[0]
    if at == "best":
        finite = [value for value in values if value[1] is not None and math.isfinite(value[1])]
        if finite:
            return (min if direction == "lower" else max)(finite, key=lambda one: one[1] or 0.0)
    if isinstance(at, int):
        exact = [value for value in values if value[0] == at]
        return exact[0] if exact else (float(at), None, f"it has no step {at:g}", values[-1][3])
    return values[-1]


def _run_to_target(
    part: pd.DataFrame, key: Sequence[str], metric: str, target: str, curve: Mapping[float, float], *, grows: bool
) -> TableRun:
    """The metric at the first evaluation that reaches a target; of a run that never does, at its last.

    Args:
        grows: Whether later values are never better, so that the true one of a run that never does is worse; else such
            a run has failed.
    """
    match = REACH.match(target)
    assert match is not None
    check_column(part, match["metric"], "reach", "the question")
    goal, above = float(match["target"]), match["sign"] == ">="
    reached = [
        value is not None and (value >= goal if above else value <= goal) for value in _numbers(part, match["metric"])
    ]
    number = reached.index(True) if any(reached) else len(part) - 1
    row = part.iloc[number]
    value = row[VALUE]
    failure = _failure(value, row[FAILED], metric, row[ORIGIN])
    if not any(reached) and not grows and not failure:
        failure = f"it never reached {target} ({row[ORIGIN]})"
    unit = key[1] if len(key) > 1 else ""
    censored = not any(reached) and not failure
    return TableRun(key[0], unit, None if failure else value, failure, censored, row[STEP], curve)


def mean_over(runs: Sequence[Keyed], over: Sequence[str], notes: list[str], *, known: bool) -> list[Keyed]:
    """The mean of each unit over the folds, episodes ... that all variants have there; a failed one fails the unit.

    Args:
        notes: Receives a sentence on the values that are left out.
        known: Whether units are named, so that those of equal name share their folds.
    """
    there: dict[tuple[str, ...], dict[tuple[str, ...], set[tuple[str, ...]]]] = {}
    for key, _ in runs:
        unit, part = key[: -len(over)], key[-len(over) :]
        there.setdefault(unit[1:] if known else (), {}).setdefault(unit, set()).add(part)
    shared = {unit: set.intersection(*sets.values()) for unit, sets in there.items()}
    grouped: dict[tuple[str, ...], list[TableRun]] = {}
    lost = 0
    for key, run in runs:
        unit, part = key[: -len(over)], key[-len(over) :]
        common = shared[unit[1:] if known else ()]
        if part in common or not common:
            grouped.setdefault(unit, []).append(run)
        lost += part not in common
    if lost:
        what = "/".join(over)
        notes.append(
            f"{plural(lost, 'value')} left out of the means over {what}: not every variant has that {what}."
            if all(shared.values())
            else f"The means over {what} are over other {what}s in each variant: no {what} is in all."
        )
    found = []
    for key, parts in grouped.items():
        failed = [run.failure for run in parts if run.failure]
        values = [run.value for run in parts if run.value is not None]
        what = f"{len(failed)} of {len(parts)} {'/'.join(over)}s failed: {failed[0]}" if failed else ""
        mean = None if failed else math.fsum(values) / len(values)
        name = key[1] if len(key) > 1 else ""
        step = min((run.step for run in parts if run.step is not None), default=None)
        found.append((key, TableRun(key[0], name, mean, what, any(run.censored for run in parts), step)))
    return found

"""Cells to numbers, and rows to runs: the evaluation of each run that counts, and why a run failed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.analysis.text import listed, plural
from ablate.errors import DataError
from ablate.tables.description import REACH, QuestionSpec, RunTableSpec
from ablate.tables.formats import ORIGIN

if TYPE_CHECKING:
    import pandas as pd

MISSING = frozenset({"", "-", "n/a", "na", "none", "null", "nan", "<na>"})
"""Texts of a cell without a number, in small letters."""
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


Keyed = tuple[tuple[str, ...], TableRun]
"""A run with the texts that identify it: its variant, its unit, and what is averaged within the unit."""


_STEP = re.compile(r"(^|[._/ ])(global_?step|step|iteration|iter|epoch)s?$", re.IGNORECASE)
"""Names of columns that count how far a run has come."""


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


def cell_text(cell: Any) -> str:
    """A cell as the text of a name."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():  # a column of whole numbers that another cell made one of floats
        return str(int(cell))
    return str(cell).strip()


def number_of(cell: Any, where: str) -> float | None:
    """The number in a cell; None if it holds none.

    Raises:
        DataError: It holds something else.
    """
    if isinstance(cell, bool) or cell is None:
        return None if cell is None else float(cell)
    if isinstance(cell, int | float):
        return float(cell)
    text = str(cell).strip()
    if text.lower() in MISSING:
        return math.nan if text.lower() == "nan" else None
    try:
        return float(text.replace("_", "\0"))
    except ValueError:
        pass
    remedy = "Mark failed rows by `failed`, such as `failed: {status: crash}`."
    if re.fullmatch(r"[-+]?\d{1,3}([.,]\d+)*%?", text):
        remedy = "Write numbers with a decimal point, without separators of thousands and without a unit."
    if re.search(r"±|\+/-|\+-|\\pm|\d\s*\(", text):
        remedy = "Give the runs, a row for each: a mean with its spread does not say which runs, nor how many."
    raise DataError("this is not a number", where=where, got=repr(text[:60]), remedy=remedy)


def is_missing(cell: Any) -> bool:
    """Whether a cell holds no number."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return True
    return isinstance(cell, str) and cell.strip().lower() in MISSING


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
    if steps := [column for column in varies if _STEP.search(column)]:
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
    measured = rows[VALUE].map(lambda value: value is not None and math.isfinite(value))
    grid = set(rows.loc[measured, STEP])
    if question.reach is not None:
        grid = set(rows[STEP])
    if len(keys) == 1:
        rows = rows.assign(**{FILE: rows[ORIGIN].map(lambda origin: re.sub(r"(:\d+| row \d+| step \S+)$", "", origin))})
        keys = [*keys, FILE]
    rows = rows[rows[STEP].isin(grid)] if grid else rows
    found, repeated = [], 0
    if question.reach is None:
        rows = _without_rows_of_other_metrics(rows, keys, metric)
    groups = [(tuple(map(cell_text, key)), part) for key, part in rows.groupby(list(keys), sort=False)]
    unrepeated = []
    for key, part in groups:
        twice = part.duplicated(STEP, keep=False)
        if twice.any():
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
    common = min((part[STEP].iloc[-1] for _, part in unrepeated), default=math.inf)
    for key, part in unrepeated:
        values = list(zip(part[STEP], part[VALUE], part[FAILED], part[ORIGIN], strict=True))
        curve = {at: value for at, value, _, _ in values if value is not None and math.isfinite(value)}
        unit = key[1] if len(key) > 1 else ""
        if question.reach is not None:
            found.append((key, _reaching(part, key, metric, question.reach, curve)))
            continue
        at, value, marked, origin = _counting(values, "last" if question.at is None else question.at, direction, common)
        failure = _failure(value, marked, metric, origin)
        found.append((key, TableRun(key[0], unit, None if failure else value, failure, step=at, curve=curve)))
    return found


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


def _counting(values: Sequence[Evaluation], at: str | int, direction: str, common: float) -> Evaluation:
    """The evaluation of a run that counts: its step, value, mark of failure and origin."""
    marked = next((value for value in values if value[2]), None)
    if marked is not None:
        return marked
    if at == "first":
        return values[0]
    if at == "shared":
        return [one for one in values if one[0] <= common][-1] if values[0][0] <= common else values[0]
    if at == "best":
        finite = [one for one in values if one[1] is not None and math.isfinite(one[1])]
        if finite:
            return (min if direction == "lower" else max)(finite, key=lambda one: one[1] or 0.0)
    if isinstance(at, int):
        exact = [one for one in values if one[0] == at]
        return exact[0] if exact else (float(at), None, f"it has no step {at:g}", values[-1][3])
    return values[-1]


def _reaching(
    part: pd.DataFrame, key: Sequence[str], metric: str, target: str, curve: Mapping[float, float]
) -> TableRun:
    """The metric at the first evaluation that reaches a target; of a run that never does, at its last."""
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
    unit = key[1] if len(key) > 1 else ""
    return TableRun(key[0], unit, None if failure else value, failure, not any(reached), row[STEP], curve)


def mean_over(runs: Sequence[Keyed], over: Sequence[str]) -> list[Keyed]:
    """The mean of each unit over folds, episodes ...; a unit with a failed one has failed."""
    grouped: dict[tuple[str, ...], list[TableRun]] = {}
    for key, run in runs:
        grouped.setdefault(key[: -len(over)], []).append(run)
    found = []
    for key, parts in grouped.items():
        failed = [run.failure for run in parts if run.failure]
        values = [run.value for run in parts if run.value is not None]
        what = f"{len(failed)} of {len(parts)} {'/'.join(over)}s failed: {failed[0]}" if failed else ""
        mean = None if failed else math.fsum(values) / len(values)
        found.append((key, TableRun(parts[0].variant, key[1], mean, what, any(run.censored for run in parts))))
    return found

"""Questions on the rows of a table: who is compared, and what is repeated. Nothing is dropped unsaid."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablate.analysis.numbers import listed
from ablate.errors import DataError
from ablate.tables.cells import cell_text, is_missing
from ablate.tables.description import REACH, DescriptionSpec, QuestionSpec, RunTableSpec
from ablate.tables.evaluations import (
    FAILED,
    OURS,
    UNIT,
    VARIANT,
    Keyed,
    TableRun,
    check_column,
    mean_over,
    runs_of_curves,
    runs_of_rows,
)
from ablate.tables.formats import LOGGED, ORIGIN

if TYPE_CHECKING:
    import pandas as pd

SEED = "seed"
LEAST_SHARED = 3
"""Seeds that both sides must have for runs to be paired unasked: of two pairs one difference is all that is left.

Of tasks and data sets one is enough, because means over others differ as those do.
"""


@dataclass(frozen=True)
class AskedTable:
    """One question with the runs that answer it.

    Attributes:
        name: Of the question.
        metric: What is compared.
        direction: `lower` or `higher` is better.
        margin: How much worse matters.
        baseline: The variant with which all others are compared.
        unit: What is repeated, as a word: `seed`, `run`, `task` ...
        known: Whether units are named in the table, so that runs could be paired by them.
        pair: As `RunTableSpec.pair`.
        runs: In the order of the table, those of the baseline among them.
        rows: The rows of the question, with columns `VARIANT` and `UNIT`.
        notes: What was left out or put together in reading, as sentences.
    """

    name: str
    metric: str
    direction: str
    margin: float
    baseline: str
    unit: str
    known: bool
    pair: bool | None
    runs: tuple[TableRun, ...]
    rows: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """The baseline, then the others in the order of the table."""
        return tuple(dict.fromkeys((self.baseline, *(run.variant for run in self.runs))))

    def of(self, variant: str) -> dict[str, TableRun]:
        """Unit to run of a variant."""
        return {run.unit: run for run in self.runs if run.variant == variant}

    def paired(self, variant: str) -> bool:
        """Whether the runs of a variant are paired with those of the baseline by their units."""
        shared = self.of(variant).keys() & self.of(self.baseline).keys()
        if not self.known or self.pair is False:
            return False
        return self.pair is True or len(shared) >= (LEAST_SHARED if self.unit == SEED else 1)


def asked_tables(
    frame: pd.DataFrame, name: str, question: QuestionSpec, description: DescriptionSpec
) -> list[AskedTable]:
    """A question on some rows, or one for each value of the column `each`, and their aggregate.

    Raises:
        DataError: A column is missing, a cell is not a number, two rows are one run ...
    """
    spec, where = description.table, f"question {name!r}" if name else "the table"
    metric = _require(question.metric, "metric", where)
    direction, margin = _require(question.direction, "direction", where), _require(question.margin, "margin", where)
    baseline = _require(question.baseline, "baseline", where)
    notes: list[str] = []
    rows = _filter(frame, question, where)
    _refuse_nested(rows, where)
    rows = _identify(rows, spec, question, notes)
    rows = _without_members(rows, spec, metric, notes)
    asked = (metric, direction, margin, baseline)
    if question.each is None:
        return [_ask(rows, name or metric, asked, question, spec, notes)]
    check_column(rows, question.each, "each", where)
    tables = []
    values = rows[question.each].map(cell_text)
    there = {*values[rows[VARIANT] == baseline]}
    if there and (lacks := [value for value in dict.fromkeys(values) if value not in there]):
        notes.append(f"{baseline} has no {question.each} {listed(lacks)}: no variant can be compared there.")
        rows, values = rows[values.isin(there)], values[values.isin(there)]
    for value, part in rows.groupby(values, sort=False):
        if metric in part.columns and bool((known := part[metric].map(lambda cell: not is_missing(cell))).any()):
            if not value:
                raise DataError(f"this row has no {question.each}", where=str(part[ORIGIN][known].iloc[0]))
            tables.append(_ask(part, str(value), asked, question, spec, notes))
    if not tables:
        check_column(rows, metric, "metric", where)
    if question.aggregate:
        tables.append(_aggregate(f"{name} over {question.each}s", tables, question.each))
    return tables


def _require(value: Any, key: str, where: str) -> Any:
    if value is None:
        raise DataError(f"the {key} is not given", where=where, remedy=f"Give `{key}`, or `--{key}`.")
    return value


def _filter(frame: pd.DataFrame, question: QuestionSpec, where: str) -> pd.DataFrame:
    for column, texts in (question.where or {}).items():
        check_column(frame, column, "where", where)
        frame = frame[frame[column].map(cell_text).isin(texts)]
        if frame.empty:
            raise DataError(f"no row has {column} {' or '.join(map(repr, texts))}", where=f"`where` of {where}")
    return frame


def _refuse_nested(rows: pd.DataFrame, where: str) -> None:
    """Refuse a run beside the runs within it: it sums them up, as a search, or they are parts of it, as folds."""
    if not {"id", "parent", "children"} <= {*rows.columns}:
        return
    above = rows[rows["id"].isin({*rows["parent"]} - {""})]
    if len(above):
        raise DataError(
            f"the run {above['run'].iloc[0]!r} is there beside the {above['children'].iloc[0]} runs within it",
            where=where,
            expected="either a run, or the runs within it",
            remedy="Keep the inner runs by `--where children=0`, or the outer ones by `--where parent=`.",
        )


def _identify(frame: pd.DataFrame, spec: RunTableSpec, question: QuestionSpec, notes: list[str]) -> pd.DataFrame:
    """The rows with the names of their variant and of their unit."""
    rows = frame.copy()
    for column, texts in spec.rename.items():
        check_column(rows, column, "rename", "the table")
        rows[column] = rows[column].map(lambda cell, texts=texts: texts.get(cell_text(cell), cell))
    if spec.name is not None:
        rows = _name_by_pattern(rows, spec.name, next((column for column in spec.run if column in rows.columns), None))
    variant = _variant_columns(rows, spec, question)
    for column in variant:
        check_column(rows, column, "variant", "the table")
    if len(variant) == 1:
        rows[VARIANT] = rows[variant[0]].map(cell_text)
    else:
        cells = zip(*(rows[column].map(cell_text) for column in variant), strict=True)
        rows[VARIANT] = [", ".join(f"{name}={text}" for name, text in zip(variant, row, strict=True)) for row in cells]
    if (rows[VARIANT] == "").any():
        origin = rows.loc[rows[VARIANT] == "", ORIGIN].iloc[0]
        remedy = "Write the name into every row; merged cells of a spreadsheet name only the first."
        expected = f"a text in {variant[0]!r}"
        raise DataError("this row names no variant", where=str(origin), expected=expected, remedy=remedy)
    unit = unit_column(rows, spec)
    if unit is not None:
        # `1.0` is a whole number that an empty cell of its column made one with a fraction.
        rows[UNIT] = rows[unit].map(lambda cell: re.sub(r"\A(-?\d+)\.0\Z", r"\1", cell_text(cell)))
        if (rows[UNIT] == "").any():
            origin = rows.loc[rows[UNIT] == "", ORIGIN].iloc[0]
            raise DataError(f"this row has no {unit}", where=str(origin), remedy="Fill it, or name another column.")
    return rows


def unit_column(rows: pd.DataFrame, spec: RunTableSpec) -> str | None:
    """The column that says what is repeated; None if the table has none."""
    if named := spec.unit or spec.seed:
        check_column(rows, named, "unit" if spec.unit else "seed", "the table")
        return named
    return SEED if SEED in rows.columns else None


def _variant_columns(rows: pd.DataFrame, spec: RunTableSpec, question: QuestionSpec) -> tuple[str, ...]:
    if spec.variant != ("*",):
        return spec.variant
    target = REACH.match(question.reach)["metric"] if question.reach else None  # type: ignore[index]
    used = {spec.seed or "seed", spec.unit, *spec.over, *spec.step, *spec.run, *spec.ignore, question.metric, target}
    used |= {question.each, *(question.where or {}), *spec.failed, "run", "index"}
    logged = rows[LOGGED] if LOGGED in rows.columns else ()
    used |= {name for names in logged if isinstance(names, tuple) for name in names}
    return tuple(str(name) for name in rows.columns if name not in used and not str(name).startswith(OURS))


def _name_by_pattern(rows: pd.DataFrame, pattern: str, run: str | None) -> pd.DataFrame:
    if run is None:
        raise DataError("`name` has no run to read", where="the table", remedy="Give `run`, the column of their names.")
    compiled = re.compile(pattern)
    found = {name: compiled.search(name) for name in dict.fromkeys(rows[run].map(cell_text))}
    if wrong := [name for name, match in found.items() if match is None]:
        raise DataError(
            "`name` does not match the name of this run", where=f"column {run!r}", expected=pattern, got=repr(wrong[0])
        )
    for group in compiled.groupindex:
        texts = [found[cell_text(name)][group] or "" for name in rows[run]]  # type: ignore[index]
        for own, text, origin in zip(rows.get(group, ()), texts, rows[ORIGIN], strict=False):
            if cell_text(own) not in ("", text):
                raise DataError(
                    f"`name` and the file both have a column {group!r}",
                    where=str(origin),
                    got=f"{text!r} and {cell_text(own)!r}",
                    remedy="Give the group of `name` another name.",
                )
        rows[group] = texts
    return rows


def _without_members(rows: pd.DataFrame, spec: RunTableSpec, metric: str, notes: list[str]) -> pd.DataFrame:
    """The rows without tasks that a group of the same file counts already: one that has the metric."""
    if spec.format != "lm-eval" or metric not in rows.columns:
        return rows
    has = set(rows.loc[~rows[metric].map(is_missing), "task"])
    within = {task: group for task, group in zip(rows["task"], rows["group"], strict=True) if group}
    counted = {task: group for task in within if (group := _counting_group(task, within, has))}
    for group, members in Counter(counted.values()).items():
        notes.append(f"{group} is a group: its {members} members are left out, as it counts them already.")
    return rows[~rows["task"].isin(counted)]


def _counting_group(task: str, within: Mapping[str, str], has: Set[str]) -> str:
    """The smallest group around a task that has the metric; empty if none has."""
    while task := within.get(task, ""):
        if task in has:
            return task
    return ""


def _ask(
    rows: pd.DataFrame,
    name: str,
    asked: tuple[str, str, float, str],
    question: QuestionSpec,
    spec: RunTableSpec,
    notes: Sequence[str],
) -> AskedTable:
    metric, direction, margin, baseline = asked
    where = f"question {name!r}"
    check_column(rows, metric, "metric", where)
    rows = _compared_rows(rows, baseline, question.variants, where)
    said = list(notes)
    unit = unit_column(rows, spec)
    step = next((column for column in spec.step if column in rows.columns), None)
    if spec.step and step is None and question.files is None:
        check_column(rows, spec.step[0], "step", where)
    if step is None and (question.at is not None or question.reach is not None):
        key = "at" if question.at is not None else "reach"
        raise DataError(f"`{key}` needs the column of the step", where=where, remedy="Give `step`.")
    keys = [VARIANT]
    if unit is not None:
        keys.append(UNIT)
    elif run := next((column for column in (*spec.run, "run") if column in rows.columns), None):
        keys.append(run)
    over = list(spec.over)
    for column in over:
        check_column(rows, column, "over", where)
    rows = rows.assign(**{FAILED: _failure_marks(rows, spec, where)})
    if step is not None:
        runs = runs_of_curves(rows, [*keys, *over], metric, step, direction, question, spec, said, where)
    else:
        runs = runs_of_rows(rows, [*keys, *over] if len(keys) > 1 or over else [], metric, where)
    if over:
        runs = mean_over(runs, over, said, known=unit is not None)
    if unit is not None and spec.unit:
        runs = _of_both_sides(_measured_somewhere(runs, metric, unit, said), baseline, unit, spec, said)
    numbered = runs if unit is not None else _number(runs)
    return AskedTable(
        name,
        metric,
        direction,
        margin,
        baseline,
        _unit_word(unit, spec),
        unit is not None,
        spec.pair,
        tuple(run for _, run in numbered),
        rows,
        tuple(said),
    )


def _unit_word(unit: str | None, spec: RunTableSpec) -> str:
    """What is repeated, as people call it."""
    if unit is None:
        return "run"
    return SEED if spec.unit is None else unit


def _compared_rows(rows: pd.DataFrame, baseline: str, variants: Sequence[str] | None, where: str) -> pd.DataFrame:
    """The rows of the variants that are compared."""
    known = list(dict.fromkeys(rows[VARIANT]))
    for key, name in (("baseline", baseline), *(("variants", variant) for variant in variants or ())):
        if name not in known:
            raise DataError(
                "this is not a variant of the table",
                where=f"`{key}` of {where}",
                expected=f"one of {listed(map(repr, known))}",
                got=repr(name),
                remedy=_lost_zeros(name, known),
            )
    return rows if variants is None else rows[rows[VARIANT].isin({baseline, *variants})]


def _lost_zeros(name: str, known: Sequence[str]) -> str | None:
    """A remedy where names of digits were read as numbers."""
    if name.isdigit() and str(int(name)) in known:
        return "The names were read as numbers and have lost their zeros: store them as text."
    return None


def _failure_marks(rows: pd.DataFrame, spec: RunTableSpec, where: str) -> list[str]:
    """Why each row is a failed run by its own account; empty for the others."""
    reasons = [""] * len(rows)
    for column, texts in spec.failed.items():
        check_column(rows, column, "failed", where)
        for number, cell in enumerate(rows[column].map(cell_text)):
            if cell in texts:
                reasons[number] = f"{column} is {cell}"
    return reasons


def _measured_somewhere(runs: Sequence[Keyed], metric: str, unit: str, notes: list[str]) -> list[Keyed]:
    """Without the units at which no variant has the metric: they do not have it, rather than every run failing."""
    measured = {run.unit for _, run in runs if run.value is not None}
    without = list(dict.fromkeys(run.unit for _, run in runs if run.unit not in measured))
    if without and measured:
        notes.append(f"{metric} is not measured for any variant at {listed(without)}: not part of the question.")
        return [(key, run) for key, run in runs if run.unit in measured]
    return list(runs)


def _of_both_sides(
    runs: Sequence[Keyed], baseline: str, unit: str, spec: RunTableSpec, notes: list[str]
) -> list[Keyed]:
    """Without the units that the baseline alone has: the mean of others would be over other tasks than its own."""
    units: dict[str, set[str]] = {}
    for _, run in runs:
        units.setdefault(run.variant, set()).add(run.unit)
    theirs = units.pop(baseline, set())
    if spec.pair is False or not units or any(len(ours & theirs) < LEAST_SHARED for ours in units.values()):
        return list(runs)
    alone = sorted(theirs.difference(*(theirs & ours for ours in units.values())))
    if alone:
        notes.append(f"{baseline} alone has {listed(alone)}: left out, as no variant can be compared there.")
    return [(key, run) for key, run in runs if run.unit not in alone]


def _number(runs: Sequence[Keyed]) -> list[Keyed]:
    counts: dict[str, int] = {}
    found = []
    for key, run in runs:
        counts[run.variant] = counts.get(run.variant, -1) + 1
        found.append(
            (
                key,
                TableRun(
                    run.variant, str(counts[run.variant]), run.value, run.failure, run.censored, run.step, run.curve
                ),
            )
        )
    return found


def _aggregate(name: str, tables: Sequence[AskedTable], unit: str) -> AskedTable:
    """The mean of each variant at each of several questions, with the question as the unit."""
    first = tables[0]
    notes: list[str] = []
    runs = [run for table in tables for run in _means(table, notes)]
    return AskedTable(
        name,
        first.metric,
        first.direction,
        first.margin,
        first.baseline,
        unit,
        True,
        None,
        tuple(runs),
        first.rows,
        tuple(notes),
    )


def _means(table: AskedTable, notes: list[str]) -> Iterator[TableRun]:
    """The mean of each variant, over the units that all have where they are paired by them."""
    paired = [name for name in table.variants if name == table.baseline or table.paired(name)]
    shared = set.intersection(*(set(table.of(name)) for name in paired))
    units = dict.fromkeys(run.unit for run in table.runs if run.variant in paired and run.unit not in shared)
    if units:
        notes.append(f"Not every variant has {listed(units)} of {table.name}: left out of its mean.")
    for variant in table.variants:
        own = [run for run in table.of(variant).values() if run.unit in shared or variant not in paired]
        failed = next((run.failure for run in own if run.failure), "")
        values = [run.value for run in own if run.value is not None]
        if own:
            mean = None if failed else math.fsum(values) / len(values)
            yield TableRun(variant, table.name, mean, failed, censored=any(run.censored for run in own))

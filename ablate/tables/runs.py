"""Rows of a table to runs: who is compared, what is repeated, one value for each. Nothing is dropped unsaid."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.analysis.text import listed, plural
from ablate.errors import DataError
from ablate.tables.description import REACH, DescriptionSpec, QuestionSpec, RunTableSpec
from ablate.tables.reading import ORIGIN

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
LEAST_SHARED = 3
"""Units that both sides must have for runs to be paired unasked: of two pairs one difference is all that is left."""


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
        return self.pair is True or len(shared) >= LEAST_SHARED


def asked_tables(
    frame: pd.DataFrame, name: str, question: QuestionSpec, description: DescriptionSpec
) -> list[AskedTable]:
    """A question on some rows, or one for each value of the column `each`, and their aggregate.

    Raises:
        DataError: A column is missing, a cell is not a number, two rows are one run ...
    """
    spec, where = description.table, f"question {name!r}" if name else "the table"
    metric = _required(question.metric, "metric", where)
    direction, margin = _required(question.direction, "direction", where), _required(question.margin, "margin", where)
    baseline = _required(question.baseline, "baseline", where)
    notes: list[str] = []
    rows = _identified(_filtered(frame, question, where), spec, question, notes)
    rows = _without_members(rows, spec, notes)
    asked = (metric, direction, margin, baseline)
    if question.each is None:
        return [_asked(rows, name or metric, asked, question, spec, notes)]
    _check_column(rows, question.each, "each", where)
    tables = []
    for value, part in rows.groupby(question.each, sort=False):
        if _has_metric(part, metric, question):
            tables.append(_asked(part, str(value), asked, question, spec, notes))
    if not tables:
        _check_column(rows, metric, "metric", where)
    if question.aggregate:
        tables.append(_aggregate(f"{name} over {question.each}s", tables, question.each))
    return tables


def _has_metric(part: pd.DataFrame, metric: str, question: QuestionSpec) -> bool:
    return metric in part.columns and bool(part[metric].map(lambda cell: not _is_missing(cell)).any())


def _required(value: Any, key: str, where: str) -> Any:
    if value is None:
        raise DataError(f"the {key} is not given", where=where, remedy=f"Give `{key}`, or `--{key}`.")
    return value


def _check_column(frame: pd.DataFrame, name: str, key: str, where: str) -> None:
    if name not in frame.columns:
        known = [str(column) for column in frame.columns if not str(column).startswith(OURS)]
        raise DataError(
            f"the table has no column {name!r}",
            where=f"`{key}` of {where}",
            expected=f"one of {listed(known)}",
            remedy="Correct the name; columns are those of the file and the named groups of `path`, `line` and `name`.",
        )


def _filtered(frame: pd.DataFrame, question: QuestionSpec, where: str) -> pd.DataFrame:
    for column, texts in (question.where or {}).items():
        _check_column(frame, column, "where", where)
        frame = frame[frame[column].map(_text).isin(texts)]
        if frame.empty:
            raise DataError(f"no row has {column} {' or '.join(map(repr, texts))}", where=f"`where` of {where}")
    return frame


def _text(cell: Any) -> str:
    """A cell as the text of a name."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():  # a column of whole numbers that another cell made one of floats
        return str(int(cell))
    return str(cell).strip()


def _identified(frame: pd.DataFrame, spec: RunTableSpec, question: QuestionSpec, notes: list[str]) -> pd.DataFrame:
    """The rows with the names of their variant and of their unit."""
    rows = frame.copy()
    for column, texts in spec.rename.items():
        _check_column(rows, column, "rename", "the table")
        rows[column] = rows[column].map(lambda cell, texts=texts: texts.get(_text(cell), cell))
    if spec.name is not None:
        rows = _named(rows, spec.name, next((column for column in spec.run if column in rows.columns), None))
    variant = _variant_columns(rows, spec, question)
    for column in variant:
        _check_column(rows, column, "variant", "the table")
    if len(variant) == 1:
        rows[VARIANT] = rows[variant[0]].map(_text)
    else:
        cells = zip(*(rows[column].map(_text) for column in variant), strict=True)
        rows[VARIANT] = [", ".join(f"{name}={text}" for name, text in zip(variant, row, strict=True)) for row in cells]
    if (rows[VARIANT] == "").any():
        origin = rows.loc[rows[VARIANT] == "", ORIGIN].iloc[0]
        raise DataError("this row names no variant", where=str(origin), expected=f"a text in {variant[0]!r}")
    unit = unit_column(rows, spec)
    if unit is not None:
        rows[UNIT] = rows[unit].map(_text)
        if (rows[UNIT] == "").any():
            origin = rows.loc[rows[UNIT] == "", ORIGIN].iloc[0]
            raise DataError(f"this row has no {unit}", where=str(origin), remedy="Fill it, or name another column.")
    return rows


def unit_column(rows: pd.DataFrame, spec: RunTableSpec) -> str | None:
    """The column that says what is repeated; None if the table has none."""
    if named := spec.unit or spec.seed:
        _check_column(rows, named, "unit" if spec.unit else "seed", "the table")
        return named
    return "seed" if "seed" in rows.columns else None


def _variant_columns(rows: pd.DataFrame, spec: RunTableSpec, question: QuestionSpec) -> tuple[str, ...]:
    if spec.variant != ("*",):
        return spec.variant
    target = REACH.match(question.reach)["metric"] if question.reach else None  # type: ignore[index]
    used = {spec.seed or "seed", spec.unit, *spec.over, *spec.step, *spec.run, *spec.ignore, question.metric, target}
    used |= {question.each, *(question.where or {}), *spec.failed, "run", "index"}
    return tuple(str(name) for name in rows.columns if name not in used and not str(name).startswith(OURS))


def _named(rows: pd.DataFrame, pattern: str, run: str | None) -> pd.DataFrame:
    if run is None:
        raise DataError("`name` has no run to read", where="the table", remedy="Give `run`, the column of their names.")
    compiled = re.compile(pattern)
    found = {name: compiled.search(name) for name in dict.fromkeys(rows[run].map(_text))}
    if wrong := [name for name, match in found.items() if match is None]:
        raise DataError(
            "`name` does not match the name of this run", where=f"column {run!r}", expected=pattern, got=repr(wrong[0])
        )
    for group in compiled.groupindex:
        rows[group] = [found[_text(name)][group] or "" for name in rows[run]]  # type: ignore[index]
    return rows


def _without_members(rows: pd.DataFrame, spec: RunTableSpec, notes: list[str]) -> pd.DataFrame:
    """The rows without tasks that a group of the same file counts already."""
    if spec.format != "lm-eval" or not (rows["group"] != "").any():
        return rows
    for group in dict.fromkeys(rows.loc[rows["group"] != "", "group"]):
        members = rows.loc[rows["group"] == group, "task"].nunique()
        notes.append(f"{group} is a group: its {members} members are left out, as it counts them already.")
    return rows[rows["group"] == ""]


def _asked(
    rows: pd.DataFrame,
    name: str,
    asked: tuple[str, str, float, str],
    question: QuestionSpec,
    spec: RunTableSpec,
    notes: Sequence[str],
) -> AskedTable:
    metric, direction, margin, baseline = asked
    where = f"question {name!r}"
    _check_column(rows, metric, "metric", where)
    rows = _compared(rows, baseline, question.variants, where)
    said = list(notes)
    unit = unit_column(rows, spec)
    step = next((column for column in spec.step if column in rows.columns), None)
    if spec.step and step is None and question.files is None:
        _check_column(rows, spec.step[0], "step", where)
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
        _check_column(rows, column, "over", where)
    rows = rows.assign(**{FAILED: _marked(rows, spec, where)})
    if step is not None:
        runs = _curves(rows, [*keys, *over], metric, step, direction, question, spec, said, where)
    else:
        runs = _single(rows, [*keys, *over] if len(keys) > 1 else [], metric, where)
    if over:
        runs = _averaged(runs, over)
    if unit is not None and spec.unit:
        runs = _of_both_sides(_measured_somewhere(runs, metric, unit, said), baseline, unit, spec, said)
    numbered = runs if unit is not None else _numbered(runs)
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
    return "seed" if spec.unit is None else unit


def _compared(rows: pd.DataFrame, baseline: str, variants: Sequence[str] | None, where: str) -> pd.DataFrame:
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


def _marked(rows: pd.DataFrame, spec: RunTableSpec, where: str) -> list[str]:
    """Why each row is a failed run by its own account; empty for the others."""
    reasons = [""] * len(rows)
    for column, texts in spec.failed.items():
        _check_column(rows, column, "failed", where)
        for number, cell in enumerate(rows[column].map(_text)):
            if cell in texts:
                reasons[number] = f"{column} is {cell}"
    return reasons


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
    raise DataError("this is not a number", where=where, got=repr(text[:60]), remedy=remedy)


def _is_missing(cell: Any) -> bool:
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


def _single(rows: pd.DataFrame, keys: Sequence[str], metric: str, where: str) -> list[Keyed]:
    """A run for each row."""
    if keys:
        _refuse_duplicates(rows, keys, where)
    found = []
    names = [rows[key].map(_text) for key in keys]
    values = zip(rows[VARIANT], _numbers(rows, metric), rows[FAILED], rows[ORIGIN], strict=True)
    for number, (variant, value, marked, origin) in enumerate(values):
        key = tuple(str(name.iloc[number]) for name in names) or (variant, str(number))
        failure = _failure(value, marked, metric, origin)
        found.append((key, TableRun(variant, key[1], None if failure else value, failure)))
    return found


def _refuse_duplicates(rows: pd.DataFrame, keys: Sequence[str], where: str) -> None:
    texts = rows[list(keys)].map(_text)
    twice = texts.duplicated(keep=False)
    if not twice.any():
        return
    first = texts[twice].iloc[0]
    same = (texts == first).all(axis=1)
    alike = rows[same]
    varies = [
        str(name)
        for name in rows.columns
        if not str(name).startswith(OURS) and name not in keys and alike[name].map(_text).nunique() == len(alike)
    ]
    said = ", ".join(f"{str(key).removeprefix(OURS)} {text!r}" for key, text in first.items())
    remedy = "Keep one row of each, or name a column that tells them apart"
    remedy += f" ({listed(varies)} differ): as `step`, `over`, `each` or `unit`." if varies else "."
    raise DataError(
        f"{len(alike)} rows are one run",
        where=f"{where}: {listed(map(str, alike[ORIGIN]))}",
        expected="one row for each variant and seed",
        got=said,
        remedy=remedy,
    )


def _curves(
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
    groups = [(tuple(map(_text, key)), part) for key, part in rows.groupby(list(keys), sort=False)]
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
    common = min((part[STEP].iloc[-1] for _, part in unrepeated), default=math.inf)
    for key, part in unrepeated:
        values = list(zip(part[STEP], part[VALUE], part[FAILED], part[ORIGIN], strict=True))
        curve = {at: value for at, value, _, _ in values if value is not None and math.isfinite(value)}
        unit = key[1] if len(key) > 1 else ""
        if question.reach is not None:
            found.append((key, _reaching(part, key, metric, question.reach, curve)))
            continue
        at, value, marked, origin = _counting(values, question.at or "last", direction, common)
        failure = _failure(value, marked, metric, origin)
        found.append((key, TableRun(key[0], unit, None if failure else value, failure, step=at, curve=curve)))
    return found


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
    marked = next((one for one in values if one[2]), None)
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
    _check_column(part, match["metric"], "reach", "the question")
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


def _averaged(runs: Sequence[Keyed], over: Sequence[str]) -> list[Keyed]:
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


def _numbered(runs: Sequence[Keyed]) -> list[Keyed]:
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
    runs = [run for table in tables for run in _means(table)]
    return AskedTable(
        name, first.metric, first.direction, first.margin, first.baseline, unit, True, None, tuple(runs), first.rows
    )


def _means(table: AskedTable) -> Iterator[TableRun]:
    for variant in table.variants:
        own = table.of(variant).values()
        failed = next((run.failure for run in own if run.failure), "")
        values = [run.value for run in own if run.value is not None]
        if own:
            yield TableRun(variant, table.name, None if failed else math.fsum(values) / len(values), failed)

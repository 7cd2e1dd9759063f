"""What misleads whoever compares runs of a table: refused where the numbers are not what they seem, else a warning.

Each check looks at what any table has (names, equal values, ratios of columns, lengths of runs), at no file in
particular. A refusal says which word in `allow` turns it into a warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ablate.analysis.numbers import listed, plural
from ablate.errors import DataError
from ablate.tables.cells import cell_text, is_missing
from ablate.tables.description import DescriptionSpec, QuestionSpec
from ablate.tables.evaluations import (
    FAILED,
    OURS,
    UNIT,
    VARIANT,
    TableRun,
    counts_progress,
    file_of,
)
from ablate.tables.formats import ORIGIN, SUMMARY
from ablate.tables.runs import SEED, AskedTable

if TYPE_CHECKING:
    pass

WITHIN = frozenset(
    {"fold", "folds", "cv", "split", "episode", "episodes", "item", "example", "sample", "doc_id", "batch"}
)
"""Names of columns whose values lie within one training run, or share its data."""
DECISIONS = frozenset(
    {"keep", "kept", "discard", "discarded", "accept", "accepted", "reject", "rejected", "revert", "crash"}
)
"""Words with which a loop notes whether it builds on a run."""
UNFINISHED = frozenset(
    {
        "failed",
        "fail",
        "crash",
        "crashed",
        "killed",
        "running",
        "preempting",
        "preempted",
        "aborted",
        "error",
        "errored",
    }
    | {"timeout", "oom", "out_of_memory", "node_fail", "pruned", "diverged", "cancelled", "canceled", "interrupted"}
    | {"stopped", "incomplete"}
)
"""Words with which trackers and programs say that a run did not end as planned."""
TOTALS = frozenset(
    {"mean", "average", "avg", "median", "std", "sd", "stdev", "stddev", "sem", "stderr", "variance", "min", "max"}
    | {"total", "all", "overall"}
)
"""What a row under a table is called that sums up others."""
SPREADS = frozenset({"std", "sd", "stdev", "stddev", "sem", "stderr", "variance", "var", "ci", "ci95", "error", "err"})
"""What a column is called that holds the spread of another."""
AVERAGES = frozenset({"mean", "average", "avg", "median"})
SENTINELS = (0.0, -1.0, -99.0, -999.0, -9999.0, 999.0, 9999.0, 99999.0, 999999.0, 1e6, 1e8, 1e9, 1e10, 1e12)
"""What programs write instead of the result of a run that crashed."""
USUAL = {
    "lower": frozenset(
        {"loss", "nll", "ppl", "perplexity", "bpb", "error", "err", "mae", "mse", "rmse", "wer", "cer", "fid"}
    ),
    "higher": frozenset(
        {"acc", "accuracy", "f1", "auc", "bleu", "rouge", "reward", "return", "success", "score", "r2"}
    ),
}
"""Words in the names of metrics, by the direction that is better."""
MACHINE = ("time", "second", "runtime", "duration", "latency", "throughput", "per_sec")
RATES = ("acc", "score", "f1", "percent", "pct", "success", "rate", "auc", "map")
FAR = 10
"""Margins by which a variant may be better before its metric is doubted."""
EXACT = 1e-5
"""Relative spread of a ratio of two columns below which one is the other in another unit."""
_EVALUATIONS = 3
"""Rows with growing steps that are the curve of a run rather than a coincidence."""
_DIGITS = 5
"""Significant digits from which equal values of two runs are not a coincidence."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What limits an answer.

    Attributes:
        level: `weak`: the answer holds with this limit; `void`: it does not hold for what the text names.
        text: A clause.
    """

    level: Literal["weak", "void"]
    text: str


def limits_of(table: AskedTable, question: QuestionSpec, description: DescriptionSpec) -> tuple[Limit, ...]:
    """What limits the answer to a question.

    Raises:
        DataError: The numbers are not what they seem.
    """
    found: list[Limit] = []
    for name, check in _REFUSED.items():
        if (trap := check(table, question)) is not None:
            if name not in description.allow:
                problem, where, remedy = trap
                raise DataError(problem, where=where, remedy=f"{remedy} If it is right as it is, give `allow: {name}`.")
            found.append(Limit("void", f"allowed: {trap[0]}"))
    for look in _WARNED:
        found += [Limit("weak", text) for text in look(table, question)]
    found += [Limit("weak", text) for text in _lines(table, description)]
    if description.table.unit is not None and table.unit.lower() not in WITHIN:
        what = f"{table.unit}s are the units: a statement about such {table.unit}s, not about another training run"
        found.append(Limit("weak", what))
    if description.table.format == "lm-eval":
        found.append(Limit("weak", "standard errors of lm-eval are over test items: they show no noise of training"))
    return tuple(found)


def _lines(table: AskedTable, description: DescriptionSpec) -> Iterator[str]:
    """Several lines of one log that count as runs, as the evaluations of one run would."""
    if description.table.line is None or table.known or "run" in table.rows.columns or _has_steps(table):
        return
    lines = table.rows.groupby([VARIANT, table.rows[ORIGIN].map(file_of)], sort=False).size()
    if lines.max() > 1:
        (variant, file), most = lines.idxmax(), lines.max()
        yield f"{most} lines of {file} count as {most} runs of {variant}: if they are evaluations of one, give `step`"


def _has_steps(table: AskedTable) -> bool:
    return any(run.step is not None for run in table.runs)


Trap = tuple[str, str, str]
"""The problem, where it is, and the remedy."""


def _values(table: AskedTable) -> list[float]:
    return [run.value for run in table.runs if run.value is not None]


def _sentinels(table: AskedTable) -> Iterator[tuple[float, int, float, bool]]:
    """Values that programs write for a run that crashed, far from all others.

    Yields:
        The value, in how many runs it is, the nearest other value, and whether it is better than all others.
    """
    values = _values(table)
    for sentinel in SENTINELS:
        others = [value for value in values if value != sentinel]
        count = len(values) - len(others)
        if not count or not others or count > len(others):
            continue
        nearest = min(others) if sentinel < min(others) else max(others)
        if abs(nearest - sentinel) > FAR * table.margin and (sentinel < min(others) or sentinel > max(others)):
            yield sentinel, count, nearest, (sentinel < nearest) == (table.direction == "lower")


def _zero(table: AskedTable, question: QuestionSpec) -> Trap | None:
    """A crash that is written as 0 or -1, and then is the best value."""
    for sentinel, count, nearest, good in _sentinels(table):
        if good:
            run = next(run for run in table.runs if run.value == sentinel)
            others, best = ("at least", "minimum") if sentinel < nearest else ("at most", "maximum")
            return (
                f"{table.metric} is exactly {sentinel:g} in {plural(count, 'run')}, and {others} {nearest:g} in all "
                f"others: a crash that is the {best}?",
                f"question {table.name!r}, variant {run.variant!r}, {table.unit} {run.unit}",
                "Mark such rows as failed, as in `failed: {status: crash}`.",
            )
    return None


def _crashes(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """A crash that is written as a number that is worse than all others."""
    for sentinel, count, nearest, good in _sentinels(table):
        if not good:
            yield (
                f"{table.metric} is exactly {sentinel:g} in {plural(count, 'run')}, far from all others (the next is "
                f"{nearest:g}): if those crashed, mark them as failed (`failed`)"
            )


def _unfinished_runs(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Runs whose status says that they did not end, and that count with a value nevertheless."""
    counted = table.rows[(table.rows[FAILED] == "") & table.rows[table.metric].map(lambda cell: not is_missing(cell))]
    run = next((name for name in (UNIT, "run") if name in counted.columns), ORIGIN)
    for name in counted.columns:
        words = [] if str(name).startswith(OURS) else _words(str(name))
        cells = counted[name].map(cell_text)
        if words[-1:] in (["status"], ["state"]):
            texts = sorted({cell for cell in cells if cell.lower().rpartition(".")[2] in UNFINISHED})
        else:  # `crashed` is true
            texts = sorted({cell for cell in cells if cell.lower() == "true"}) if {*words[-1:]} & UNFINISHED else []
        if texts:
            ended = counted[cells.isin(texts)]
            where = ended[run].map(file_of) if run == ORIGIN and _has_steps(table) else ended[run]
            runs = len({*zip(ended[VARIANT], where, strict=True)})
            marks = " ".join(f"--failed {name}={text}" for text in texts)
            yield f"{plural(runs, 'run')} with {name} {listed(texts)}: the last value counts, without `{marks}`"


def _opposite(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """A direction that the name of the metric contradicts."""
    words = set(_words(table.metric))
    usual = {side for side, names in USUAL.items() if words & names}
    if usual and table.direction not in usual:
        yield f"{table.direction} {table.metric} was declared to be better: is that the right direction?"


def _mixed_columns(table: AskedTable, question: QuestionSpec) -> Trap | None:
    """A column that repeats one column in some rows and another in others."""
    from pandas import to_numeric

    columns = [name for name in table.rows.columns if not str(name).startswith(OURS) and name != table.metric]
    metric = to_numeric(table.rows[table.metric], errors="coerce")
    known = metric.notna()
    if known.sum() < 4 or metric[known].nunique() < 4:
        return None
    covered = {}
    for name in columns:
        same = (to_numeric(table.rows[name], errors="coerce") == metric) & known
        if same.sum() > 1 and metric[same].nunique() > 1:
            covered[str(name)] = same
    if any(same.sum() >= 0.99 * known.sum() for same in covered.values()):
        return None  # a column that is there twice
    for first in covered:
        for second in covered:
            together, shared = covered[first] | covered[second], covered[first] & covered[second]
            if first < second and together.sum() >= 0.9 * known.sum() and shared.sum() < 0.1 * known.sum():
                return (
                    f"{table.metric} is {first} in {int(covered[first].sum())} rows and {second} in "
                    f"{int(covered[second].sum())}: two metrics in one column",
                    f"question {table.name!r}",
                    f"Ask for {first} and for {second} apart, each with its direction and its margin.",
                )
    return None


def _percent(table: AskedTable, question: QuestionSpec) -> Trap | None:
    """Variants in percent beside variants in fractions."""
    top: dict[str, float] = {}
    for run in table.runs:
        if run.value is not None:
            top[run.variant] = max(top.get(run.variant, -math.inf), run.value)
    fractions = [name for name, most in top.items() if 0 < most <= 1]
    percents = [name for name, most in top.items() if 10 < most <= 100]
    if not fractions or not percents or len(fractions) + len(percents) < len(top):
        return None
    if not _is_rate(table.metric):
        return None
    return (
        f"{table.metric} is at most 1 in {listed(fractions)} and up to {max(top.values()):g} in {listed(percents)}: "
        "a fraction beside percent?",
        f"question {table.name!r}",
        "Write both in one unit.",
    )


def _is_rate(metric: str) -> bool:
    return any(word in metric.lower() for word in RATES)


def _folds(table: AskedTable, question: QuestionSpec) -> Trap | None:
    """Folds or episodes taken as units, or evaluations of a run as runs."""
    if (step := _evaluations(table)) is not None:
        return (
            f"the rows of a variant go on from {step} to {step}, and each counts as a run: evaluations of one run are "
            "not independent, so intervals would be too narrow",
            f"question {table.name!r}",
            f"Give `step: {step}`, and what tells runs apart, such as `seed`, `run` or a file for each.",
        )
    if table.unit.lower() not in WITHIN or not table.known:
        return None
    return (
        f"the values of {table.unit!r} lie within one training run or share its data, so they are not independent "
        "repeats: intervals would be too narrow",
        f"question {table.name!r}",
        f"Average over them by `over: {table.unit}`, and give the seed or the task as the unit.",
    )


def _evaluations(table: AskedTable) -> str | None:
    """The column of the step of rows that are taken as runs, though they go through the steps of a training run."""
    from pandas import to_numeric

    if table.known or _has_steps(table) or "run" in table.rows.columns:
        return None
    for name in filter(counts_progress, map(str, table.rows.columns)):
        steps = to_numeric(table.rows[name], errors="coerce")
        for _, own in steps.groupby(table.rows[VARIANT], sort=False):
            curves = (~own.diff().gt(0)).cumsum().value_counts()
            if curves.min() < _EVALUATIONS:
                break
        else:
            return name
    return None


def _summary(table: AskedTable, question: QuestionSpec) -> Trap | None:
    """Minima and maxima that W&B puts beside a run, and rows of means under a table, taken as runs."""
    names = table.rows[UNIT].astype(str) if UNIT in table.rows.columns else ()
    totals = sorted({name for name in names if re.sub(r"[\W\d_]+", " ", name.lower()).strip() in TOTALS})
    if totals and len(totals) < len(set(names)):
        return (
            f"the {table.unit} {totals[0]!r} names a summary of other rows, not a run",
            str(table.rows[ORIGIN][table.rows[UNIT] == totals[0]].iloc[0]),
            "Take such rows out of the table.",
        )
    for column in (VARIANT, UNIT, "run"):
        if column in table.rows.columns:
            wrong = table.rows[table.rows[column].astype(str).str.endswith(SUMMARY)]
            if len(wrong):
                return (
                    f"{wrong[column].iloc[0]!r} is W&B's summary of another run, not a run",
                    str(wrong[ORIGIN].iloc[0]),
                    "Read the export with `format: wandb`, which leaves these columns out.",
                )
    if (spread := _spread(table)) is not None and set(_words(table.metric)) <= AVERAGES:
        return (
            f"{table.metric} stands beside {spread!r}, so a row is the mean of several runs, not a run",
            f"question {table.name!r}",
            "Give the runs, a row for each.",
        )
    return None


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+\d*|\d+", name.lower())


def _spread(table: AskedTable) -> str | None:
    """The column with the spread of the metric, as in `acc` and `acc_std`, or `mean` and `std`."""
    of = [word for word in _words(table.metric) if word not in AVERAGES]
    for name in map(str, table.rows.columns):
        words = _words(name)
        if not name.startswith(OURS) and set(words) & SPREADS and [w for w in words if w not in SPREADS] == of:
            return name
    return None


_REFUSED: Mapping[str, Callable[[AskedTable, QuestionSpec], Trap | None]] = {
    "zero": _zero,
    "mixed": _mixed_columns,
    "percent": _percent,
    "folds": _folds,
    "summary": _summary,
}


def _averages(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """A metric that may be a mean over runs."""
    if (spread := _spread(table)) is not None and "group" not in table.rows.columns:
        yield (
            f"{spread!r} stands beside {table.metric}: if it is the spread over runs, a row is a mean of runs, and no "
            "interval here is right"
        )


def _unused_units(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """A column that tells the rows of every variant apart in the same way, where no unit is named."""
    if table.known or table.pair is False or any(run.curve for run in table.runs):
        return
    for name in table.rows.columns:
        if str(name).startswith(OURS) or name in ("index", "run", table.metric):
            continue
        cells = table.rows[name].map(cell_text)
        if _words(str(name))[-1:] == ["seed"] and cells.nunique() > 1:
            yield f"no seed is named, and there is a column {name}: is it the seed (`seed: {name}`)?"
            continue
        of = cells.groupby(table.rows[VARIANT]).agg([list, "nunique"])
        sets = {frozenset(values) for values in of["list"]}
        if len(of) > 1 and len(sets) == 1 and (of["nunique"] == of["list"].map(len)).all() and cells.nunique() > 1:
            use = f"the unit (`unit: {name}`), or several questions (`each`)"
            if all(cell.isdigit() for cell in cells):
                use = f"the seed (`seed: {name}`)"
            yield f"each variant has one row for each {name}: is it {use}?"


def _lost(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """What one side lacks."""
    theirs = table.of(table.baseline)
    for variant in table.variants[1:]:
        if table.paired(variant):
            ours = table.of(variant)
            lacks = [unit for unit in theirs if unit not in ours]
            more = [unit for unit in ours if unit not in theirs]
            if lacks or more:
                said = [f"{verb} {listed(units)}" for verb, units in (("lacks", lacks), ("alone has", more)) if units]
                yield f"{variant} {' and '.join(said)}: compared at the {table.unit}s that both have"


def _apart(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Means over other tasks than those of the baseline."""
    for variant in table.variants[1:] if table.known and table.unit != SEED and table.pair is None else ():
        if not table.paired(variant):
            both = f"{variant} and {table.baseline}"
            yield f"{both} have no {table.unit} in common: their difference is also that of their {table.unit}s"


def _alone(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Variants with one run, which show no spread."""
    single = [variant for variant in table.variants if len(table.of(variant)) == 1]
    if single:
        who = (
            f"one {table.unit} of each variant"
            if len(single) == len(table.variants)
            else f"one {table.unit} of {_few(single)}"
        )
        yield f"{who}: a single run shows no noise, so it has no verdict"


def _same(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Equal values under different seeds, and variants that are one experiment twice."""
    values = {variant: _finite(table.of(variant)) for variant in table.variants}
    for variant, own in values.items():
        precise = [value for value in own.values() if len(f"{value:.12g}".strip("-0.").replace(".", "")) >= _DIGITS]
        if len(precise) > len(set(precise)):
            yield f"runs of {variant} have equal values under different {table.unit}s: do seeds have any effect?"
        elif len(own) > 1 and len(set(own.values())) == 1:
            yield f"all {len(own)} values of {variant} are {next(iter(own.values())):g}: no spread to judge by"
    seen: dict[tuple[float, ...], str] = {}
    for variant, own in values.items():
        key = tuple(sorted(own.values()))
        if len(set(key)) > 1 and key in seen:
            yield f"{variant} and {seen[key]} have identical values: one experiment recorded twice counts twice in Holm"
        seen.setdefault(key, variant)


def _finite(runs: Mapping[str, TableRun]) -> dict[str, float]:
    return {unit: run.value for unit, run in runs.items() if run.value is not None}


def _names(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Names of digits that a reader before us has made numbers, and one name that is written in two ways."""
    written: dict[str, str] = {}
    for name in table.variants:
        first = written.setdefault(re.sub(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])", "", name.casefold()), name)
        if first != name:
            yield f"the variants {first!r} and {name!r} differ only in case, spaces or dashes: are they one?"
    names = [name for name in table.variants if name.lstrip("-").isdigit()]
    native = [
        name for name in table.rows.columns if not str(name).startswith(OURS) and table.rows[name].dtype.kind in "if"
    ]
    for column in native:
        texts = set(table.rows[column].map(lambda cell: f"{cell:g}" if isinstance(cell, float) else str(cell)))
        if names and set(names) <= texts and len({len(name) for name in names}) > 1:
            yield f"variants are numbers in the column {column!r}: a name such as 007 would have lost its zeros"


def _groups_of_processes(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Runs of one group of a tracker, as its users make of the processes of one training, of folds and of seeds."""
    if table.known or not {"group", "id"} <= {*table.rows.columns}:
        return
    runs = table.rows[table.rows["group"].map(cell_text) != ""].groupby([VARIANT, "group"], sort=False)["id"].nunique()
    if len(runs) and runs.max() > 1:
        (variant, group), most = runs.idxmax(), runs.max()
        yield (
            f"{most} runs of {variant} are of the group {group} and count apart: if they are processes or folds of one "
            "training, give `seed: group` and `over`"
        )


def _moving_baselines(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """A loop that keeps what helps: each run builds on those kept before it."""
    for name in table.rows.columns:
        if str(name).startswith(OURS):
            continue
        words = {str(cell).strip().lower() for cell in table.rows[name]}
        if 1 < len(words) <= 5 and words <= DECISIONS and words & {"keep", "kept", "accept", "accepted"}:
            yield (
                f"the column {name!r} says what a loop kept: each run builds on those kept before, so the baseline "
                f"moved, and {table.baseline} is compared with sums of changes"
            )


def _unequal_training(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Evaluations of unequal training, or chosen by their result."""
    steps = {run.step for run in table.runs if run.step is not None and run.value is not None}
    if question.reach is not None:
        late = [variant for variant in table.variants if any(run.censored for run in table.of(variant).values())]
        for variant in late:
            own = table.of(variant).values()
            count = sum(run.censored for run in own)
            yield (
                f"{count} of {plural(len(own), 'run')} of {variant} never reached {question.reach} (censored): each "
                "counts with its last value, so the true one is worse"
            )
    elif question.at == "best":
        yield "the best of several evaluations is optimistic, the more the more there are"
    elif len(steps) > 1 and question.at in (None, "last"):
        yield (
            f"runs end at different steps ({min(steps):g} to {max(steps):g}): their last values compare unequal "
            "training; `at: shared` does not"
        )
    if question.reach is None and (stopped := _stopped_variants(table)):
        yield (
            f"runs of {_few(stopped)} stop once they reach about the same {table.metric} (censored): it tells when "
            "they stopped; the time to the target is the question (`reach`)"
        )


def _stopped_variants(table: AskedTable) -> list[str]:
    """Variants all of whose runs end, at different steps, at the first value beyond one target."""
    found = []
    for variant in table.variants:
        curves = [list(run.curve.values()) for run in table.of(variant).values() if len(run.curve) > 3]
        if len(curves) < 2 or len({len(curve) for curve in curves}) < 2:
            continue
        sign = -1.0 if table.direction == "lower" else 1.0
        before = max(max(sign * value for value in curve[:-1]) for curve in curves)
        if before < min(sign * curve[-1] for curve in curves):
            found.append(variant)
    return found


def _definitions(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """A column that is the metric in another unit, and not in the same unit for all variants."""
    from pandas import to_numeric

    numbers = table.rows.assign(**{VARIANT: table.rows[VARIANT]})
    metric = to_numeric(numbers[table.metric], errors="coerce")
    for name in numbers.columns:
        if str(name).startswith(OURS) or name == table.metric:
            continue
        other = to_numeric(numbers[name], errors="coerce")
        usable = (
            metric.notna() & other.notna() & (other != 0) & (metric != 0) & np.isfinite(metric) & np.isfinite(other)
        )
        if usable.sum() < 4:
            continue
        ratios = (metric[usable] / other[usable]).groupby(numbers.loc[usable, VARIANT])
        varies = metric[usable].groupby(numbers.loc[usable, VARIANT]).agg(np.ptp) / metric[usable].abs().mean()
        spread = ratios.agg(np.ptp) / ratios.mean().abs()
        several = ratios.size() > 1
        if several.sum() > 1 and (spread[several] < EXACT).all() and (varies[several] > 10 * EXACT).all():
            means = ratios.mean()
            if (means.max() - means.min()) / abs(means.mean()) > 0.02:
                low, high = means.idxmin(), means.idxmax()
                yield (
                    f"{table.metric} / {name} is {means.min():.4g} in {low} and {means.max():.4g} in {high}: one of "
                    "the two is defined otherwise there (another tokenizer or unit), and only the other can be compared"
                )


def _far(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    """Variants that are better by so much that their metric may be another."""
    sign = 1.0 if table.direction == "lower" else -1.0
    theirs = [sign * value for value in _finite(table.of(table.baseline)).values()]
    far: dict[str, float] = {}
    for variant in table.variants[1:]:
        ours = [sign * value for value in _finite(table.of(variant)).values()]
        if ours and theirs and max(ours) < min(theirs):
            margins = (math.fsum(theirs) / len(theirs) - math.fsum(ours) / len(ours)) / table.margin
            if margins > FAR:
                far[variant] = margins
    if far:
        most = max(far.values())
        are = "is better by" if len(far) == 1 else "are better by up to"
        yield (
            f"{_few([*far])} {are} {most:.0f} margins: is {table.metric} defined alike "
            "everywhere (what it averages over, tokenizer, unit)?"
        )


def _margin(table: AskedTable, question: QuestionSpec) -> Iterator[str]:
    values = _values(table)
    if values and _is_rate(table.metric) and 1.5 < max(values) <= 100 and table.margin < 0.1:
        yield f"{table.metric} goes up to {max(values):g}, so it is in percent: the margin is {table.margin:g} points"
    if any(word in table.metric.lower() for word in MACHINE):
        yield f"{table.metric} depends on the machine: it compares variants only if all ran on the same"


_WARNED: Sequence[Callable[[AskedTable, QuestionSpec], Iterator[str]]] = (
    _opposite,
    _crashes,
    _unfinished_runs,
    _definitions,
    _unequal_training,
    _far,
    _same,
    _alone,
    _averages,
    _unused_units,
    _groups_of_processes,
    _moving_baselines,
    _margin,
    _names,
    _lost,
    _apart,
)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} others"

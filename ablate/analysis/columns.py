"""The columns of the ablation table, from which every output is made: terminal, reports, CSV, JSON, pages, legend.

To add a column, add one to `columns`. Nothing else is edited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ablate.analysis.answer_rows import withheld_in_words
from ablate.analysis.course import course_cell
from ablate.analysis.numbers import (
    MISSING,
    count,
    decimals_for,
    fixed,
    measured,
    percent,
    plural,
    times_within,
    with_interval,
)
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow, reference_words
from ablate.analysis.slices import switch_settings, varied_values
from ablate.stats import Interval, PairedDifference, Verdict, sign_flip
from ablate.stats.bounds import LEAST_PAIRS, at_least, at_most
from ablate.stats.further import in_percent
from ablate.stats.paired import MANY
from ablate.stats.trend import NEGLIGIBLE
from ablate.store.records import SETTLED, TrialState, VariantRecord

Value = str | int | float | bool | None
"""What a machine-readable cell holds."""
TRIVIAL = "trivial baseline"
"""Shown instead of a verdict for a trivial baseline."""
OF_TRAINING = frozenset({"parameters", "parameter_change", "steps_to_baseline", "course"})
"""Columns that runs which were trained elsewhere do not have."""
OF_MODEL = frozenset({"parameters", "parameter_change"})
"""Columns that trials of the user's trainer do not have."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as people read it.

    Attributes:
        text: On one line.
        lines: Shorter, on several lines, for a narrow terminal; `text` alone if empty.
        head: How many characters at the beginning of `text` are the main thing; what follows is less important.
        tone: A verdict in whose colour the head is written, or `dim`; mostly empty.
        number: What it shows, to sort by; None if it shows no number.
        half: Half of the 95 % interval of that number; None if it has none.
    """

    text: str
    lines: tuple[str, ...] = ()
    head: int = 0
    tone: str = ""
    number: float | None = None
    half: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the ablation table of one study.

    Attributes:
        key: Unique.
        title: Heading.
        text: The cell of a variant as people read it.
        value: For machines: name to value. None: the text of the cell, under the key.
        help: How to read the column, as lines of the legend; none if the heading says all.
        short: Heading on a narrow terminal; `title` if empty.
        number: Format of the numbers of its cells on a page (printf, or a name that Streamlit knows); empty for text.
        is_text: Whether cells are texts, set flush left and folded where they are long.
        informative: Whether it tells variants apart; if not, only written reports have it.
        dispensable: The order in which a narrow terminal leaves columns out, the least first; 0: never.
        beneath: Key of the column in whose cells a narrow terminal writes this one, as a further line; mostly empty.
        trivial: The value for the trivial baseline, which has a row of its own.
    """

    key: str
    title: str
    text: Callable[[VariantRow], Cell]
    value: Callable[[VariantRow], Mapping[str, Value]] | None = None
    help: tuple[str, ...] = ()
    short: str = ""
    number: str = ""
    is_text: bool = False
    informative: bool = True
    dispensable: int = 0
    beneath: str = ""
    trivial: Value = None

    def values(self, row: VariantRow) -> Mapping[str, Value]:
        """The machine-readable values of a variant by their names."""
        return {self.key: self.text(row).text} if self.value is None else self.value(row)

    def of_trivial(self, decimals: int) -> str:
        """The cell of the trivial baseline."""
        if self.trivial is None:
            return MISSING
        return fixed(self.trivial, decimals) if isinstance(self.trivial, float) else str(self.trivial)


def columns(report: StudyReport) -> tuple[Column, ...]:
    """The columns of the ablation table of a study, in their order."""
    write = _Writer(report, shared_decimals(report))
    trivial, axis = report.evidence.trivial, axis_title(report)
    mean = write if not report.rule.relative else _Writer(report, _own_decimals(report, report.metric))
    metrics = [
        Column(
            report.metric,
            report.metric,
            partial(mean.mean, metric=report.metric),
            value=partial(_mean_values, metric=report.metric, prefix=""),
            help=(_interval_help(report),),
            number=f"%.{mean.decimals}f",
            trivial=trivial.value if trivial else None,
        )
    ]
    if report.test_metric:
        metrics.append(
            Column(
                report.test_metric,
                report.test_metric,
                partial(write.mean, metric=report.test_metric),
                value=partial(_mean_values, metric=report.test_metric, prefix="test_"),
                help=(f"{report.test_metric}: measured once, at the end; no verdict reads it.",),
                number=f"%.{write.decimals}f",
            )
        )
    metrics += [_declared_column(report, name) for name in report.record.space.get("columns", ())]
    shown = (
        Column(
            "variant",
            "variant",
            lambda row: Cell(row.name),
            is_text=True,
            trivial=trivial.name if trivial else None,
            value=lambda row: {"variant": row.name, "hash": row.hash},
        ),
        Column(
            "parameters",
            "parameters",
            _parameters,
            short="params",
            number="localized",
            dispensable=4,
            value=lambda row: {"parameters": row.parameters},
        ),
        Column(
            "parameter_change",
            "change",
            _parameter_change,
            number="percent",
            beneath="parameters",
            value=lambda row: {"parameter_change": row.parameter_change},
        ),
        *_tuned_columns(report),
        Column(
            "seeds",
            f"{report.unit}s" if report.record.judged else "seeds",
            lambda row: Cell(f"{len(row.finished)}/{len(row.planned)}"),
            value=_seeds,
            informative=any(state not in SETTLED for row in report.variants for state in row.states.values()),
        ),
        *metrics,
        Column(
            "difference",
            "difference",
            write.difference,
            short="diff.",
            number=f"%+.{write.decimals}f",
            value=partial(_difference_values, report=report),
            help=(_difference_help(report),),
        ),
        Column(
            "verdict",
            "verdict",
            write.verdict,
            is_text=True,
            help=tuple(_verdict_help(report)),
            trivial=TRIVIAL,
            value=partial(_verdict_values, report=report),
        ),
        Column(
            "steps_to_baseline",
            axis,
            lambda row: Cell(steps_to_baseline(row)),
            dispensable=2,
            help=(_axis_help(report),),
            value=lambda row: {
                "steps_to_baseline": row.steps_to_baseline.median,
                "reached_baseline": row.steps_to_baseline.reached,
            },
        ),
        Column(
            "course",
            "course",
            lambda row: Cell(course_cell(row.course)),
            dispensable=3,
            help=_course_help(report),
            value=partial(_course_values, report=report),
            informative=any(row.course for row in report.variants),
        ),
        *([_speed_column()] if report.timed else []),
    )
    absent = {"steps_to_baseline"} if report.rule.relative else set[str]()  # the objective itself is such a time
    if not report.record.knows_models:
        absent |= OF_MODEL if report.record.judged is None else OF_TRAINING
    return tuple(column for column in shown if column.key not in absent)


def legend(shown: Iterable[Column]) -> tuple[str, ...]:
    """How to read these columns: a line or more for each that needs it."""
    return tuple(line for column in shown for line in column.help)


def machine_row(row: VariantRow, shown: Iterable[Column]) -> dict[str, Value]:
    """The values of a variant in all columns, by their names; what CSV, Parquet, JSON and notebooks hold."""
    return {name: value for column in shown for name, value in column.values(row).items()}


def groups(report: StudyReport) -> list[list[VariantRow]]:
    """The baseline, then the variants that change one switch by switch, then the others; each in the design's order.

    Switches with one variant each share a group: a blank line between any two of them would only stretch the table.
    """
    single: dict[str, list[VariantRow]] = {}
    others = []
    for row in report.variants:
        if row.name == report.record.baseline:
            continue
        switch, _, setting = row.name.partition("=")
        if setting and row.settings.get(switch) == setting:
            single.setdefault(switch, []).append(row)
        else:
            others.append(row)
    several = [group for group in single.values() if len(group) > 1]
    lone = [row for group in single.values() if len(group) == 1 for row in group]
    return [group for group in ([report.baseline], *several, lone, others) if group]


def shared_decimals(report: StudyReport) -> int:
    """With how many decimals the objective and its differences are written, in all rows alike."""
    shown = () if report.rule.relative else report.variants
    intervals = [row.metrics[report.metric] for row in shown if report.metric in row.metrics]
    differences = [row.difference for row in report.variants if row.difference is not None]
    bounds = [(interval.low, interval.high) for interval in intervals]
    bounds += [(difference.low, difference.high) for difference in differences]
    widths = [(high - low) / 2 for low, high in bounds if low is not None and high is not None]
    return decimals_for(report.margin, widths)


def axis_title(report: StudyReport) -> str:
    """The unit in which a column says when a variant reached the final loss of the baseline."""
    return "FLOP" if report.evidence.matching.axis == "flops" else report.evidence.matching.axis


def steps_to_baseline(row: VariantRow) -> str:
    """After how many steps (tokens, seconds, FLOP) a variant got where the baseline ended."""
    steps = row.spent_to_baseline
    if not steps.of:
        return MISSING
    if steps.median is not None:
        return f"{steps.median:.0f}" if 10 <= steps.median < 1e6 else f"{steps.median:.3g}"
    return f"{steps.reached} of {steps.of}" if steps.reached else "never"


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the cells of one study, all numbers of a column with the same decimals."""

    report: StudyReport
    decimals: int

    def mean(self, row: VariantRow, metric: str) -> Cell:
        """The mean over the finished seeds with its interval, or why there is none."""
        if row.lost:
            return Cell(row.lost, head=len(row.lost), tone="diverged" if row.diverged else "dim")
        interval = row.mean(metric)
        return Cell(MISSING) if interval is None else self._numbers(interval.mean, interval.low, interval.high)

    def difference(self, row: VariantRow) -> Cell:
        """The difference from the baseline with its interval."""
        paired = row.shown_difference
        if paired is None:
            return Cell(MISSING)
        return self._numbers(paired.difference, paired.low, paired.high, sign=True)

    def _numbers(self, mean: float | None, low: float | None, high: float | None, sign: bool = False) -> Cell:
        parts = with_interval(mean, low, high, partial(fixed, decimals=self.decimals, sign=sign))
        half = None if low is None or high is None else (high - low) / 2
        return _interval_cell(parts, mean, half)

    def verdict(self, row: VariantRow) -> Cell:
        """The verdict as a sentence; on a narrow terminal its word and the reason in a few characters."""
        if row.verdict is None:
            return Cell(row.verdict_cell, head=len(row.verdict_cell), tone="dim")
        word = row.verdict_word
        return Cell(row.verdict_cell, (word, self._reason(row, row.verdict)), len(word), row.verdict.word)

    def _reason(self, row: VariantRow, verdict: Verdict) -> str:
        unit, margin = self.report.unit, self.report.margin
        if verdict.word == "diverged":
            return f"{len(row.diverged)} of {plural(len(row.planned), unit)}"
        if verdict.word == "undecided":
            return _what_lacks(row, verdict, unit)
        assert verdict.bound is not None, "what is decided has a bound"
        low, high = verdict.bound.low, verdict.bound.high
        if verdict.is_worse:
            return f"≥ {at_least(low, margin)} worse"
        return f"≥ {at_least(-high, margin)} better" if high < 0 else f"≤ {at_most(high, margin)} worse"


def _what_lacks(row: VariantRow, verdict: Verdict, unit: str) -> str:
    """What an undecided comparison lacks."""
    if row.running:
        return row.progress(unit)
    if verdict.further_seeds is not None and verdict.chance is not None:
        return f"{verdict.further_seeds} more: {in_percent(verdict.chance)}"
    if verdict.further_seeds is not None:
        return f"~{plural(verdict.further_seeds, f'more {unit}')}"
    if verdict.withheld:
        return withheld_in_words(verdict)
    return "no spread" if row.difference is not None and row.difference.is_flat else f"many more {unit}s"


def _interval_cell(parts: list[str], number: float | None, half: float | None = None) -> Cell:
    return Cell(" ".join(parts), tuple(parts), len(parts[0]), number=number, half=half)


def _parameters(row: VariantRow) -> Cell:
    whole = MISSING if row.parameters is None else f"{row.parameters:,}"
    return Cell(whole, (count(row.parameters),), number=row.parameters)


def _parameter_change(row: VariantRow) -> Cell:
    text = percent(row.parameter_change)
    return Cell(text, head=len(text), tone="dim", number=row.parameter_change)


def _tuned_columns(report: StudyReport) -> Iterator[Column]:
    """A column for each tuned path, under the last part of its name, or more where that is not enough."""
    paths = list(report.evidence.tuning.grid) if report.evidence.tuning is not None else []
    ends = [path.rpartition(".")[2] for path in paths]
    of = " on tasks" if "tasks" in report.record.space else ""
    for path, end in zip(paths, ends, strict=True):
        yield Column(
            f"tuned {path}",
            (end if ends.count(end) == 1 else path) + of,
            partial(_tuned_cell, path, report),
            value=lambda row: {},
        )  # among the varied values


def _tuned_cell(path: str, report: StudyReport, row: VariantRow) -> Cell:
    """The value that was chosen for a variant, or those for its tasks; with an asterisk at an edge of its grid."""
    assert report.evidence.tuning is not None
    tuned = report.evidence.tuning.of[row.name]
    if tuned.values is None:
        return Cell(MISSING)
    value = tuned.values[path]
    by_task = isinstance(value, Mapping) and {*value} == {*report.record.space.get("tasks", ())}
    shown = ", ".join(dict.fromkeys(map(str, value.values()))) if by_task else value
    return Cell(f"{shown}{'*' if path in tuned.edges else ''}")


def _seeds(row: VariantRow) -> dict[str, Value]:
    return {
        "planned": len(row.planned),
        "finished": len(row.finished),
        "diverged": len(row.diverged),
        "pruned": list(row.states.values()).count(TrialState.PRUNED),
    }


def _mean_values(row: VariantRow, metric: str, prefix: str) -> dict[str, Value]:
    interval = row.metrics.get(metric)
    return {f"{prefix}{name}": getattr(interval, name, None) for name in ("mean", "low", "high")}


def _difference_values(row: VariantRow, report: StudyReport) -> dict[str, Value]:
    paired = row.difference if row.verdict is not None else None
    flip = None if paired is None else flip_at_margin(paired, report)
    return {
        "difference": paired.difference if paired else None,
        "difference_low": paired.low if paired else None,
        "difference_high": paired.high if paired else None,
        "pairs": paired.n if paired else None,
        "standard_error": row.difference.standard_error if row.difference else None,
        "effect_size": paired.effect_size if paired else None,
        "sign_flip_at_margin_p": flip["p"] if flip else None,
        "sign_flip_at_margin_floor": flip["floor"] if flip else None,
    }


def flip_at_margin(difference: PairedDifference, report: StudyReport) -> dict[str, float] | None:
    """The exact check on a verdict: the differences against the margin; None below `LEAST_PAIRS`, or if not paired."""
    if len(difference.values) < LEAST_PAIRS:
        return None
    flipped = sign_flip(difference.values, report.margin if report.direction == "minimize" else -report.margin)
    return {"p": flipped.p, "floor": flipped.floor}


def _verdict_values(row: VariantRow, report: StudyReport) -> dict[str, Value]:
    verdict = row.verdict
    return {
        "verdict": verdict.word if verdict else None,
        "reason": row.verdict_sentence if verdict else None,
        "further_seeds": verdict.further_seeds if verdict else None,
        "holds_together": row.name in report.answer.together if verdict else None,
    }


def _course_values(row: VariantRow, report: StudyReport) -> dict[str, Value]:
    movement = row.course.movement if row.course else None
    return {
        "course": row.course.word if row.course else None,
        "movement": movement.difference if movement else None,
        "movement_low": movement.low if movement else None,
        "movement_high": movement.high if movement else None,
        "provisional": row.provisional(report.margin),
    }


def _own_decimals(report: StudyReport, name: str) -> int:
    """With how many decimals a metric other than the objective is written."""
    known = [row.metrics[name] for row in report.variants if name in row.metrics]
    widths = [(mean.high - mean.low) / 2 for mean in known if mean.low is not None and mean.high is not None]
    size = max((abs(mean.mean) for mean in known if mean.mean), default=1.0)
    return decimals_for(size / 100, widths)


def _declared_column(report: StudyReport, name: str) -> Column:
    """A column that the space declares: a metric or a cost."""
    write = _Writer(report, _own_decimals(report, name))
    value = partial(_mean_values, metric=name, prefix=f"{name}_")
    return Column(
        name, name, partial(write.mean, metric=name), value=value, number=f"%.{write.decimals}f", dispensable=1
    )


def _speed_column() -> Column:
    def values(row: VariantRow) -> dict[str, Value]:
        speed = row.relative_speed or Interval(None, None, None, 0)
        return {"relative_speed": speed.mean, "relative_speed_low": speed.low, "relative_speed_high": speed.high}

    def text(row: VariantRow) -> Cell:
        known = measured(row.relative_speed)
        return _interval_cell(times_within(row.relative_speed).split(" ", 1), known[0] if known else None)

    line = (
        "speed: training tokens per second, relative to the baseline, from steps of both in turns in one process; "
        "geometric mean of the rounds with its 95 % interval, unless this is wider than a factor of 2."
    )
    return Column("relative_speed", "speed", text, value=values, help=(line,), dispensable=1)


def _interval_help(report: StudyReport) -> str:
    rows, schedule = report.variants, report.rule.schedule
    over = "initial values and batches; same split and validation windows"
    if report.record.judged is not None:
        over = f"{report.unit}s"
    elif report.evidence.windows:
        over = f"{report.evidence.windows} validation windows of one model, resampled"
    draw = ""
    if report.evidence.draw_sd:  # None if not measured, 0 if below what could be
        moves = f"{report.evidence.draw_sd:.1g} (standard deviation)"
        draw = f"; another draw of these windows would move a difference by about {moves}"
    looks = f", over all looks from {schedule.start} to {schedule.max} seeds" if schedule else ""
    is_lopsided = report.evidence.tails is not None or any(row.difference and row.difference.n >= MANY for row in rows)
    lopsided = "; [low, high] where it is not symmetric" if is_lopsided else ""
    return f"±: 95 % interval over {over}{draw}{looks}{lopsided}."


def _difference_help(report: StudyReport) -> str:
    better = "lower" if report.direction == "minimize" else "higher"
    reference = reference_words(report.baseline, report.variants)
    paired = all(report.record.pairs(row.name) for row in report.variants if row.difference is not None)
    how = f" at the same {report.unit}" if paired else f", {report.pairing}"
    if report.rule.relative:
        return f"difference: {report.metric} of the variant over that of {reference}{how}, minus 1: 0.05 is 5 % more."
    minus = f"variant minus {reference.removeprefix('the ')}"
    return f"difference: {minus}{how}; {better} {report.metric} is better."


def _verdict_help(report: StudyReport) -> Iterator[str]:
    schedule, margin = report.rule.schedule, f"{report.margin:g}"
    looks = f" at every look from {schedule.start} to {schedule.max} seeds" if schedule else ""
    chance = ""
    if any(row.verdict is not None and row.verdict.chance is not None for row in report.variants):
        decides = f"the chance that 12 more {report.unit}s decide; it is smaller near the margin"
        chance = f" (`12 more: 60 %` would be {decides})"
    yield (
        f"verdict, by one-sided 95 % bounds{looks} on how much worse a variant is: needed or worse, above {margin}; "
        f"not needed or not worse, below {margin}; better, below -{margin}; undecided, none of these{chance}."
    )
    if any(row.chosen or row.confirmed for row in report.variants):
        yield (
            "selected: chosen by results, so estimates on these seeds are biased. For confirmed variants difference "
            "and verdict rest on fresh seeds of the variant and the baseline."
        )
    if assumed := report.assumption:
        yield f"A verdict {assumed}."


def _axis_help(report: StudyReport) -> str:
    some = any(0 < row.spent_to_baseline.reached < row.spent_to_baseline.of for row in report.variants)
    partly = "; `1 of 3`: only 1 of 3 seeds reached it" if some else ""
    reached = "until the baseline's final validation loss, median over seeds of smoothed curves"
    return f"{axis_title(report)}: {reached}{partly}."


def _course_help(report: StudyReport) -> tuple[str, ...]:
    """How to read the course, and whether points before the end may stand for shorter training."""
    courses = [row.course for row in report.variants if row.course is not None]
    if not courses:
        return ()
    decays = any(course.comparable is False for course in courses)
    shorter = " The learning rate decays: earlier points do not show where shorter training runs would end."
    decay = shorter if decays else ""
    line = (
        "course: how much the difference changed over the last third of training; by its 95 % interval growing, "
        f"shrinking or crossing zero, by more than {NEGLIGIBLE * report.margin:g}; settled, by less than "
        f"{report.margin:g}; unclear, neither.{decay}"
    )
    return (line,)


def varied_cells(variant: VariantRecord, report: StudyReport) -> dict[str, Value]:
    """Whatever the study varied in a variant: settings of switches, and values of paths, parts of a spec as JSON."""
    tuning, settings = report.evidence.tuning, switch_settings(report.record, variant)
    own = tuning.of.get(variant.name) if tuning else None
    cells: dict[str, Value] = {f"switch.{switch}": setting for switch, setting in settings.items()}
    for path, value in {**varied_values(report.record, variant), **((own and own.values) or {})}.items():
        plain = value if value is None or isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)
        cells[f"{'tuned' if tuning and path in tuning.grid else 'value'}.{path}"] = plain
    return cells

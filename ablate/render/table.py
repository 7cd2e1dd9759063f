"""The ablation table, drawn with rich: colour on a terminal, plain text in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.analysis.answer import shared_decimals
from ablate.analysis.course import course_cell
from ablate.analysis.failures import MOST_SHOWN, Failure
from ablate.analysis.fairness import fairness_lines
from ablate.analysis.numbers import MISSING, count, fixed, percent, times_within, with_interval
from ablate.analysis.rows import VariantRow
from ablate.analysis.sentences import Judged
from ablate.analysis.study import StudyReport
from ablate.analysis.text import counted, plural
from ablate.render.cells import NARROW, joined, plain, plain_table
from ablate.render.claim_lines import print_claims
from ablate.render.legend import axis_title, legend
from ablate.render.names import in_lines, named
from ablate.stats.rounding import at_least, at_most
from ablate.stats.verdict import ACCEPTABLE, WORSE, in_percent
from ablate.store.records import SETTLED, TrialState

WIDE = 120
"""Columns from which parameter counts and headings are written out."""
MOST_ROWS = 100
"""Of a table on a terminal; there are more in few studies, and laying out a thousand takes seconds."""
TRIVIAL = "trivial baseline"
"""Shown instead of a verdict for a trivial baseline."""
CAUTION = "Caution:"
"""The first word of each caveat of an answer."""
COLOURS: dict[str, str] = {
    **dict.fromkeys(WORSE, "red"),
    **dict.fromkeys(ACCEPTABLE, "green"),
    "better": "cyan",
    "undecided": "yellow",
    "diverged": "magenta",
}
"""Verdict to its colour on a terminal."""


def print_study(report: StudyReport, console: Console, most: int | None = None) -> None:
    """Print a study: its question, how far it has come, the table, how to read it, the answer, the claims.

    Args:
        report: The study.
        console: Where to.
        most: Rows of the table; a line says how to see the others. None: all.
    """
    console.print(plain(report.record.question or report.record.name, "bold"))
    console.print(plain(_progress(report), "dim"))
    console.print()
    print_table(report, console, most)
    console.print()
    print_checks(report, console)
    if report.claims:
        console.print()
        print_claims(report.claims, console)


def print_table(report: StudyReport, console: Console, most: int | None = None) -> None:
    """Print the table of a study and how to read it; `most` as in `print_study`."""
    console.print(study_table(report, console, most))
    if most is not None and most < len(report.variants):
        shown = f"The first {most:,} of {len(report.variants):,} variants; `ablate show STUDY --all` shows every one."
        console.print(plain(shown, "yellow"))
    console.print()
    for line in legend(report, _plus_minus(console)):
        console.print(plain(line, "dim"))
    for line in fairness_lines(report.tuning, report.matching, report.metric):
        console.print(plain(line, "yellow" if line.startswith("*") else "dim"))


def print_checks(report: StudyReport, console: Console) -> None:
    """Print every sentence on the verdicts of a study, those that limit them first, and the trials that failed."""
    print_caveats(report, console)
    for sentence in report.answer[len(report.caveats) :]:
        console.print(plain(sentence, "bold"))
    _print_failures(report.failures, console)


def print_caveats(report: StudyReport, console: Console) -> None:
    """Print what makes the comparison worth little; nothing if nothing does."""
    for sentence in report.caveats:
        console.print(plain(f"{CAUTION} {sentence}", "bold yellow"))


def _print_failures(failures: Sequence[Failure], console: Console) -> None:
    if not failures:
        return
    console.print()
    console.print(plain(f"Failed: {plural(len(failures), 'trial')}", "bold red"))
    for failure in failures[:MOST_SHOWN]:
        console.print(Text("  ") + plain(f"{failure.variant}, seed {failure.seed}: {failure.line}"))
    if len(failures) > MOST_SHOWN:
        console.print(
            plain(f"and {len(failures) - MOST_SHOWN} more; `ablate show STUDY --json` has every reason.", "dim")
        )


def study_table(report: StudyReport, console: Console, most: int | None = None) -> Table:
    """The table of a study, laid out for the width of `console`: baseline, then switch by switch, then the rest.

    Where room is scarce a variant takes two lines: its name, its numbers and its verdict are broken where it makes
    sense. Where that does not suffice, columns are left out, the least important first.
    """
    layout, gap = _Layout.of(report, console), 1 if console.width < NARROW else 2
    left = iter(range(len(report.variants) if most is None else most))
    rows = [[row for row, _ in zip(group, left, strict=False)] for group in groups(report)]
    columns = layout.columns(report, [row for group in rows for row in group])
    trivial = [report.trivial.name] if report.trivial else []
    names = [*(row.name for group in rows for row in group), *trivial]
    narrowest = max(map(_folded_width, names))

    def room() -> int:
        """Characters that are left for names."""
        return console.width - sum(column.width + gap for column in columns)

    for key in _DISPENSABLE:
        if room() < narrowest:
            columns = [column for column in columns if column.key != key]
    width = max(min(room(), max(map(len, names))), len("variant"))
    table = plain_table(gap=gap)
    table.add_column(plain("variant"), overflow="fold", width=width)
    for column in columns:
        if column.key == _VERDICT:
            table.add_column(plain(column.title), overflow="fold")
        else:
            table.add_column(plain(column.title), justify="right", no_wrap=True)
    for group in rows:
        for row in group:
            table.add_row(named(row.name, width), *(column.cells[row.name] for column in columns))
        table.add_section()
    if report.trivial:
        value = fixed(report.trivial.value, layout.decimals)
        values = {report.metric: value, _VERDICT: TRIVIAL}
        cells = [report.trivial.name, *(values.get(column.key, MISSING) for column in columns)]
        table.add_row(*(plain(cell, "dim") for cell in cells))
    return table


def _folded_width(name: str) -> int:
    """The least width at which a name takes two lines at most."""
    return next(width for width in range(1, len(name) + 1) if _lines(name, width) <= 2)


def _lines(name: str, width: int) -> int:
    """The lines that a name takes in a column of a width; what does not fit in a line is folded."""
    return sum(-(-len(line) // width) for line in in_lines(name, width).splitlines())


_VERDICT, _STEPS, _SPEED, _COURSE, _PARAMETERS = "verdict", "steps", "speed", "course", "parameters"
_DISPENSABLE = (_SPEED, _STEPS, _COURSE, _PARAMETERS)
"""Columns that a narrow terminal goes without, the first to go first."""
_SENTENCE = 30
"""Characters to which the sentence of a verdict is folded at least."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column but that of the names: `cells` by the name of the variant."""

    key: str
    title: str
    cells: Mapping[str, Text]

    @property
    def width(self) -> int:
        """Characters of its longest line."""
        lines = [self.title, *(line for cell in self.cells.values() for line in cell.plain.splitlines())]
        longest = max(map(len, lines))
        return min(longest, _SENTENCE) if self.key == _VERDICT else longest


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the cells of one table are written."""

    metric: str
    test_metric: str | None
    decimals: int
    plus_minus: str
    wide: bool
    stacked: bool
    judged: Judged

    @classmethod
    def of(cls, report: StudyReport, console: Console) -> Self:
        wide, stacked = console.width >= WIDE, console.width < NARROW
        metrics, decimals = (report.metric, report.test_metric), shared_decimals(report)
        judged = Judged(report.metric, report.direction, report.margin, report.schedule, report.unit)
        return cls(*metrics, decimals, _plus_minus(console), wide, stacked, judged)

    def columns(self, report: StudyReport, rows: Sequence[VariantRow]) -> list[_Column]:
        """All columns but the names."""
        shown: list[tuple[str, str, Callable[[VariantRow], Text]]] = []
        if any(map(_is_incomplete, report.variants)):
            shown.append(("seeds", "seeds", lambda row: plain(f"{len(row.finished)}/{len(row.planned)}")))
        shown.append((_PARAMETERS, "parameters" if self.wide else "params", self._parameters))
        for at, title in enumerate(tuned_titles(report)):
            shown.append((f"tuned {at}", title, partial(_tuned, report, at)))
        for metric in (self.metric, self.test_metric):
            if metric:
                shown.append((metric, metric, partial(self._mean, metric=metric)))
        shown.append(("difference", "difference" if self.wide else "diff.", self._difference))
        shown.append((_VERDICT, "verdict", self._verdict))
        shown.append((_STEPS, axis_title(report), lambda row: plain(steps_to_baseline(row))))
        if any(row.course for row in report.variants):
            shown.append((_COURSE, "course", lambda row: plain(course_cell(row.course))))
        if report.timed:
            shown.append((_SPEED, "speed", lambda row: self._speed(row)))
        return [_Column(key, title, {row.name: write(row) for row in rows}) for key, title, write in shown]

    def _verdict(self, row: VariantRow) -> Text:
        """The verdict as a sentence, or in two short lines."""
        if row.verdict is None:
            return plain(row.verdict_cell, "dim")
        colour = COLOURS[row.verdict.word]
        if not self.wide:
            return joined([plain(row.verdict_word, colour), plain(self._reason(row))])
        sentence = plain(row.verdict_cell)
        sentence.stylize(colour, 0, len(row.verdict_word))
        return sentence

    def _reason(self, row: VariantRow) -> str:
        """The reason of a verdict in a few characters."""
        assert row.verdict is not None
        if row.verdict.word == "diverged":
            return f"{len(row.diverged)} of {plural(len(row.planned), 'seed')}"
        if row.verdict.word == "undecided":
            further, chance = row.verdict.further_seeds, row.verdict.chance
            if further is not None and chance is not None:
                return f"{further} more: {in_percent(chance)}"
            if further is not None:
                return f"~{plural(further, f'more {self.judged.unit}')}"
            return (
                "no spread"
                if row.difference is not None and row.difference.is_flat
                else f"many more {self.judged.unit}s"
            )
        least, most = ("≥", "≤") if self.plus_minus == "±" else (">=", "<=")
        (low, high), margin = self.judged.worse(row) or (0.0, 0.0), self.judged.margin
        if row.verdict.is_worse:
            return f"{least} {at_least(low, margin)} worse"
        return f"{least} {at_least(-high, margin)} better" if high < 0 else f"{most} {at_most(high, margin)} worse"

    def _parameters(self, row: VariantRow) -> Text:
        parameters = plain(f"{row.parameters:,}" if self.wide else count(row.parameters))
        change = percent(row.parameter_change)
        if row.parameter_change is None or change == "0%":
            return parameters
        changed = plain(change, "dim")
        return Text(" ").join([parameters, changed]) if self.wide else joined([parameters, changed])

    def _mean(self, row: VariantRow, metric: str) -> Text:
        if row.lost:
            return plain(row.lost, COLOURS["diverged"] if row.diverged else "dim")
        interval = row.mean(metric)
        if interval is None:
            return plain(MISSING)
        return self._with_interval(interval.mean, interval.low, interval.high)

    def _difference(self, row: VariantRow) -> Text:
        paired = row.shown_difference
        if paired is None:
            return plain(MISSING)
        return self._with_interval(paired.difference, paired.low, paired.high, sign=True)

    def _speed(self, row: VariantRow) -> Text:
        shown, _, interval = times_within(row.relative_speed).partition(" ")
        parts = [plain(shown), *([plain(interval, "dim")] if interval else [])]
        return (Text("\n") if self.stacked else Text(" ")).join(parts)

    def _with_interval(self, mean: float | None, low: float | None, high: float | None, sign: bool = False) -> Text:
        write = partial(fixed, decimals=self.decimals, sign=sign)
        shown, *interval = with_interval(mean, low, high, write, self.plus_minus)
        parts = [plain(shown), *(plain(text, "dim") for text in interval)]
        return (Text("\n") if self.stacked else Text(" ")).join(parts)


def _plus_minus(console: Console) -> str:
    return "+/-" if console.options.ascii_only else "±"


def _progress(report: StudyReport) -> str:
    ended = f"{report.progress[TrialState.FINISHED]} of {plural(report.planned, 'trial')} finished"
    others = counted((state.value, n) for state, n in report.progress.items() if state is not TrialState.FINISHED)
    return ", ".join([ended, *others])


def tuned_titles(report: StudyReport) -> list[str]:
    """Titles of the columns of tuned values: the last part of their paths, or more where that is not enough."""
    paths = list(report.tuning.grid) if report.tuning is not None else []
    ends = [path.rpartition(".")[2] for path in paths]
    return [end if ends.count(end) == 1 else path for path, end in zip(paths, ends, strict=True)]


def tuned_cells(report: StudyReport, row: VariantRow) -> list[str]:
    """The values that were chosen for a variant; those at an edge of their grid have an asterisk."""
    if report.tuning is None:
        return []
    tuned = report.tuning.of[row.name]
    if tuned.values is None:
        return [MISSING] * len(report.tuning.grid)
    return [f"{value}{'*' if path in tuned.edges else ''}" for path, value in tuned.values.items()]


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


def _tuned(report: StudyReport, at: int, row: VariantRow) -> Text:
    return plain(tuned_cells(report, row)[at])


def _is_incomplete(row: VariantRow) -> bool:
    return any(state not in SETTLED for state in row.states.values())


def steps_to_baseline(row: VariantRow) -> str:
    """The cell that says after how many steps (tokens, seconds, FLOP) a variant got where the baseline ended."""
    steps = row.spent_to_baseline
    if not steps.of:
        return MISSING
    if steps.median is not None:
        return f"{steps.median:.0f}" if 10 <= steps.median < 1e6 else f"{steps.median:.3g}"
    return f"{steps.reached} of {steps.of}" if steps.reached else "never"

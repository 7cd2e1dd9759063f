"""The ablation table, drawn with rich: colour on a terminal, plain text in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.report.claim_lines import print_claims
from ablate.report.failures import MOST_SHOWN, Failure
from ablate.report.fairness import fairness_lines
from ablate.report.names import named
from ablate.report.numbers import MISSING, count, decimals_for, fixed, percent, times, with_interval
from ablate.report.study import LEAST_SECONDS, StudyReport, VariantRow
from ablate.report.text import NARROW, counted, joined, plain, plain_table, plural
from ablate.stats.bootstrap import MANY
from ablate.store.records import TrialState

WIDE = 120
"""Columns from which parameter counts and headings are written out."""
MOST_ROWS = 100
"""Of a table on a terminal; there are more in few studies, and laying out a thousand takes seconds."""
TRIVIAL = "trivial baseline"
"""What stands in place of a verdict for a rule that learns nothing."""
COLOURS = {"needed": "red", "not needed": "green", "undecided": "yellow", "diverged": "magenta"}


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
    console.print(study_table(report, console, most))
    if most is not None and most < len(report.variants):
        shown = f"The first {most:,} of {len(report.variants):,} variants; `ablate show STUDY --all` shows every one."
        console.print(plain(shown, "yellow"))
    console.print()
    console.print(plain(legend(report, _plus_minus(console)), "dim"))
    for line in fairness_lines(report.tuning, report.matching, report.metric):
        console.print(plain(line, "yellow" if line.startswith("*") else "dim"))
    console.print()
    for sentence in report.answer:
        console.print(plain(sentence, "bold"))
    _print_failures(report.failures, console)
    if report.claims:
        console.print()
        print_claims(report.claims, console)


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


def study_svg(report: StudyReport, width: int = 140) -> str:
    """What `print_study` prints, as an SVG picture of a terminal `width` columns wide."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor")
    print_study(report, console)
    return console.export_svg(title=f"ablate show {report.record.name}")


def study_table(report: StudyReport, console: Console, most: int | None = None) -> Table:
    """The table of a study, laid out for the width of `console`: baseline, then switch by switch, then the rest."""
    layout = _Layout.of(report, console)
    left = iter(range(len(report.variants) if most is None else most))
    rows = [[(row, layout.name(row)) for row, _ in zip(group, left, strict=False)] for group in groups(report)]
    names = [*(name.plain for group in rows for _, name in group), report.trivial.name if report.trivial else ""]
    longest = max(len(line) for name in names for line in name.splitlines())
    table = plain_table(gap=1 if console.width < NARROW else 2)
    # Only the verdict shrinks when room is scarce: rich would cut numbers, or names in the middle of a word.
    table.add_column(plain("variant"), overflow="fold", width=min(longest, _room(console)))
    tested = [report.test_metric] if report.test_metric else []
    tuned = tuned_titles(report)
    titles = ["parameters" if layout.wide else "params", *tuned, report.metric, *tested, "difference"]
    for title in titles:
        table.add_column(plain(title), justify="right", no_wrap=True)
    table.add_column(plain("verdict"), overflow="fold")
    table.add_column(plain(axis_title(report)), justify="right", no_wrap=True)
    table.add_column(plain("speed"), justify="right", no_wrap=True)
    for group in rows:
        for row, name in group:
            table.add_row(name, *layout.cells(row, [plain(cell) for cell in tuned_cells(report, row)]))
        table.add_section()
    if report.trivial:
        value = fixed(report.trivial.value, layout.decimals)
        before, after = [MISSING] * (1 + len(tuned)), [MISSING] * (len(tested) + 1)
        cells = (report.trivial.name, *before, value, *after, TRIVIAL, MISSING, MISSING)
        table.add_row(*(plain(cell, "dim") for cell in cells))
    return table


def _room(console: Console) -> int:
    """Characters that a name may take."""
    return console.width // 4


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the cells of one table are written."""

    metric: str
    test_metric: str | None
    decimals: int
    plus_minus: str
    wide: bool
    stacked: bool
    room: int

    @classmethod
    def of(cls, report: StudyReport, console: Console) -> Self:
        wide, stacked = console.width >= WIDE, console.width < NARROW
        metrics, decimals = (report.metric, report.test_metric), shared_decimals(report)
        return cls(*metrics, decimals, _plus_minus(console), wide, stacked, _room(console))

    def name(self, row: VariantRow) -> Text:
        lines = [named(row.name, self.room)]
        if any(state not in (TrialState.FINISHED, TrialState.DIVERGED) for state in row.states.values()):
            lines.append(plain(f"{len(row.finished)} of {plural(len(row.planned), 'seed')}", "dim"))
        return joined(lines)

    def cells(self, row: VariantRow, tuned: Iterable[Text]) -> list[Text]:
        return [
            self._parameters(row),
            *tuned,
            *(self._mean(row, name) for name in (self.metric, self.test_metric) if name),
            self._difference(row),
            _verdict(row),
            plain(steps_to_baseline(row)),
            plain(times(row.relative_speed)),
        ]

    def _parameters(self, row: VariantRow) -> Text:
        parameters = plain(f"{row.parameters:,}" if self.wide else count(row.parameters))
        change = percent(row.parameter_change)
        if row.parameter_change is None or change == "0%":
            return parameters
        changed = plain(change, "dim")
        return Text(" ").join([parameters, changed]) if self.wide else joined([parameters, changed])

    def _mean(self, row: VariantRow, metric: str) -> Text:
        if row.diverged:  # the mean of the seeds that survived would flatter the variant
            return plain("diverged", COLOURS["diverged"])
        if row.pruned:
            return plain("pruned", "dim")
        interval = row.metrics.get(metric)
        if interval is None:
            return plain(MISSING)
        return self._with_interval(interval.mean, interval.low, interval.high)

    def _difference(self, row: VariantRow) -> Text:
        if row.difference is None or row.diverged:
            return plain(MISSING)
        return self._with_interval(row.difference.difference, row.difference.low, row.difference.high, sign=True)

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


def legend(report: StudyReport, plus_minus: str) -> str:
    """How to read the table, in a few sentences."""
    better, rows = "lower" if report.direction == "minimize" else "higher", report.variants
    tested = f"{report.test_metric} was measured once, at the end; no verdict reads it. " if report.test_metric else ""
    looks = f" (over all looks, from {report.schedule.start} to {report.schedule.max} seeds)" if report.schedule else ""
    axis = axis_title(report)
    reached = f"{axis[0].upper()}{axis[1:]}: until the baseline's final validation loss"
    lopsided = " (in brackets where it is not symmetric)" if any(len(row.finished) >= MANY for row in rows) else ""
    return (
        f"{plus_minus} 95 % interval over seeds{lopsided}. Differences are paired by seed ({better} {report.metric} "
        f"is better); verdicts use one-sided 95 % bounds{looks} and the margin {report.margin:g}. {tested}{reached}; "
        "`2 of 3` means that only 2 of 3 seeds got there. Speed: tokens/s relative to the "
        f"baseline, {MISSING} where either trained for less than {LEAST_SECONDS:g} s in all, too little to tell."
    )


def axis_title(report: StudyReport) -> str:
    """What the column counts that says when a variant got where the baseline ended."""
    return "FLOP" if report.matching.axis == "flops" else report.matching.axis


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


def shared_decimals(report: StudyReport) -> int:
    """With how many decimals the objective and its differences are written, in all rows alike."""
    intervals = [row.metrics[report.metric] for row in report.variants if report.metric in row.metrics]
    differences = [row.difference for row in report.variants if row.difference is not None]
    bounds = [(interval.low, interval.high) for interval in intervals]
    bounds += [(difference.low, difference.high) for difference in differences]
    widths = [(high - low) / 2 for low, high in bounds if low is not None and high is not None]
    return decimals_for(report.margin, widths)


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


def _verdict(row: VariantRow) -> Text:
    if row.pruned:
        return plain(MISSING)
    if row.verdict is None:
        return plain("baseline" if not row.diverged else f"{len(row.diverged)} diverged", "dim")
    sentence = plain(row.verdict.sentence)
    sentence.stylize(COLOURS[row.verdict.word], 0, len(row.verdict.word))
    return sentence


def steps_to_baseline(row: VariantRow) -> str:
    """The cell that says after how many steps (tokens, seconds, FLOP) a variant got where the baseline ended."""
    steps = row.spent_to_baseline
    if not steps.of:
        return MISSING
    if steps.mean is not None:
        return f"{steps.mean:.0f}" if 10 <= steps.mean < 1e6 else f"{steps.mean:.3g}"
    return f"{steps.reached} of {steps.of}" if steps.reached else "never"

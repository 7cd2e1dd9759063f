"""Tables drawn with rich, that of an ablation above all: colour on a terminal, plain text in a pipe.

Text of a user is shown as it is, but harmless; names whole, broken where they may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.columns import Column, columns, groups, legend, shared_decimals
from ablate.analysis.fairness import fairness_lines
from ablate.analysis.numbers import MISSING, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.runs import MOST_SHOWN, Failure
from ablate.stats.verdict import ACCEPTABLE, WORSE

NARROW = 90
"""Columns of a terminal below which tables are compact and intervals get a line of their own."""


def plain(value: str, style: str = "") -> Text:
    """Text that is shown as it is: rich reads no markup in it, and no control code reaches the terminal."""
    printable = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(value.split()))
    return Text(printable, style=style)


def joined(lines: Iterable[Text]) -> Text:
    """The lines of one cell."""
    return Text("\n").join(lines)


def plain_table(gap: int = 2, texts: Iterable[str] = (), numbers: Iterable[str] = ()) -> Table:
    """A table with a rule below its headings and `gap` blanks between columns; texts are folded, numbers are not."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="bold")
    for title in texts:
        table.add_column(plain(title), overflow="fold")
    for title in numbers:
        table.add_column(plain(title), justify="right", no_wrap=True)
    return table


def bare_table(first: str, numbers: Iterable[str], gap: int = 2) -> Table:
    """A table without rules: the names of its rows, and numbers."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


_PART = re.compile(r"[@(]?[^,@(]+,?")
_HALF = re.compile(r"[^=]+=?")


def in_lines(name: str, width: int) -> str:
    """A name in lines of at most `width` characters, broken after commas and before what is swept or tuned.

    A part that is longer is broken after its `=`, and otherwise stays in one piece.
    """
    lines = [""]
    parts = [half for part in _PART.findall(name) for half in (_HALF.findall(part) if len(part) > width else [part])]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def named(name: str, width: int) -> Text:
    """The same as a cell."""
    return joined(plain(line) for line in in_lines(name, width).splitlines())


WIDE = 120
"""Columns from which parameter counts and headings are written out."""
MOST_ROWS = 100
"""Of a table on a terminal; there are more in few studies, and laying out a thousand takes seconds."""
CAUTION = "Caution:"
"""The first word of each warning of an answer."""
COLOURS: dict[str, str] = {
    **dict.fromkeys(WORSE, "red"),
    **dict.fromkeys(ACCEPTABLE, "green"),
    "better": "cyan",
    "undecided": "yellow",
    "diverged": "magenta",
}
"""Verdict to its colour on a terminal."""
CLAIM_COLOURS = {"supported": "green", "refuted": "red", "undecided": "yellow"}


def print_study(report: StudyReport, console: Console, most: int | None = None) -> None:
    """Print a study: its question, how far it has come, the table, how to read it, the answer, the claims.

    Args:
        console: Where to.
        most: Rows of the table; a line says how to see the others. None: all.
    """
    console.print(plain(report.record.question or report.record.name, "bold"))
    console.print(plain(report.progress.sentence, "dim"))
    console.print()
    print_table(report, console, most)
    console.print()
    print_checks(report, console)
    if report.answer.claims:
        console.print()
        print_claims(report.answer.claims, console)


def print_table(report: StudyReport, console: Console, most: int | None = None) -> None:
    """Print the table of a study and how to read it; `most` as in `print_study`."""
    table, shown = study_table(report, console, most)
    console.print(table)
    if most is not None and most < len(report.variants):
        cut = f"The first {most:,} of {len(report.variants):,} variants; `ablate show STUDY --all` shows every one."
        console.print(plain(cut, "yellow"))
    console.print()
    for line in legend(shown):
        console.print(plain(line.translate(_ASCII if console.options.ascii_only else {}), "dim"))
    for line in fairness_lines(report.evidence.tuning, report.evidence.matching, report.metric):
        console.print(plain(line, "yellow" if line.startswith("*") else "dim"))


def print_checks(report: StudyReport, console: Console) -> None:
    """Print every sentence on the verdicts of a study, those that limit them first, and the trials that failed."""
    print_warnings(report, console)
    for sentence in report.answer.sentences[len(report.answer.warning_sentences) :]:
        console.print(plain(sentence, "bold"))
    _print_failures(report.progress.failures, console)


def print_warnings(report: StudyReport, console: Console) -> None:
    """Print what makes the comparison worth little; nothing if nothing does."""
    for sentence in report.answer.warning_sentences:
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


def study_table(report: StudyReport, console: Console, most: int | None = None) -> tuple[Table, list[Column]]:
    """The table of a study, laid out for the width of `console`, and the columns that it shows.

    The baseline comes first, then switch by switch, then the rest. Where room is scarce a variant takes two lines: its
    name, its numbers and its verdict are broken where it makes sense. Where that does not suffice, columns are left
    out, the least important first.
    """
    gap, left = 1 if console.width < NARROW else 2, iter(range(len(report.variants) if most is None else most))
    rows = [[row for row, _ in zip(group, left, strict=False)] for group in groups(report)]
    names, *others = _print_columns(report, [row for group in rows for row in group], console)
    narrowest = max(_folded_width(cell.plain) for cell in names.cells.values())

    def room() -> int:
        """Characters that are left for names."""
        return console.width - sum(column.width + gap for column in others)

    for leaving in sorted({column.column.dispensable for column in others} - {0}):
        if room() < narrowest:
            others = [column for column in others if column.column.dispensable != leaving]
    width = max(min(room(), max(len(cell.plain) for cell in names.cells.values())), len(names.title))
    table = plain_table(gap=gap)
    table.add_column(plain(names.title), overflow="fold", width=width)
    for column in others:
        is_text = column.column.is_text
        justify: Literal["left", "right"] = "left" if is_text else "right"
        table.add_column(plain(column.title), overflow="fold", justify=justify, no_wrap=not is_text)
    for group in rows:
        for row in group:
            table.add_row(named(row.name, width), *(column.cells[row.name] for column in others))
        table.add_section()
    if report.evidence.trivial:
        decimals = shared_decimals(report)
        table.add_row(*(plain(column.column.of_trivial(decimals), "dim") for column in (names, *others)))
    return table, [column.column for column in (names, *others)]


def _folded_width(name: str) -> int:
    """The least width at which a name takes two lines at most."""
    return next(width for width in range(1, len(name) + 1) if _lines(name, width) <= 2)


def _lines(name: str, width: int) -> int:
    """The lines that a name takes in a column of a width; what does not fit in a line is folded."""
    return sum(-(-len(line) // width) for line in in_lines(name, width).splitlines())


_SENTENCE = 30
"""Characters to which a cell of text is folded at least."""
_ASCII = str.maketrans({"±": "+/-", "≥": ">=", "≤": "<="})


@dataclass(frozen=True, slots=True)
class _PrintColumn:
    """A column on a terminal: its heading, and its cells by the name of the variant."""

    column: Column
    title: str
    cells: Mapping[str, Text]

    @property
    def width(self) -> int:
        """Characters of its longest line."""
        lines = [self.title, *(line for cell in self.cells.values() for line in cell.plain.splitlines())]
        longest = max(map(len, lines))
        return min(longest, _SENTENCE) if self.column.is_text else longest


def _print_columns(report: StudyReport, rows: Sequence[VariantRow], console: Console) -> Iterator[_PrintColumn]:
    """The columns that tell variants apart; below `WIDE` some are lines in the cells of others."""
    shown, short = [column for column in columns(report) if column.informative], console.width < WIDE
    for column in shown:
        if short and column.beneath:
            continue
        parts = [column, *(other for other in shown if short and other.beneath == column.key)]
        cells = {row.name: joined(line for part in parts for line in _cell(part, row, console)) for row in rows}
        if report.evidence.trivial and column.key == "variant":
            cells[report.evidence.trivial.name] = plain(report.evidence.trivial.name)
        yield _PrintColumn(column, column.short if short and column.short else column.title, cells)


def _cell(column: Column, row: VariantRow, console: Console) -> Iterator[Text]:
    """The lines of a cell: one on a wide terminal; nothing where a line beneath others would say nothing."""
    cell = column.text(row)
    head, tail = COLOURS.get(cell.tone, cell.tone), "" if column.is_text else "dim"
    encode = _ASCII if console.options.ascii_only else {}
    if console.width < WIDE:
        if column.beneath and cell.text in (MISSING, "0%"):
            return
        first, *rest = cell.lines or (cell.text,)
        yield plain(first.translate(encode), head)
        yield from (plain(line.translate(encode), tail) for line in rest)
        return
    text = plain(cell.text.translate(encode))
    if cell.head:
        text.stylize(tail, cell.head)
        text.stylize(head, 0, cell.head)
    yield text


def print_claims(claims: Sequence[ClaimVerdict], console: Console) -> None:
    """Print each claim with its source, and below it the verdict."""
    console.print(plain(f"Claims: {_counted(claims)}", "bold"))
    for claim in claims:
        head = [plain(claim.id, "bold"), *([plain(claim.says)] if claim.says else [])]
        head += [plain(f"({claim.source})", "dim")] if claim.source else []
        verdict = plain(claim.sentence)
        verdict.stylize(CLAIM_COLOURS[claim.verdict], 0, len(claim.verdict))
        console.print(Text("  ").join(head))
        console.print(Padding(verdict, (0, 0, 0, 4), expand=False))


def _counted(claims: Sequence[ClaimVerdict]) -> str:
    verdicts = [claim.verdict for claim in claims]
    return ", ".join(f"{verdicts.count(word)} {word}" for word in CLAIM_COLOURS if word in verdicts)

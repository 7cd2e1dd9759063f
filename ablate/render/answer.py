"""The answer to a study's question on one screen of a terminal: at most 24 lines of 80 columns for 12 variants.

A row holds the verdict, the change, its 95 % interval on one axis with the margin, the bound that the verdict rests on
and the change in parameters. Verdicts are words; colour only repeats them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import StringIO
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from ablate.analysis.answer import Answer, AnswerGroup, AnswerRow, GroupKey
from ablate.analysis.numbers import duration, percent
from ablate.analysis.suite import Suite, SuiteCell
from ablate.analysis.why import Why
from ablate.command_line import command
from ablate.errors import printable
from ablate.render.interval import Axis, heading_text, interval_text

MOST_ROWS = 6
"""Rows of a group that are shown where a study has more than `MANY` variants, and of unproven ones more than `FEW`."""
MANY, FEW = 40, 12
LABEL = 10
"""Columns of the labels at the left: the longest has nine characters."""
LEAST_AXIS, MOST_AXIS = 16, 34
NARROWEST_WORDS = 16
COLOURS: dict[GroupKey, str] = {
    "better": "bright_green",
    "can go": "green",
    "as good": "green",
    "must stay": "red",
    "worse": "red",
    "not known": "yellow",
    "unproven": "dim",
    "lost": "magenta",
    "running": "dim",
    "no answer": "dim",
}
MARKS: dict[GroupKey, str] = {"better": "▲", "must stay": "■", "worse": "■", "not known": "◆"}
"""How the mean of a row is drawn; a disc for all other groups."""
_LEVELS = {"ok": "green", "weak": "yellow", "void": "red"}
_ASCII = str.maketrans(
    {
        "│": "|",
        "┊": ":",
        "─": "-",
        "●": "o",
        "■": "#",
        "◆": "?",
        "▲": "^",
        "▼": "v",
        "×": "x",
        "°": "o",
        "▶": ">",
        "◀": "<",
        "−": "-",
        "…": "...",
        "·": "-",
    }
    | {"≤": "<=", "≥": ">=", "→": "->", "±": "+/-"}
)


def print_answer(
    answer: Answer,
    console: Console,
    *,
    store: Sequence[str] = (),
    plugins: Sequence[str] = (),
    everything: bool = False,
    shown_by: Sequence[str] | None = (),
) -> None:
    """Print an answer.

    Args:
        console: Where to; its width decides the width of the axis.
        store: Arguments that name the store in the commands to paste; empty for the default store.
        plugins: Arguments that name the files of the user's own kinds, without which the study cannot continue.
        everything: Whether to show every row of an answer of more than `MANY` variants.
        shown_by: Arguments of the command that shows more; empty: `show` of the study; None: none is named.
    """
    plain = console.options.ascii_only
    shown = _in_ascii(answer) if plain else answer
    for line in answer_lines(
        shown, console.width, store=store, plugins=plugins, everything=everything, shown_by=shown_by
    ):
        if plain:
            line.plain = line.plain.translate(_ASCII)
        console.print(line, soft_wrap=True)


def answer_text(answer: Answer, width: int = 80, *, shown_by: Sequence[str] | None = ()) -> str:
    """What `print_answer` prints, as text without colour."""
    return "\n".join(line.plain.rstrip() for line in answer_lines(answer, width, shown_by=shown_by))


def answer_svg(answer: Answer, width: int = 80) -> str:
    """What `print_answer` prints, as an SVG picture of a terminal `width` columns wide."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor")
    print_answer(answer, console)
    console.print()  # without it the picture cuts the descenders of its last line
    return console.export_svg(title=f"ablate show {answer.study}")


def print_why(why: Why, console: Console) -> None:
    """Print why one variant has its verdict."""
    row = why.row
    name = "" if row.variant == row.words else f"  {printable(row.variant)}"
    console.print(Text(printable(row.words), "bold").append(name, "not bold dim"))
    console.print(Text(printable(f"  {why.group}. {why.sentence}")))
    lines = dict(why.facts)
    if why.seeds:
        lines = {"seeds": "  ".join(f"{seed}: {value:+.3g}" for seed, value in why.seeds.items())} | lines
    width = max(map(len, lines))
    for label, text in lines.items():
        first, *rest = wrap(printable(text), max(20, console.width - width - 4)) or [""]
        console.print(Text(f"  {label:<{width}}  ", "bold").append(first, "not bold"))
        for line in rest:
            console.print(Text(" " * (width + 4) + line))


def _in_ascii(answer: Answer) -> Answer:
    """An answer whose texts have the widths with which a terminal without Unicode shows them."""

    def row(one: AnswerRow) -> AnswerRow:
        return replace(one, words=one.words.translate(_ASCII), bound_text=one.bound_text.translate(_ASCII))

    return replace(
        answer,
        headline=tuple(sentence.translate(_ASCII) for sentence in answer.headline),
        groups=tuple(replace(group, rows=tuple(map(row, group.rows))) for group in answer.groups),
    )


def answer_lines(
    answer: Answer,
    width: int,
    *,
    store: Sequence[str] = (),
    plugins: Sequence[str] = (),
    everything: bool = False,
    shown_by: Sequence[str] | None = (),
) -> Iterator[Text]:
    """The lines of an answer for a terminal of `width` columns."""
    yield Text(printable(answer.question), "bold")
    for sentence in _headline(answer, width):
        yield Text(sentence, "bold cyan")
    if answer.groups:
        yield Text()
        yield from (_matrix(answer.suite, answer, width, everything=everything) if answer.suite else
                    _table(answer, width, everything=everything))  # fmt: skip
        yield Text()
    for number, climb in enumerate(answer.scale):
        first, *rest = wrap(climb, width - LABEL - 2)
        yield _labelled("SCALE" if not number else "", first)
        for more in rest:
            yield Text(" " * (LABEL + 2) + printable(more))
    for number, line in enumerate(answer.trust[:3]):
        hidden = f" ({len(answer.trust) - 3} more: --checks)" if number == 2 and len(answer.trust) > 3 else ""
        lines = wrap(f"{line.text}{hidden}", width - LABEL - 6)
        yield _labelled("TRUST" if not number else "", f"{line.level:<5} {lines[0]}", _LEVELS[line.level])
        for more in lines[1:]:
            yield Text(" " * (LABEL + 6) + printable(more), _LEVELS[line.level])
    if answer.claims:
        counts = ", ".join(f"{count} {word}" for word, count in answer.claims.items())
        yield from _command("CLAIMS", f"{counts}   {command('claims', answer.study, *store)}", "", width)
    for number, step in enumerate(answer.next):
        time = f", about {duration(step.seconds)} of training" if step.seconds else ""
        typed = command(*step.arguments, *store, *plugins)
        yield from _command("NEXT" if not number else "", typed, f"  {step.purpose}{time}", width)
    if shown_by is None:
        return
    typed = command(*(shown_by or ("show", answer.study, *store)))
    of_suite = "--task TASK | " if answer.suite else ""
    yield from _command("MORE", typed, f"{of_suite}--why VARIANT | --table | --checks | --json", width, "dim")


def _headline(answer: Answer, width: int) -> list[str]:
    """The sentences of the headline, as many on a line as fit."""
    lines = [""]
    for sentence in answer.headline:
        if lines[-1] and len(lines[-1]) + 1 + len(sentence) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {sentence}".strip()
    return [part for line in lines for part in wrap(line, width)]


def _labelled(label: str, text: str, style: str = "") -> Text:
    line = Text(f"{label:<{LABEL}}", "bold")
    line.append(printable(text), f"not bold {style}".strip())
    return line


def _command(label: str, typed: str, rest: str, width: int, style: str = "") -> Iterator[Text]:
    """A command, which is never broken, and what belongs to it, on a line of its own where it does not fit."""
    if LABEL + len(typed) + 1 + len(rest) <= width:
        yield _labelled(label, f"{typed} {rest}".rstrip(), style)
        return
    yield _labelled(label, typed, style)
    if rest:
        yield Text(" " * (LABEL + 2) + printable(rest.strip()), style)


def _table(answer: Answer, width: int, *, everything: bool) -> Iterator[Text]:
    rows = answer.rows
    costs = any(_cost(row) for row in rows)
    bounds = max([len(_bound(row)) for row in rows] + [5])
    fixed = LABEL + 2 + bounds + (2 + 7 if costs else 0) + 2
    longest = max(len(_words(row)) for row in rows)
    words = max(NARROWEST_WORDS, min(longest, width - fixed - LEAST_AXIS))
    axis, cells = Axis.of(answer), max(LEAST_AXIS, min(MOST_AXIS, width - fixed - words))
    title = f"{answer.metric} − baseline{_baseline(answer)}"
    if answer.relative:
        title = f"{answer.metric} / {'baseline' if answer.baseline is None else f'{answer.baseline:.4g}'} − 1"
    head = Text(title[: LABEL + words].ljust(LABEL + words + 2), "dim")
    head.append(heading_text(axis, cells) + "  " + "bound".ljust(bounds) + ("  " + "params".rjust(7) if costs else ""))
    yield head
    for group in answer.groups:
        many = not everything and len(rows) > (FEW if group.key == "unproven" else MANY)
        yield from _group(group, axis, (words, cells, bounds), many=many)
    notes = []
    drawn = "".join(interval_text(axis, row, "●", cells) for row in rows)
    if arrows := [arrow for arrow in "◀▶" if arrow in drawn]:
        notes.append(f"{' '.join(arrows)} off the scale")
    if any(not row.jointly and row.bound is not None for row in rows):
        notes.append("* not jointly (Holm)")
    if warned := dict.fromkeys(row.warning for row in rows if row.warning):
        notes.append(f"! {', '.join(warned)}")
    for line in wrap("; ".join(["─ 95 % interval, right: worse", *notes]), width - LABEL):
        yield Text(" " * LABEL + line, "dim")


VERDICT_MARKS = {
    "better": "▲",
    "needed": "▼",
    "worse": "▼",
    "not needed": "=",
    "not worse": "=",
    "undecided": "?",
    "diverged": "×",
}
"""How the verdict on a variant is written beside its value in a matrix."""
MARKS_HELP = "▲ better, ▼ worse, = not worse by the margin, ? undecided"


def suite_mark(cell: SuiteCell) -> str:
    """What is written beside the value of a variant on a task: its verdict, `*` and `°`."""
    mark = VERDICT_MARKS.get(cell.verdict, "")
    alone = "*" if mark in ("▲", "▼", "=") and not cell.jointly else ""
    return f"{mark}{alone}{'' if cell.learnt or not cell.finished else '°'}"


def _matrix(suite: Suite, answer: Answer, width: int, *, everything: bool) -> Iterator[Text]:
    """The variants of a suite by mean score, and beside it their metric on each task."""
    judged = {row.variant: (group.key, row) for group in answer.groups for row in group.rows}
    shown = suite.rows if everything or len(suite.rows) <= MANY else suite.rows[: MANY // 2]
    labels = {row.variant: printable(row.words.rpartition("→ ")[2]).removeprefix("the ") for row in shown}
    words = max(NARROWEST_WORDS, min(max(map(len, labels.values())), width // 3))
    cells = {row.variant: {task: _suite_cell(cell, suite) for task, cell in row.cells.items()} for row in shown}
    widths = {task: max([4, *(len(of[task]) for of in cells.values()), min(len(task), 9)]) for task in suite.tasks}
    fixed_part = words + 2 + 5 + 2 + 14
    blocks: list[list[str]] = [[]]
    for task in suite.tasks:
        if blocks[-1] and fixed_part + sum(widths[of] + 2 for of in (*blocks[-1], task)) > width:
            blocks.append([])
        blocks[-1].append(task)
    for number, block in enumerate(blocks):
        head = f"{suite.metric}"[:words].ljust(words + 2)
        head += f"{'score':<5}  {'difference':<14}" if not number else " " * (fixed_part - words - 2)
        yield Text(head + "".join(f"  {task[: widths[task]]:<{widths[task]}}" for task in block), "dim")
        for row in shown:
            group, found = judged.get(row.variant, (None, None))
            colour = COLOURS[group] if group else "bold"
            line = Text(f"{labels[row.variant][:words]:<{words}}  ")
            scored = "" if row.score is None else f"{row.score:.2f}"
            change = "" if found is None else _score_change(found)
            line.append(f"{scored:<5}  {change:<14}" if not number else " " * (fixed_part - words - 2), colour)
            for task in block:
                style = "" if row.cells[task].learnt else "dim"
                line.append(f"  {cells[row.variant][task]:<{widths[task]}}", style)
            yield line
    if len(shown) < len(suite.rows):
        yield Text(f"and {len(suite.rows) - len(shown)} more: --all", "dim")
    marks = "".join(text for of in cells.values() for text in of.values())
    notes = ["score: mean over tasks, 0 trivial, 1 perfect", MARKS_HELP]
    notes += ["* not jointly (Holm)"] if "*" in marks or any("*" in _score_change(row) for row in answer.rows) else []
    notes += ["° not above the trivial baseline"] if "°" in marks else []
    for note in wrap("; ".join(notes), width):
        yield Text(note, "dim")


def _suite_cell(cell: SuiteCell, suite: Suite) -> str:
    if cell.mean is None:
        return VERDICT_MARKS["diverged"] if cell.verdict == "diverged" else f"{cell.finished}/{cell.planned}"
    return f"{cell.mean:.{suite.decimals}f}{suite_mark(cell)}"


def _score_change(row: AnswerRow) -> str:
    """The difference of the mean score from the baseline with half of its interval and its verdict."""
    mark = VERDICT_MARKS.get(row.verdict, "")
    star = "*" if row.bound is not None and not row.jointly else ""
    if row.difference is None:
        return "" if mark == "?" else mark
    half = "" if row.low is None or row.high is None else f"±{(row.high - row.low) / 2:.2f}"
    return f"{row.difference:+.2f}{half}{mark}{star}".replace("-", "−")


def _baseline(answer: Answer) -> str:
    return "" if answer.baseline is None else f" ({answer.baseline:.4g})"


def _bound(row: AnswerRow) -> str:
    star = " *" if row.bound is not None and not row.jointly else ""
    return f"{row.bound_text.replace('-', '−')}{star}{' !' if row.warning else ''}"


def _words(row: AnswerRow) -> str:
    """The change without its article, which a table does not need."""
    return printable(row.words).removeprefix("the ")


def _cost(row: AnswerRow) -> str:
    change = percent(row.parameter_change)
    return "" if change in ("0%", "-") else change.replace("-", "−").replace("%", " %")


def _lines(words: str, width: int) -> list[str]:
    """Words in lines of a width. Names without spaces are divided behind commas and before what they are swept over."""
    lines = [""]
    for piece in re.split(r"(?<=[,\s])|(?=@)", words):
        if len((lines[-1] + piece).rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
    return [part for line in lines for part in wrap(line.rstrip(), width) or [""]]


def _group(group: AnswerGroup, axis: Axis, widths: tuple[int, int, int], *, many: bool) -> Iterator[Text]:
    words, cells, bounds = widths
    colour = COLOURS[group.key]
    shown = group.rows[:MOST_ROWS] if many and len(group.rows) > MOST_ROWS + 1 else group.rows
    for number, row in enumerate(shown):
        lines = _lines(_words(row), words)
        line = Text(f"{'' if number else group.key.upper():<{LABEL}}", f"bold {colour}")
        line.append(f"{lines[0]:<{words}}  ", "not bold default")
        line.append(interval_text(axis, row, MARKS.get(group.key, "●"), cells), f"not bold {colour}")
        line.append(f"  {_bound(row):<{bounds}}", "not bold default")
        if cost := _cost(row):
            line.append(f"  {cost:>7}", "not bold default dim")
        yield line
        for more in lines[1:]:
            yield Text(" " * LABEL + f"{more:<{words}}  {interval_text(axis, None, '', cells)}")
    if len(shown) < len(group.rows):
        yield Text(" " * LABEL + f"and {len(group.rows) - len(shown)} more: --all", "dim")

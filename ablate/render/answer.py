"""The answer to a study's question on one screen of a terminal: at most 24 lines of 80 columns for 12 variants.

A row holds the verdict, the change, its one-sided 95 % bounds on one axis with the margin, the bound that the verdict
rests on, and the change in parameters. Along the places of a sweep, or over the tasks of a suite, a matrix has these
verdicts instead. Verdicts are words; colour only repeats them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from string import ascii_lowercase
from textwrap import wrap
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from ablate.analysis.answer import Answer
from ablate.analysis.answer_rows import Along, AlongCell, AnswerGroup, AnswerRow, GroupKey, in_answer
from ablate.analysis.numbers import about, decimals_for, fixed, new_part, percent
from ablate.analysis.suite import Suite, SuiteCell
from ablate.analysis.why import Why
from ablate.errors import printable
from ablate.processes import command
from ablate.render.interval import Axis, heading_text, interval_text
from ablate.stats.further import in_percent

MOST_ROWS = 6
"""Rows of a group that are shown where a study has more than `MANY` variants, and of unproven ones more than `FEW`."""
MANY, FEW = 40, 12
SCREEN = 24
"""Lines of a terminal that an answer is to fit on."""
MOST_UNITS = 24
"""Seeds, windows or other units whose differences are listed one by one."""
MOST_LINES = 2
"""Lines of a headline in which a sentence that does not fit begins a line of its own."""
LABEL = 10
"""Columns of the labels at the left: the longest has nine characters."""
LEAST_AXIS, MOST_AXIS = 15, 34
NARROWEST_WORDS = 16
COLOURS: dict[GroupKey, str] = {
    "better": "bright_green",
    "can go": "green",
    "ahead": "bright_green",
    "as good": "green",
    "must stay": "red",
    "worse": "red",
    "undecided": "yellow",
    "unproven": "dim",
    "lost": "magenta",
    "waiting": "dim",
    "no answer": "dim",
}
MEAN = "●"
"""How the mean of a row is drawn; the verdict is the label of its group."""
_LEVELS = {"ok": "green", "weak": "yellow", "void": "red"}
_ASCII = str.maketrans(
    {
        "│": "|",
        "┊": ":",
        "─": "-",
        "●": "o",
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
            line.plain = line.plain.replace("…  ", "...").translate(_ASCII)  # what is cut keeps its width
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
    for line in wrap(printable(why.words), console.width - 2):
        console.print(Text(f"  {line}"))
    lines = dict(why.facts)
    if why.seeds:
        lines = {f"{why.unit}s": _by_unit(why.seeds)} | lines
    width = max(map(len, lines), default=0)
    for label, text in lines.items():
        first, *rest = wrap(printable(text), max(20, console.width - width - 4)) or [""]
        console.print(Text(f"  {label:<{width}}  ", "bold").append(first, "not bold"))
        for line in rest:
            console.print(Text(" " * (width + 4) + line))


def _by_unit(values: Mapping[int, float] | Mapping[str, float]) -> str:
    """Every difference with its seed or window; of many, how many there are, their range and how many are positive."""
    if len(values) <= MOST_UNITS:
        return "  ".join(f"{name}: {value:+.3g}" for name, value in values.items())
    above = sum(value > 0 for value in values.values())
    return f"{len(values)} from {min(values.values()):+.3g} to {max(values.values()):+.3g}, {above} above 0"


def _in_ascii(answer: Answer) -> Answer:
    """An answer whose texts have the widths with which a terminal without Unicode shows them."""

    def row(one: AnswerRow) -> AnswerRow:
        return replace(one, label=one.label.translate(_ASCII), bound_text=one.bound_text.translate(_ASCII))

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
    """The lines of an answer for a terminal of `width` columns.

    Where fewer warnings and next steps make it fit on a screen of `SCREEN` lines, it says how many are left out.
    """
    found = [*_findings(answer, width, everything=everything)]
    more = [] if shown_by is None else [*_more(answer, shown_by or ("show", answer.study, *store), width)]
    named = _claims(answer.claims_note, width)
    counted = _claims(f"{answer.claim_counts}   {command('claims', answer.study, *store)}", width) if named else []
    forms = [
        [*found, *_trust(answer, width, warnings), *claims, *_next(answer, width, steps, (*store, *plugins)), *more]
        for warnings, steps, claims in ((3, len(answer.next), named), (3, 1, named), (3, 1, counted), (2, 1, counted))
    ]
    last = forms[-1] if len(answer.rows) <= FEW else forms[0]  # more variants do not fit anyway
    yield from forms[0] if everything else next((lines for lines in forms if len(lines) <= SCREEN), last)


def _findings(answer: Answer, width: int, *, everything: bool) -> Iterator[Text]:
    """The question, the headline and the rows."""
    yield from (Text(line, "bold") for line in wrap(printable(answer.question), width))
    for sentence in _headline(answer, width):
        yield Text(sentence, "bold cyan")
    if answer.groups:
        yield Text()
        if answer.scale:
            yield from _ladder(answer, width)
        elif answer.suite is not None:
            yield from _matrix(answer.suite, answer, width, everything=everything)
        elif answer.along is not None:
            yield from _along(answer, answer.along, width, everything=everything)
        else:
            yield from _table(answer, width, everything=everything)
        yield Text()


def _claims(text: str, width: int) -> list[Text]:
    lines = wrap(text, width - LABEL)
    return [_labelled("" if number else "CLAIMS", line) for number, line in enumerate(lines)]


def _trust(answer: Answer, width: int, most: int) -> Iterator[Text]:
    for number, line in enumerate(answer.trust[:most], 1):
        hidden = f"; {len(answer.trust) - most} more: --checks" if number == most < len(answer.trust) else ""
        lines = wrap(f"{line.text}{hidden}", width - LABEL - 7)
        yield _labelled("TRUST" if number == 1 else "", f"{line.word:<6} {lines[0]}", _LEVELS[line.level])
        for more in lines[1:]:
            yield Text(" " * (LABEL + 7) + printable(more), _LEVELS[line.level])


def _next(answer: Answer, width: int, most: int, options: Sequence[str]) -> Iterator[Text]:
    for number, step in enumerate(answer.next[:most], 1):
        time = f", {about(step.seconds)} of training" if step.seconds else ""
        hidden = f"; {len(answer.next) - most} more: --full" if number == most < len(answer.next) else ""
        typed = command(*step.arguments, *options) if step.arguments else ""
        yield from _command("NEXT" if number == 1 else "", typed, f"  {step.told}{time}{hidden}", width)


def _more(answer: Answer, shown_by: Sequence[str], width: int) -> Iterator[Text]:
    """A command that shows what the screen leaves out, with a real variant or task, and its other options."""
    telling = ("--why", answer.row_to_explain.variant) if answer.row_to_explain else ()
    rest = "or --table, --checks" if telling else "--table, --checks or --json"
    if answer.suite is not None:
        telling, rest = ("--task", next(iter(answer.suite.tasks))), "or --why VARIANT, --table, --json"
    typed = command(*shown_by, *telling)
    if LABEL + len(typed) > width:  # the name of a point of a search may be longer than a line
        typed, rest = command(*shown_by, telling[0] if telling else "--table"), "VARIANT; --table names them"
    yield from _command("MORE", typed, rest, width, "dim")


def _headline(answer: Answer, width: int) -> list[str]:
    """The sentences of the headline, as many on a line as fit; many are divided where lines end."""
    lines = [""]
    for sentence in answer.headline:
        if lines[-1] and len(lines[-1]) + 1 + len(sentence) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {sentence}".strip()
    broken = [part for line in lines for part in wrap(line, width)]
    return broken if len(broken) <= MOST_LINES else wrap(" ".join(answer.headline), width)


def _labelled(label: str, text: str, style: str = "") -> Text:
    line = Text(f"{label:<{LABEL}}", "bold")
    line.append(printable(text), f"not bold {style}".strip())
    return line


def _command(label: str, typed: str, rest: str, width: int, style: str = "") -> Iterator[Text]:
    """A command, which is never broken, and what belongs to it, on lines of its own where it does not fit."""
    if not typed:
        first, *others = wrap(printable(rest.strip()), width - LABEL)
        yield _labelled(label, first, style)
        yield from (Text(" " * LABEL + more, style) for more in others)
        return
    if LABEL + len(typed) + 1 + len(rest) <= width:
        yield _labelled(label, f"{typed} {rest}".rstrip(), style)
        return
    yield _labelled(label, typed, style)
    if rest:
        for more in wrap(printable(rest.strip()), width - LABEL - 2):
            yield Text(" " * (LABEL + 2) + more, style)


def _table(answer: Answer, width: int, *, everything: bool) -> Iterator[Text]:
    rows = answer.rows
    costs = any(_cost(row) for row in rows)
    notes = [*dict.fromkeys(row.warning for row in rows if row.warning)]
    bounds = max([len(_bound(row, notes)) for row in rows] + [5])
    fixed = LABEL + 2 + bounds + (2 + 7 if costs else 0) + 2
    longest = max(len(_words(row)) for row in rows)
    words = max(NARROWEST_WORDS, min(longest, width - fixed - LEAST_AXIS))
    axis, cells = Axis.of(answer), max(LEAST_AXIS, min(MOST_AXIS, width - fixed - words))
    title = f"{answer.metric} − {printable(answer.reference)}{_baseline(answer)}"
    if answer.relative:
        title = f"{answer.metric} / {answer.reference if answer.baseline is None else f'{answer.baseline:.4g}'} − 1"
    room = LABEL + words
    short = title if len(title) <= room else title.rpartition(" (")[0] or title
    head = Text(short[:room].ljust(room + 2), "dim")
    head.append(heading_text(axis, cells) + "  " + "bound".ljust(bounds) + ("  " + "params".rjust(7) if costs else ""))
    yield from (Text(" " * LABEL + line) for line in wrap(_parts(answer), width - LABEL))
    yield head
    for group in answer.groups:
        many = not everything and len(rows) > (FEW if group.key == "unproven" else MANY)
        few = MOST_ROWS if many else len(rows)
        combined = len(rows) if everything or len(rows) <= FEW else MOST_COMBINED
        yield from _group(group, axis, (words, cells, bounds), notes, (few, combined))
    drawn = heading_text(axis, cells) + "".join(interval_text(axis, row, MEAN, cells) for row in rows)
    for line in wrap("; ".join(_legend(rows, answer.unit, drawn, notes)), width - LABEL):
        yield Text(" " * LABEL + line, "dim")


def _legend(rows: Sequence[AnswerRow], unit: str, drawn: str, notes: Sequence[str]) -> Iterator[str]:
    """What the marks of a table mean, of those that it has."""
    yield ("─ 95 % bounds, " if any(row.low is not None for row in rows) else "") + "right: worse"
    if "margin" not in drawn:
        yield "┊ margin"
    if arrows := [arrow for arrow in "◀▶" if arrow in drawn]:
        yield f"{' '.join(arrows)} off the scale"
    if chances := sorted(row.chance for row in rows if row.chance is not None):
        ends = dict.fromkeys(in_percent(chance).removesuffix(" %") for chance in (chances[0], chances[-1]))
        yield f"more {unit}s decide with a chance of {' to '.join(ends)} %"
    if any(row.bound is not None and not row.jointly for row in rows):
        yield "* not jointly (Holm)"
    yield from (f"[{number}] {note}" for number, note in enumerate(notes, 1))


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
MARKS_HELP = "▲ better, ▼ worse, = as good, ? undecided"
MOST_COMBINED = 2
"""Combinations in a group that are shown where a study has more than `FEW` variants."""


def marks_help(cells: Iterable[SuiteCell | AlongCell]) -> str:
    """What the marks of these cells mean."""
    return MARKS_HELP + (", no mark: equal to the baseline at every seed" if any(cell.alike for cell in cells) else "")


def suite_mark(cell: SuiteCell) -> str:
    """What is written beside the value of a variant on a task: its verdict, `*` and `°`."""
    mark = "" if cell.alike else VERDICT_MARKS.get(cell.verdict, "")
    alone = "*" if mark in ("▲", "▼", "=") and not cell.jointly else ""
    return f"{mark}{alone}{'' if cell.learnt or not cell.finished else '°'}"


class _MatrixRow(NamedTuple):
    """A variant in a matrix: its label, what precedes the columns, in which colour, and its text in each column."""

    label: str
    before: Sequence[str]
    colour: str
    cells: Mapping[str, tuple[str, str]]


def _matrix(suite: Suite, answer: Answer, width: int, *, everything: bool) -> Iterator[Text]:
    """The variants of a suite by mean score, and beside it their metric on each task."""
    judged = {row.variant: (group.key, row) for group in answer.groups for row in group.rows}
    rows, decimals = [], max(2, decimals_for(answer.margin, ()) - 1)
    for row in suite.rows if everything or len(suite.rows) <= MANY else suite.rows[: MANY // 2]:
        group, found = judged.get(row.variant, (None, None))
        score = "" if row.score is None else f"{row.score:.{decimals}f}"
        before = score, "" if found is None else _score_change(found, decimals)
        cells = {task: (_suite_cell(cell, suite), "" if cell.learnt else "dim") for task, cell in row.cells.items()}
        rows.append(_MatrixRow(row.words.rpartition("→ ")[2], before, COLOURS[group] if group else "bold", cells))
    yield from _columns((suite.metric, "score", "difference"), [*suite.tasks], rows, width)
    if len(rows) < len(suite.rows):
        yield Text(f"and {len(suite.rows) - len(rows)} more: --all", "dim")
    marks = "".join(text for row in rows for text, _ in row.cells.values())
    changes = "".join(row.before[1] for row in rows)
    notes = ["score: mean over tasks, 0 trivial, 1 perfect", f"margin {suite.margin:g}"]
    notes.append(marks_help(cell for row in suite.rows for cell in row.cells.values()))
    notes += ["± 95 % bounds"] if "±" in changes else []
    notes += ["* not jointly (Holm)"] if "*" in marks + changes else []
    notes += ["° not shown to be above the trivial baseline"] if "°" in marks else []
    yield from (Text(note, "dim") for note in wrap("; ".join(notes), width))


def _along(answer: Answer, along: Along, width: int, *, everything: bool) -> Iterator[Text]:
    """The variants at each place of a sweep, or each length of training: differences with the marks of verdicts."""
    titles = dict(zip(along.places, [f"{along.axis} {along.places[0]}", *along.places[1:]], strict=True))
    groups = {row.words: group.key for group in answer.groups for row in group.rows}
    shown = [*along.rows] if everything or len(along.rows) <= MANY else [*along.rows][: MANY // 2]
    rows = [
        _MatrixRow(words, (), COLOURS.get(groups.get(words, "undecided"), ""), {
            titles[place]: (_along_cell(cell, answer.decimals), "")
            for place, cell in zip(along.places, along.rows[words], strict=True)
        })
        for words in shown
    ]  # fmt: skip
    yield from _columns((f"{answer.metric} − {answer.reference}",), [*titles.values()], rows, width)
    if len(shown) < len(along.rows):
        yield Text(f"and {len(along.rows) - len(shown)} more: --all", "dim")
    help_text = f"each beside the baseline of its column; margin {answer.margin:g}: "
    help_text += marks_help(cell for of in along.rows.values() for cell in of)
    yield from (Text(note, "dim") for note in wrap(help_text, width))


def _along_cell(cell: AlongCell, decimals: int) -> str:
    mark = "" if cell.alike else VERDICT_MARKS.get(cell.verdict, "")
    return f"{'' if cell.difference is None else fixed(cell.difference, decimals, sign=True)} {mark}".replace("-", "−")


def _columns(titles: Sequence[str], columns: Sequence[str], rows: Sequence[_MatrixRow], width: int) -> Iterator[Text]:
    """A matrix, in blocks of as many columns as fit; what precedes them stands in the first block.

    Columns are two spaces apart, or one where all fit so.

    Args:
        titles: Of the labels, and of what precedes the columns.
    """
    labels = {row.label: printable(row.label).removeprefix("the ") for row in rows}
    words = max(
        NARROWEST_WORDS, min(max([len(titles[0]), *map(len, labels.values())]), width // (3 if titles[1:] else 2))
    )
    fixed_parts = [max([len(title), *(len(row.before[n]) for row in rows)]) for n, title in enumerate(titles[1:])]
    widths = {of: max([4, *(len(row.cells[of][0]) for row in rows), min(len(of), 14)]) for of in columns}
    whole = words + sum(fixed_parts) + sum(widths.values())
    gap = (
        " " if whole + len(fixed_parts) + len(widths) <= width < whole + 2 * (len(fixed_parts) + len(widths)) else "  "
    )
    fixed_part = words + sum(len(gap) + part for part in fixed_parts)
    blocks: list[list[str]] = [[]]
    for of in columns:
        if blocks[-1] and fixed_part + sum(widths[one] + len(gap) for one in (*blocks[-1], of)) > width:
            blocks.append([])
        blocks[-1].append(of)
    for number, block in enumerate(blocks):
        heads = [f"{gap}{'' if number else title:<{part}}" for title, part in zip(titles[1:], fixed_parts, strict=True)]
        heads += [f"{gap}{of[: widths[of]]:<{widths[of]}}" for of in block]
        yield Text(f"{titles[0][:words]:<{words}}" + "".join(heads), "dim")
        for row in rows:
            line = Text(f"{_cut(labels[row.label], words):<{words}}", "" if row.before else row.colour)
            for text, part in zip(row.before, fixed_parts, strict=True):
                line.append(f"{gap}{'' if number else text:<{part}}", row.colour)
            for of in block:
                text, style = row.cells[of]
                line.append(f"{gap}{text:<{widths[of]}}", style or "not bold default")
            yield line


def _ladder(answer: Answer, width: int) -> Iterator[Text]:
    """The variants of a ladder by rung, with what is extrapolated, and each reason why nothing is."""
    rows, times = answer.scale, f"{answer.scale[0].times:g}x"
    refusals = [*dict.fromkeys(row.refusal for row in rows if not row.there)]
    judged = {row.words: (COLOURS[group.key], row.warning) for group in answer.groups for row in group.rows}
    warnings = [*dict.fromkeys(warning for _, warning in judged.values() if warning)]
    removals = {row.words for row in answer.rows if row.removed and not row.words.startswith("without ")}
    rungs = rows[0].compute
    lines = []
    for row in rows:
        colour, warning = judged.get(row.words, ("", ""))
        marks = [VERDICT_MARKS.get(verdict, "") for verdict in row.verdicts]
        cells = {of: f"{_short(text)}{mark}" for of, text, mark in zip(rungs, row.by_rung, marks, strict=True)}
        cells[times] = _short(row.there) or f"none [{_letter(refusals, row.refusal)}]"
        speedup = row.speedup.partition("(")[2].strip(")") or row.speedup
        cells["speedup"] = speedup.replace(" … ", "…") if row.there else ""
        cells[""] = in_answer(row.outcome) if row.there else ""
        label = f"no {row.words.removeprefix('the ')}" if row.words in removals else new_part(row.words)
        label += f" [{warnings.index(warning) + 1}]" if warning else ""
        lines.append(_MatrixRow(label, (), colour, {of: (text, "") for of, text in cells.items()}))
    alike = len(refusals) == 1 and not any(row.there for row in rows)
    beyond = [] if alike else [times, "speedup", ""]
    yield from _columns((f"{answer.metric} − baseline",), [*rungs, *beyond], lines, width)
    notes = [f"at multiples of the largest compute; margin {answer.margin:g}: {MARKS_HELP}"]
    if any(row.outcome == row.verdicts[-1] == "undecided" for row in rows if row.there):
        notes.append(f"undecided at 1x: so at {times}, too")
    notes += [] if alike else [f"{times}, speedup in compute: 95 % intervals"]
    notes += [f"[{number}] {warning}" for number, warning in enumerate(warnings, 1)]
    marked = ("not extrapolated:" if alike else f"[{_letter(refusals, refusal)}]" for refusal in refusals)
    notes += [f"{mark} {printable(refusal)}" for mark, refusal in zip(marked, refusals, strict=True)]
    yield from (Text(part, "dim") for part in wrap("; ".join(notes), width))


def _short(text: str) -> str:
    """Numbers without the zero before their point, in an interval without spaces."""
    return re.sub(r"(?<=[-+])0(?=\.)", "", text.replace(" … ", "…")).replace("-", "−")


def _letter(notes: Sequence[str], note: str) -> str:
    """The mark of a note: a ... z, a1 ...; those of rows are numbers."""
    again, letter = divmod(notes.index(note), len(ascii_lowercase))
    return f"{ascii_lowercase[letter]}{again or ''}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _suite_cell(cell: SuiteCell, suite: Suite) -> str:
    if cell.mean is None:
        return VERDICT_MARKS["diverged"] if cell.verdict == "diverged" else f"{cell.finished}/{cell.planned}"
    return f"{cell.mean:.{suite.decimals}f}{suite_mark(cell)}"


def _score_change(row: AnswerRow, decimals: int) -> str:
    """The difference of the mean score from the baseline with half of its interval and its verdict."""
    mark = VERDICT_MARKS.get(row.verdict, "")
    star = "*" if row.bound is not None and not row.jointly else ""
    if row.difference is None:
        return "" if mark == "?" else mark
    half = math.inf if row.low is None or row.high is None else (row.high - row.low) / 2
    within = "" if math.isinf(half) else f"±{half:.{decimals}f}"
    return f"{fixed(row.difference, decimals, sign=True)}{within}{mark}{star}".replace("-", "−")


def _baseline(answer: Answer) -> str:
    return "" if answer.baseline is None else f" ({answer.baseline:.4g})"


def _bound(row: AnswerRow, notes: Sequence[str]) -> str:
    star = " *" if row.bound is not None and not row.jointly else ""
    note = f" [{notes.index(row.warning) + 1}]" if row.warning else ""
    return f"{row.bound_text.replace('-', '−')}{star}{note}"


def _words(row: AnswerRow) -> str:
    """The change without its article, which a table does not need."""
    return re.sub(r"(^|^[A-Z]: |without |\+ )the ", r"\1", printable(row.label))


def _parts(answer: Answer) -> str:
    """The parts that only letters stand for, because no row has one of them alone."""
    alone = {row.label[0] for row in answer.rows if row.label[1:2] == ":"}
    others = {letter: part.removeprefix("the ") for letter, part in answer.parts.items() if letter not in alone}
    return printable(replace(answer, parts=others).parts_note)


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


def _group(
    group: AnswerGroup, axis: Axis, widths: tuple[int, int, int], notes: Sequence[str], most: tuple[int, int]
) -> Iterator[Text]:
    (words, cells, bounds), (few, combined) = widths, most
    colour = COLOURS[group.key]
    named = {row.variant for row in [row for row in group.rows if row.combines][:combined]}
    kept = [row for row in group.rows if not row.combines or row.variant in named]
    shown = kept[:few] if len(kept) > few + 1 else kept
    labels = wrap(group.word.upper(), LABEL - 1)
    for row in shown:
        lines = _lines(_words(row), words)
        line = Text(f"{labels.pop(0) if labels else '':<{LABEL}}", f"bold {colour}")
        line.append(f"{lines[0]:<{words}}  ", "not bold default")
        line.append(interval_text(axis, row, MEAN, cells), f"not bold {colour}")
        line.append(f"  {_bound(row, notes):<{bounds}}", "not bold default")
        if cost := _cost(row):
            line.append(f"  {cost:>7}", "not bold default dim")
        yield line
        for more in (*lines[1:], *[""] * (len(labels) - len(lines) + 1 if row is shown[-1] else 0)):
            line = Text(f"{labels.pop(0) if labels else '':<{LABEL}}", f"bold {colour}")
            yield line.append(f"{more:<{words}}  {interval_text(axis, None, '', cells)}", "not bold default")
    if len(shown) < len(group.rows):
        yield Text(" " * LABEL + f"and {len(group.rows) - len(shown)} more: --all", "dim")

"""A suite: the matrix of variants and tasks, and its profile, a panel for each task in the unit of the matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import in_answer, verdict_word
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, new_part, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.suite import Suite, SuiteCell, SuiteRow, SuiteTask
from ablate.render.answer import VERDICT_MARKS, suite_mark
from ablate.render.blocks import Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    DRAWN_AS,
    PANEL_TITLE,
    WIDTH,
    Look,
    Palette,
    Spec,
    by_look,
    character,
    mark,
    names,
    number,
    wrapped,
)
from ablate.spec.suite import is_accuracy

NAME = 22
"""Characters of a name on one line."""
MOST = 12
"""Variants that are drawn; of more, those with the best mean scores. The matrix has all."""
MEAN = "mean score"
NAMES, LEAST = 170, 85
"""Pixels of the names beside the panels, and of a panel."""
ROOM = 0.15
"""Of the axis beyond what is drawn, where an interval lies further and the metric has no end."""
SAME = "baseline or same"
"""What neither a verdict nor a difference belongs to."""
Ends = tuple[float, float]
Form = Literal["whole", "words", "marks"]
"""What the cells of a matrix hold: mean, interval and verdict; mean and verdict; mean and mark with two decimals."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The profile of a suite."""
    if not findings.report.tasks:
        return ()
    hidden = len(findings.report.variants) - MOST
    rest = f" Left out: {plural(hidden, 'further variant')}." if hidden > 0 else ""
    return (Picture("profile", f"{how_to_read(answer_of(findings.report))}{rest}"),)


def how_to_read(answer: Answer) -> str:
    """What the panels are, in sentences."""
    assert answer.suite is not None, "only suites have a profile"
    return (
        f"{answer.suite.metric} on each task and the mean score, by which the variants are judged, with 95 % intervals "
        "over seeds, cut at what can be. Dashed: the best trivial baseline."
    )


def _ends(suite: Suite, task: SuiteTask) -> Ends:
    """What the metric of a task can be."""
    least = 0.0 if is_accuracy(suite.metric) else -math.inf
    return (least, task.perfect) if task.perfect > task.trivial else (task.perfect, math.inf)


def _cut(mean: float, low: float, high: float, ends: Ends) -> Ends:
    """An interval without what can not be."""
    return max(low, min(mean, ends[0])), min(high, max(mean, ends[1]))


def profile(report: StudyReport, palette: Palette, width: float = WIDTH) -> Spec:
    """A panel for the mean score and for each task, in it a row for each variant, in the look of its verdict.

    Args:
        width: Of the figure in pixels.
    """
    answer = answer_of(report)
    suite = answer.suite
    assert suite is not None, "only suites have a profile"
    shown = suite.rows[:MOST]
    labels = {row.variant: wrapped(new_part(row.words), NAME, "= ") for row in shown}
    judged = {row.variant: group.key for group in answer.groups for row in group.rows}
    drawn: list[tuple[str, float, Ends, list[Spec]]] = [
        (MEAN, 0.0, (-math.inf, 1.0), [
            _point(labels[row.variant], row.score, row.low, row.high, judged.get(row.variant, "")) for row in shown
        ]),
        *(
            (name, task.trivial, _ends(suite, task), [
                _point(labels[row.variant], cell.mean, cell.low, cell.high, "" if cell.alike else cell.verdict)
                for row in shown for cell in [row.cells[name]]
            ])
            for name, task in suite.tasks.items()
        ),
    ]  # fmt: skip
    said = palette.verdicts(
        {row["of"] for _, _, _, rows in drawn for row in rows if row["of"] and row["mean"] is not None}
    )
    looks = {SAME: Look(palette.grey, (1, 0), "circle")} | said
    columns = max(1, min(len(drawn), int((width - NAMES) // LEAST)))
    columns = math.ceil(len(drawn) / math.ceil(len(drawn) / columns))
    panels = []
    for place, (name, trivial, ends, rows) in enumerate(drawn):
        first, known = place % columns == 0, [row for row in rows if row["mean"] is not None]
        for row in known:
            row["of"] = next((label for label in said if row["of"] in label.split(" or ")), SAME)
            if row["low"] is not None:
                row["low"], row["high"] = _cut(row["mean"], row["low"], row["high"], ends)
        values = [trivial, *(row["mean"] for row in known), *([0.0, 1.0] if is_accuracy(suite.metric) else [])]
        low, high = min(values), max(values)
        spans = [row for row in known if row["low"] is not None]
        room = ROOM * ((high - low) or 1.0)
        domain = (
            low - room * any(row["low"] < low for row in spans),
            high + room * any(row["high"] > high for row in spans),
        )
        x = number("mean", domain=domain, axis={"tickCount": 3})
        axis: Spec = {"labelLimit": NAMES, "minExtent": NAMES - 20, "maxExtent": NAMES - 20} if first else {}
        y = names("name", [*labels.values()], axis={"grid": True, "ticks": False, "domain": False, "title": None,
                                                    "labels": first, "labelPadding": 8, **axis})  # fmt: skip
        tone = by_look("of", looks, "color", orient="top", columns=2 if width < WIDTH else 6)
        shape = by_look("of", looks, "shape", orient="top", columns=2 if width < WIDTH else 6)
        tip = [{"field": key, "title": key} for key in ("name", "mean", "low", "high", "of")]
        parts = [
            mark("rule", [{}], {"x": {"datum": trivial}}, strokeDash=[4, 3]),
            mark("rule", spans, {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, **tone}, strokeWidth=2,
                 clip=True),
            *(mark("point", beyond, {"x": x | {"field": side}, "y": y, **tone}, shape=f"triangle-{way}", size=50)
              for side, way, beyond in (
                  ("low", "left", [row | {"low": domain[0]} for row in spans if row["low"] < domain[0]]),
                  ("high", "right", [row | {"high": domain[1]} for row in spans if row["high"] > domain[1]]))
              if beyond),
            mark("point", known, {"x": x, "y": y, **tone, **shape, "tooltip": tip}, size=65),
        ]  # fmt: skip
        size = {"width": (width - NAMES) / columns - 18, "height": (19 if width <= WIDTH else 24) * len(shown)}
        panels.append({"title": {"text": name, **PANEL_TITLE}, **size, "layer": parts})
    return {"concat": panels, "columns": columns, "spacing": 16}


def _point(name: str, mean: float | None, low: float | None, high: float | None, verdict: str) -> Spec:
    """A variant in a panel."""
    return {"name": name, "mean": mean, "low": low, "high": high, "of": in_answer(verdict) if verdict else ""}


def matrix(answer: Answer, form: Form = "whole") -> Grid:
    """A row for each variant with its mean score and its result on each task; the rows of a suite's answer."""
    suite = answer.suite
    assert suite is not None, "only suites have a matrix"
    narrow = form == "marks"
    decimals = 2 if narrow else suite.decimals

    def column(of: Sequence[tuple[float | None, float | None, float | None]], ends: Ends, decimals: int) -> list[str]:
        """Means with their intervals, all in one form: `±`, or with their ends where one is cut at those of a value."""
        cut = any(
            (low, high) != _cut(mean, low, high, ends)
            for mean, low, high in of
            if mean is not None and low is not None and high is not None
        )

        def written(mean: float, low: float | None, high: float | None) -> str:
            if low is None or high is None or form != "whole":
                return f"{mean:.{decimals}f}"
            if not cut:
                return f"{mean:.{decimals}f} ± {(high - low) / 2:.{decimals}f}"
            low, high = _cut(mean, low, high, ends)
            return f"{mean:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"

        return [MISSING if mean is None else written(mean, low, high) for mean, low, high in of]

    judged = {row.variant: (group.key, row) for group in answer.groups for row in group.rows}

    def verdict(of: SuiteRow) -> str:
        if of.score is None or of.variant not in judged:
            return ""
        key, row = judged[of.variant]
        word = "" if narrow else f" {verdict_word(key, row)}"
        return (
            f" {character(Palette().verdict(DRAWN_AS[key]))}{word}{'*' * (row.bound is not None and not row.jointly)}"
        )

    scores = column([(row.score, row.low, row.high) for row in suite.rows], (-math.inf, 1.0), 2)
    columns = [[f"{score}{verdict(row)}" for score, row in zip(scores, suite.rows, strict=True)]]
    for name, task in suite.tasks.items():
        cells = [row.cells[name] for row in suite.rows]
        means = column([(cell.mean, cell.low, cell.high) for cell in cells], _ends(suite, task), decimals)
        lost = [cell.mean is None and cell.verdict == "diverged" for cell in cells]
        columns.append(
            [
                suite_mark(cell) if gone else f"{mean} {_verdict(cell, narrow=narrow)}".rstrip()
                for mean, cell, gone in zip(means, cells, lost, strict=True)
            ]
        )
    rows = tuple((new_part(row.words), *cells) for row, *cells in zip(suite.rows, *columns, strict=True))
    trivial = ("trivial baseline", "0.00", *(f"{task.trivial:.{decimals}f}" for task in suite.tasks.values()))
    titles = ("variant", "score" if narrow else MEAN, *suite.tasks)
    return Grid(titles, (rows, (trivial,)), frozenset(range(len(titles))))


def _verdict(cell: SuiteCell, *, narrow: bool) -> str:
    """The verdict on a variant on a task: the mark of the figures, with the word unless it is `narrow`."""
    word, beside = ("" if cell.alike else cell.verdict), suite_mark(cell).lstrip("".join(VERDICT_MARKS.values()))
    if word not in VERDICT_MARKS:
        return f"{'same' if cell.alike and not narrow else ''}{beside}"
    return f"{character(Palette().verdict(word))}{'' if narrow else f' {in_answer(word)}'}{beside}"


def _key(cells: Iterable[SuiteCell]) -> str:
    """What the marks of these cells mean."""
    words = dict.fromkeys(cell.verdict for cell in cells if not cell.alike and cell.verdict in VERDICT_MARKS)
    return ", ".join(f"{character(look)} {label}" for label, look in Palette().verdicts(words).items())


def matrix_key(answer: Answer, form: Form = "whole") -> str:
    """What the marks and the scores of the matrix mean, in a line below it; `form` as for `matrix`."""
    suite = answer.suite
    assert suite is not None, "only suites have a matrix"
    cells, narrow = [cell for row in suite.rows for cell in row.cells.values()], form == "marks"
    alone = any(row.bound is not None and not row.jointly for row in answer.rows)
    marks = "".join(map(suite_mark, cells)) + "*" * alone
    alike = f"{'no mark' if narrow else 'same'}: equal to the baseline at every seed"
    notes = [
        "Score: the mean over tasks of the metric on a scale where 0 is trivial and 1 perfect",
        *([_key(cells)] if narrow else []),
        *([alike] if any(cell.alike for cell in cells) else []),
        *(["*: true alone, not jointly with all other verdicts"] if "*" in marks else []),
        *(["°: not shown to be above the trivial baseline"] if "°" in marks else []),
    ]
    return f"{'; '.join(notes)}."


def matrix_note(answer: Answer, form: Form = "whole") -> str:
    """How to read the matrix, in a sentence or two; `form` as for `matrix`."""
    suite = answer.suite
    assert suite is not None, "only suites have a matrix"
    spread = "" if form != "whole" else " with its 95 % interval over seeds, cut at what the metric can be"
    said = f"On tasks: {suite.metric}{spread}, with the verdict against the baseline there, margin {suite.margin:g}."
    alone = any("*" in suite_mark(cell) for row in suite.rows for cell in row.cells.values())
    return said + " Jointly: over all variants and tasks, by Holm's procedure." * alone


SCORE = "The score of a task is (metric - trivial) / (perfect - trivial): 0 is the best trivial baseline, 1 is perfect."
"""How a score follows from the metric of a task."""


def section(findings: Findings, shown: Mapping[str, Picture]) -> Section | None:
    """The tasks of a suite; None for any other study."""
    if not findings.report.tasks:
        return None
    answer = answer_of(findings.report)
    drawn = (shown["profile"],) if "profile" in shown else ()
    return Section("Tasks", (matrix(answer), Paragraph(f"{matrix_key(answer)} {matrix_note(answer)} {SCORE}"), *drawn))


FIGURES = {"profile": lambda findings, palette, width: profile(findings.report, palette, width)}

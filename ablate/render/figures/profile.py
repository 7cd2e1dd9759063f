"""A suite: the matrix of variants and tasks, and its profile, a strip for each task on one axis of scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import in_answer, verdict_word
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, new_part, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.suite import SuiteCell, SuiteRow
from ablate.render.answer import VERDICT_MARKS, suite_mark
from ablate.render.blocks import Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    DRAWN_AS,
    Palette,
    Spec,
    by_look,
    character,
    layers,
    mark,
    names,
    number,
    wrapped,
)
from ablate.spec.suite import is_accuracy

NAME = 34
"""Characters of a name on one line of the legend."""
MOST = 12
"""Variants that are drawn; of more, those with the best mean scores. The matrix has all."""
MEAN = "mean score"
ROOM = 0.15
"""Of the axis beyond the scores, and beyond 0 and 1: what of an interval lies further is not a score of a model."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The profile of a suite."""
    if not findings.report.tasks:
        return ()
    hidden = len(findings.report.variants) - MOST
    rest = f" Left out: {plural(hidden, 'further variant')}." if hidden > 0 else ""
    return (
        Picture(
            "profile",
            "Scores by task with 95 % intervals over seeds: 0 is the best trivial baseline, 1 the best value of the "
            "metric; intervals are cut there and where they leave the axis. Below, their mean, by which the variants "
            "are judged."
            f"{rest}",
        ),
    )


def profile(report: StudyReport, palette: Palette) -> Spec:
    """A strip for the mean and for each task; in it a mark with its interval for each variant."""
    suite = answer_of(report).suite
    assert suite is not None, "only suites have a profile"
    shown, looks = suite.rows[:MOST], palette.variants(report.record)
    labels = {row.variant: wrapped(new_part(row.words), NAME) for row in shown}
    rows: list[dict[str, Any]] = [
        {"task": task, "name": labels[row.variant], "score": score, "low": low, "high": high, "metric": value,
         "verdict": verdict}
        for row in shown
        for task, score, low, high, value, verdict in (
            *((task, cell.score, cell.score_low, cell.score_high, cell.mean, cell.sentence)
              for task, cell in row.cells.items()),
            (MEAN, row.score, row.low, row.high, None, ""),
        )
        if score is not None
    ]  # fmt: skip
    scores = [row["score"] for row in rows]
    best = max(1.0, *scores)  # of an accuracy none is better than perfect
    for row in rows:
        row["reach"] = None if row["high"] is None else min(row["high"], best)
    domain = min(0.0, *scores) - ROOM, best + ROOM / 3
    x = number("score", "score (0: best trivial baseline, 1: perfect; higher is better)", domain=domain)
    tasks = [*suite.tasks, MEAN]
    y = names("task", tasks)
    inside = {"field": "name", "type": "nominal", "sort": None, "scale": {"domain": [*labels.values()]}}
    at = {"y": y, "yOffset": inside}
    of = {labels[name]: looks[name] for name in labels}
    tip = [{"field": key, "title": key} for key in ("name", "task", "score", "low", "high", "metric", "verdict")]
    ends = [row for row in rows if row["low"] is not None]
    return layers(
        [
            mark("rect", [{"task": task} for task in tasks[::2]], {"y": y}, color=palette.faint, opacity=0.5),
            mark("rule", [{}], {"x": {"datum": 0}}),
            mark("rule", [{}], {"x": {"datum": 1}}, strokeDash=[4, 3]),
            mark("rule", ends, {"x": x | {"field": "low"}, "x2": {"field": "reach"}, **at,
                                **by_look("name", of, "color")},
                 strokeWidth=1.3, clip=True),
            mark("point", rows, {"x": x, **at, **by_look("name", of, "color", "shape"), "tooltip": tip}, size=55),
        ],
        max(30, 11 * len(shown)) * (1 + len(suite.tasks)),
    )  # fmt: skip


def matrix(answer: Answer, *, narrow: bool = False) -> Grid:
    """A row for each variant and a column for each task: mean, interval and verdict; the rows of a suite's answer.

    Args:
        narrow: Whether it is to fit a phone: without intervals, and with two decimals.
    """
    suite = answer.suite
    assert suite is not None, "only suites have a matrix"

    decimals = 2 if narrow else suite.decimals
    least = 0.0 if is_accuracy(suite.metric) else -math.inf

    def around(low: float | None, high: float | None, least: float, most: float, decimals: int) -> str:
        if low is None or high is None or narrow:
            return ""
        if least <= low and high <= most:
            return f" ± {(high - low) / 2:.{decimals}f}"
        return f" ({max(low, least):.{decimals}f} to {min(high, most):.{decimals}f})"

    def interval(task: str, cell: SuiteCell) -> str:
        if cell.mean is None:
            return suite_mark(cell) if cell.verdict == "diverged" else MISSING
        of = suite.tasks[task]
        ends = (least, of.perfect) if of.perfect > of.trivial else (of.perfect, math.inf)
        within = around(cell.low, cell.high, min(cell.mean, ends[0]), max(cell.mean, ends[1]), decimals)
        return f"{cell.mean:.{decimals}f}{within} {_verdict(cell, narrow=narrow)}".rstrip()

    judged = {row.variant: (key, row) for group in answer.groups for key in [group.key] for row in group.rows}

    def mean(of: SuiteRow) -> str:
        if of.score is None:
            return MISSING
        within = around(of.low, of.high, -math.inf, max(1.0, of.score), 2)
        if of.variant not in judged:
            return f"{of.score:.2f}{within}"
        key, row = judged[of.variant]
        word = "" if narrow else f" {verdict_word(key, row)}"
        star = "*" * (row.bound is not None and not row.jointly)
        return f"{of.score:.2f}{within} {character(Palette().verdict(DRAWN_AS[key]))}{word}{star}"

    rows = tuple(
        (new_part(row.words), *(interval(task, cell) for task, cell in row.cells.items()), mean(row))
        for row in suite.rows
    )
    trivial = ("trivial baseline", *(f"{task.trivial:.{decimals}f}" for task in suite.tasks.values()), "0.00")
    titles = ("variant", *suite.tasks, "mean" if narrow else MEAN)
    return Grid(titles, (rows, (trivial,)), frozenset({0}))


def _verdict(cell: SuiteCell, *, narrow: bool) -> str:
    """The verdict on a variant on a task: the mark of the figures, with the word unless it is `narrow`."""
    word, beside = ("" if cell.alike else cell.verdict), suite_mark(cell).lstrip("".join(VERDICT_MARKS.values()))
    if word not in VERDICT_MARKS:
        return beside
    return f"{character(Palette().verdict(word))}{'' if narrow else f' {in_answer(word)}'}{beside}"


def _key(cells: Iterable[SuiteCell]) -> str:
    """What the marks of these cells mean."""
    words = dict.fromkeys(cell.verdict for cell in cells if not cell.alike and cell.verdict in VERDICT_MARKS)
    return ", ".join(f"{character(look)} {label}" for label, look in Palette().verdicts(words).items())


def matrix_note(answer: Answer, *, narrow: bool = False) -> str:
    """How to read the matrix, in a few sentences; `narrow` as for `matrix`."""
    suite = answer.suite
    assert suite is not None, "only suites have a matrix"
    cells = [cell for row in suite.rows for cell in row.cells.values()]
    spread = "" if narrow else " with half of its 95 % interval over seeds, or its ends cut at what the metric can be"
    said = f"{suite.metric}{spread}. Beside it the verdict against the baseline on this task, margin {suite.margin:g}"
    said += f": {_key(cells)}" * narrow
    said += "; none where it equals the baseline at every seed" * any(cell.alike for cell in cells)
    marks = "".join(map(suite_mark, cells))
    alone = " *: true alone, not jointly over all variants and tasks (Holm's procedure)." * ("*" in marks)
    return f"{said}.{alone}{' °: not above the trivial baseline.' * ('°' in marks)}"


SCORE = "The score of a task is (metric - trivial) / (perfect - trivial): 0 is the best trivial baseline, 1 is perfect."
"""How a score follows from the metric of a task."""


def section(findings: Findings, shown: Mapping[str, Picture]) -> Section | None:
    """The tasks of a suite; None for any other study."""
    if not findings.report.tasks:
        return None
    answer = answer_of(findings.report)
    drawn = (shown["profile"],) if "profile" in shown else ()
    return Section("Tasks", (matrix(answer), Paragraph(f"{matrix_note(answer)} {SCORE}"), *drawn))


FIGURES = {"profile": lambda findings, palette: profile(findings.report, palette)}

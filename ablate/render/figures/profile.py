"""A suite: the matrix of variants and tasks, and its profile, a strip for each task on one axis of scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
            "metric; intervals are cut there, and end in an arrow where they leave the axis. Below, their mean, by "
            f"which the variants are judged.{rest}",
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
    cut = [row | {"low": domain[0]} for row in ends if row["low"] < domain[0]]
    return layers(
        [
            mark("rect", [{"task": task} for task in tasks[::2]], {"y": y}, color=palette.faint, opacity=0.5),
            mark("rule", [{}], {"x": {"datum": 0}}),
            mark("rule", [{}], {"x": {"datum": 1}}, strokeDash=[4, 3]),
            mark("rule", ends, {"x": x | {"field": "low"}, "x2": {"field": "reach"}, **at,
                                **by_look("name", of, "color")},
                 strokeWidth=1.3, clip=True),
            mark("point", cut, {"x": x | {"field": "low"}, **at, **by_look("name", of, "color")},
                 shape="triangle-left", size=55),
            mark("point", rows, {"x": x, **at, **by_look("name", of, "color"), "tooltip": tip}, size=55),
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

    def column(of: Sequence[tuple[float | None, float | None, float | None]], ends: tuple[float, float],
               decimals: int) -> list[str]:  # fmt: skip
        """Means with their intervals, all in one form: `±`, or with their ends where one is cut at those of a value."""
        cut = any(
            low < min(mean, ends[0]) or high > max(mean, ends[1])
            for mean, low, high in of
            if mean is not None and low is not None and high is not None
        )

        def written(mean: float, low: float | None, high: float | None) -> str:
            if low is None or high is None or narrow:
                return f"{mean:.{decimals}f}"
            if not cut:
                return f"{mean:.{decimals}f} ± {(high - low) / 2:.{decimals}f}"
            low, high = max(low, min(mean, ends[0])), min(high, max(mean, ends[1]))
            return f"{mean:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"

        return [MISSING if mean is None else written(mean, low, high) for mean, low, high in of]

    columns = []
    for name, task in suite.tasks.items():
        cells = [row.cells[name] for row in suite.rows]
        ends = (least, task.perfect) if task.perfect > task.trivial else (task.perfect, math.inf)
        means = column([(cell.mean, cell.low, cell.high) for cell in cells], ends, decimals)
        lost = [cell.mean is None and cell.verdict == "diverged" for cell in cells]
        columns.append(
            [
                suite_mark(cell) if gone else f"{mean} {_verdict(cell, narrow=narrow)}".rstrip()
                for mean, cell, gone in zip(means, cells, lost, strict=True)
            ]
        )
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
    columns.append([f"{score}{verdict(row)}" for score, row in zip(scores, suite.rows, strict=True)])
    rows = tuple((new_part(row.words), *cells) for row, *cells in zip(suite.rows, *columns, strict=True))
    trivial = ("trivial baseline", *(f"{task.trivial:.{decimals}f}" for task in suite.tasks.values()), "0.00")
    titles = ("variant", *suite.tasks, "score" if narrow else f"{MEAN} (0 trivial, 1 perfect)")
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


def matrix_key(answer: Answer, *, narrow: bool = False) -> str:
    """What the marks and the last column of the matrix mean, in a line below it; `narrow` as for `matrix`."""
    suite = answer.suite
    assert suite is not None, "only suites have a matrix"
    cells = [cell for row in suite.rows for cell in row.cells.values()]
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


def matrix_note(answer: Answer, *, narrow: bool = False) -> str:
    """How to read the matrix, in a sentence or two; `narrow` as for `matrix`."""
    suite = answer.suite
    assert suite is not None, "only suites have a matrix"
    spread = "" if narrow else " with its 95 % interval over seeds, cut at what the metric can be"
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


FIGURES = {"profile": lambda findings, palette: profile(findings.report, palette)}

"""The forest plot: differences from the baseline with their intervals, and the margin."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ablate.analysis.columns import groups
from ablate.analysis.findings import Findings
from ablate.analysis.judging import deciding_bounds, worst_margin
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import SELECTED, VariantRow
from ablate.render.blocks import Picture
from ablate.render.figures.style import (
    WIDTH,
    Palette,
    Spec,
    alike,
    by_look,
    layers,
    margin_marks,
    mark,
    names,
    number,
    wrapped,
)

NAME = 36
"""Characters of a name on one line, where the figure is as wide as a page."""
MOST = 60
"""Rows of a page of the plot; of more, those come first that say most."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure, if any variant was compared with the baseline."""
    report = findings.report
    if not compared(report):
        return ()
    worse = "right" if report.direction == "minimize" else "left"
    caption = (
        f"Difference of {report.metric} from the baseline{', as a share of it' * report.rule.relative}, "
        f"{report.pairing}; further {worse} is worse, and "
        f"shaded is worse by more than the margin {report.margin:g}. Thin: 95 % interval; thick: the one-sided 95 % "
        f"bounds that the verdict rests on; small dots: single {report.unit}s. Diverged variants are at the worse edge."
    )
    return (Picture("forest", caption),)


def compared(report: StudyReport) -> list[VariantRow]:
    """The variants with a difference to draw, in the order of the table; many, the most telling first."""
    rows = [row for group in groups(report) for row in group if row.difference is not None]
    rows = [row for row in rows if row.diverged or (row.difference and row.difference.difference is not None)]
    return most_telling_first(rows, report.direction) if len(rows) > MOST else rows


def most_telling_first(rows: Sequence[VariantRow], direction: str) -> list[VariantRow]:
    """The most informative first: the decided ones, best first; then those that need the fewest seeds for a decision.

    Args:
        direction: `minimize` or `maximize`, of the objective.
    """

    def sort_key(row: VariantRow) -> tuple[bool, float, float]:
        worse = row.difference.difference if row.difference else None
        signed = math.inf if worse is None else worse if direction == "minimize" else -worse
        if row.verdict is not None and row.verdict.word != "undecided":
            return False, 0.0, signed
        further = row.verdict.further_seeds if row.verdict is not None else None
        return True, math.inf if further is None else further, signed

    return sorted(rows, key=sort_key)


def forest(report: StudyReport, rows: Sequence[VariantRow], palette: Palette, width: float = WIDTH) -> Spec:
    """A row for each of these variants: thick the bounds behind the verdict, thin the 95 % interval, dots the seeds.

    Args:
        width: Of the figure in pixels, to which names are wrapped.
    """
    letters = round(NAME * width / WIDTH)
    margin = worst_margin(report.margin, report.direction)
    better = "lower" if report.direction == "minimize" else "higher"
    low, high = _reach(rows, margin)
    edge = high if margin > 0 else low
    titles = report.titles
    drawn = [_row(row, wrapped(titles[row.name], letters), report, edge) for row in rows]
    title = f"difference of {report.metric}{', share' * report.rule.relative}\n({better} is better)"
    x = number("difference", title, domain=(low, high))
    y = names("name", [row["name"] for row in drawn])
    labels, looks = alike(row["verdict"] for row in drawn), palette.verdicts(row["verdict"] for row in drawn)
    drawn = [row | {"verdict": labels[row["verdict"]]} for row in drawn]
    tone, marks = by_look("verdict", looks, "color"), by_look("verdict", looks, "color", "shape")
    ends = [row for row in drawn if row["low"] is not None]
    dots = [{"name": row["name"], "seed": seed} for row in drawn for seed in row["seeds"]]
    step = max(24, 13 * max(row["name"].count("\n") + 1 for row in drawn) + 4)
    lost = [row for row in drawn if row["lost"]]
    said = {"align": "right", "dx": -9} if edge > 0 else {"align": "left", "dx": 9}
    tip = [{"field": key, "title": key} for key in ("variant", "sentence", "difference", "interval")]
    return layers(
        [
            *margin_marks(margin, "x", edge, faint=palette.faint),
            mark("rule", ends, {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, **tone}, strokeWidth=2),
            mark("rule", [row for row in drawn if row["least"] is not None],
                 {"x": x | {"field": "least"}, "x2": {"field": "most"}, "y": y, **tone}, strokeWidth=4.5),
            mark("point", dots, {"x": x | {"field": "seed"}, "y": y}, yOffset=9, size=9, color=palette.grey),
            mark("point", drawn, {"x": x, "y": y, **marks, "tooltip": tip}, size=80),
            mark("text", lost, {"x": x, "y": y, "text": {"field": "sentence"}}, **said) if lost else None,
        ],
        step * len(rows),
    )  # fmt: skip


def _row(row: VariantRow, title: str, report: StudyReport, edge: float) -> Spec:
    paired, bound = row.difference, deciding_bounds(row.verdict, report.direction)
    assert paired is not None
    lost = bool(row.diverged) or paired.difference is None  # the mean of the seeds that finished is biased
    drawn = not lost and bound is not None and math.isfinite(bound.low + bound.high)
    known = not lost and paired.low is not None and paired.high is not None
    return {
        "variant": row.name,
        "name": title,
        "verdict": row.verdict.word if row.verdict is not None else SELECTED,
        "sentence": row.verdict_sentence or "",
        "difference": edge if lost else paired.difference,
        "low": paired.low if known else None,
        "high": paired.high if known else None,
        "interval": f"{paired.low:+.4g} to {paired.high:+.4g}, {paired.n} {report.unit}s" if known else "none",
        "least": bound.low if drawn and bound is not None else None,
        "most": bound.high if drawn and bound is not None else None,
        "seeds": [] if lost else [*paired.values],
        "lost": lost,
    }


def _reach(rows: Sequence[VariantRow], margin: float) -> tuple[float, float]:
    ends = [0.0, 1.5 * margin]
    for row in rows:
        if row.difference is not None and not row.diverged:
            ends += [*row.difference.values]
            ends += [end for end in (row.difference.low, row.difference.high) if end is not None]
    room = 0.04 * (max(ends) - min(ends))
    return min(ends) - room, max(ends) + room


FIGURES = {
    "forest": lambda findings, palette, width: forest(findings.report, compared(findings.report), palette, width)
}

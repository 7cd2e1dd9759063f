"""One interval on the axis that all rows of an answer share, in characters or as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from ablate.analysis.answer import Answer
from ablate.analysis.answer_rows import AnswerRow

_WIDTH, _LETTER = 244, 7.2
"""Of the pictures, and of a letter of the numbers above them, in pixels."""
_ARROWS = {True: f"M{_WIDTH - 10} 7l9 6l-9 6z", False: "M10 7l-9 6l9 6z"}
"""At the right end of the axis, or at the left one."""
_CRISP = 'shape-rendering="crispEdges"'
"""Of what is straight, which would cover half pixels and so be pale at most widths."""
REACH = 2.5
"""Margins from the baseline up to which the axis may reach; what lies beyond is an arrow at its end."""
FURTHER = (6.0, 16.0)
"""The same of pictures, which have more room, where most intervals do not lie within less."""
BESIDE_MEANS = 1.1
"""How much further than the furthest mean an axis reaches that shows all means."""


class Span(NamedTuple):
    """A difference with its interval."""

    difference: float | None
    low: float | None
    high: float | None


MARKS = {
    "circle": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0z",
    "square": "M-5 -5h10v10h-10z",
    "diamond": "M0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z",
    "triangle-up": "M0 -6l6.5 11h-13z",
}
"""Vega's names of marks to their outlines in pixels around the mean; others are drawn as circles."""
_NUMBER = re.compile(r"-?[\d.]+")


def outline(mark: str) -> str:
    """The outline of Vega's mark, as the path of an SVG; Vega's own paths reach from -1 to 1."""
    if mark.startswith("M"):
        return _NUMBER.sub(lambda found: f"{6 * float(found[0]):g}", mark)
    return MARKS.get(mark, MARKS["circle"])


@dataclass(frozen=True, slots=True)
class Axis:
    """From better at its beginning to worse at its end, in the unit of the metric.

    Characters always have worse at the right. Pictures have larger values at the right, as all other figures do: a
    number with a plus stands right of zero.

    Attributes:
        low: Its left end.
        high: Its right end.
        margin: Where the margin is marked.
        worse: 1 where a larger metric is worse, else -1.
        both: Whether the margin counts on either side: effects may lie within it, variants may be better by it.
    """

    low: float
    high: float
    margin: float
    worse: int
    both: bool = False

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """An axis for the rows of an answer."""
        return cls.around(answer.margin, answer.worse, answer.rows)

    @classmethod
    def of_picture(cls, answer: Answer) -> Self:
        """An axis for the rows of an answer in a picture: with both margins where something is better."""
        both = any(group.key in ("better", "ahead") for group in answer.groups)
        return cls.around(answer.margin, answer.worse, answer.rows, (REACH, *FURTHER), both=both)

    @classmethod
    def of_effects(cls, margin: float, worse: int, spans: Sequence[Span], *, both: bool) -> Self:
        """An axis that shows all means, unless one is so far off that the margin could not be seen.

        It shows the intervals whole where that takes at most twice the room.
        """
        furthest = max((abs(span.difference) for span in spans if span.difference is not None), default=0.0)
        reach = max(FURTHER[0], BESIDE_MEANS * furthest / margin)
        reach = reach if reach <= FURTHER[1] else FURTHER[0]
        ends = (abs(end) for span in spans for end in (span.low, span.high) if end is not None and math.isfinite(end))
        whole = BESIDE_MEANS * max(ends, default=0.0) / margin
        return cls.around(margin, worse, spans, (whole if reach < whole <= 2 * reach else reach,), both=both)

    @classmethod
    def around(
        cls,
        margin: float,
        worse: int,
        rows: Sequence[Span | AnswerRow],
        reaches: Sequence[float] = (REACH,),
        *,
        both: bool = False,
    ) -> Self:
        """An axis that holds zero, the margin and the intervals as far as it reaches.

        Args:
            reaches: Margins up to which it may reach: as many as hold most intervals, else the last.
            both: Whether the margin counts on either side.
        """
        known = [[end for end in (row.low, row.difference, row.high) if end is not None] for row in rows]
        finite = [[abs(end) for end in drawn if math.isfinite(end)] for drawn in known]
        furthest = [max(drawn) / margin for drawn in finite if drawn]
        reach = next((to for to in reaches if 2 * sum(end <= to for end in furthest) > len(furthest)), reaches[-1])
        ends = [(-1.25 if both else -0.25) * margin, 1.25 * margin]
        for row, drawn in zip(rows, known, strict=True):
            if row.difference is not None and abs(row.difference) <= reach * margin:
                ends += [max(-reach * margin, min(reach * margin, worse * end)) for end in drawn if math.isfinite(end)]
        return cls(min(ends), max(ends), margin, worse, both)

    def position(self, value: float) -> float:
        """Where a value lies, from 0 at the left end to 1 at the right."""
        return (value - self.low) / (self.high - self.low)

    def span(self, row: Span | AnswerRow) -> tuple[float, float, float] | None:
        """Where an interval begins, has its mean and ends, oriented so that the right is worse; None without one."""
        if row.difference is None:
            return None
        first, last = sorted(self.worse * (row.difference if end is None else end) for end in (row.low, row.high))
        return self.position(first), self.position(self.worse * row.difference), self.position(last)


def interval_text(axis: Axis, row: AnswerRow | None, mark: str, width: int) -> str:
    """An interval in `width` characters, with zero and the margin; arrows where it leaves the axis."""

    def cell(position: float) -> int:
        return round(min(max(position, 0.0), 1.0) * (width - 1))

    cells = [" "] * width
    cells[cell(axis.position(0.0))], cells[cell(axis.position(axis.margin))] = "│", "┊"
    if row is None or (span := axis.span(row)) is None:
        return "".join(cells)
    first, mean, last = span
    for at in range(cell(first), cell(last) + 1):
        cells[at] = "─"
    cells[cell(mean)] = mark
    if first < 0:
        cells[0] = "◀"
    if last > 1:
        cells[-1] = "▶"
    return "".join(cells)


def heading_text(axis: Axis, width: int) -> str:
    """Zero and the margin as numbers above their lines, in `width` characters."""
    cells = [" "] * width
    zero, at = (round(axis.position(value) * (width - 1)) for value in (0.0, axis.margin))
    text = f"margin {axis.margin:g}"
    if zero + 2 + len(text) > width:
        text = f"{axis.margin:g}"
    cells[zero] = "0"
    start = min(max(zero + 2, at - len(text) // 2), width - len(text))
    cells[start : start + len(text)] = text
    return "".join(cells)


def _pixel(axis: Axis, position: float) -> float:
    """Where a picture draws a place on the axis; what lies beyond its ends is drawn there."""
    pixel = min(max(position, 0.0), 1.0) * (_WIDTH - 12) + 6
    return round(pixel if axis.worse > 0 else _WIDTH - pixel, 1)


class Label(NamedTuple):
    """A number above an axis: where it is from 0 to 1 at the right, which end of it is there, and itself."""

    at: float
    anchor: str
    text: str


def axis_labels(axis: Axis) -> list[Label]:
    """Zero and the margin as numbers where `interval_svg` draws their lines, and both ends, where that has room."""
    zero, *margins = (
        _pixel(axis, axis.position(value))
        for value in (0.0, *(side * axis.margin for side in (1, -1)[: 1 + axis.both]))
    )
    number = f"{'±' * axis.both}{axis.margin:g}"
    said = f"margin {number}"
    taken, margin = _LETTER * len(said), margins[0]
    outward = [at for at in margins if (_WIDTH - at if at > zero else at) > taken]
    if outward:
        side = 1 if outward[0] > zero else -1
        margin, anchor = side * max(side * outward[0], side * zero + 2 * _LETTER), "start" if side > 0 else "end"
    elif abs(margin - zero) > taken + _LETTER:
        anchor = "end" if margin > zero else "start"
    else:
        said, anchor, half = number, "middle", _LETTER * len(number) / 2
        margin = min(max(margin, half), _WIDTH - half)
    labels = [Label(zero / _WIDTH, "middle", "0"), Label(margin / _WIDTH, anchor, said)]
    first = margin - taken * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
    free = (min(zero - _LETTER, first), max(zero + _LETTER, first + taken))
    ends = sorted(axis.worse * end for end in (axis.low, axis.high))
    for end, at, edge, room in zip(ends, (0, _WIDTH), ("start", "end"), (free[0], _WIDTH - free[1]), strict=True):
        told = f"{end:+.3g}"
        if abs(end) > 1.25 * axis.margin and room > _LETTER * (len(told) + 1):  # else no interval reaches there
            labels.append(Label(at / _WIDTH, edge, told))
    return labels


def axis_html(axis: Axis) -> str:
    """The numbers above an axis in the letters of the table, however wide its pictures are drawn."""
    numbers = "".join(
        f'<span class="{label.anchor}" style="left: {label.at:.1%}">{label.text}</span>' for label in axis_labels(axis)
    )
    return f'<span class="axis" aria-label="0 and the margin {axis.margin:g}">{numbers}</span>'


def interval_svg(axis: Axis, row: Span | AnswerRow, *, colour: str, ink: str, mark: str) -> str:
    """The same as SVG.

    Args:
        colour: Of the interval, as #rrggbb.
        ink: Of the lines at zero and at the margin.
        mark: Vega's name of the mark of the mean, so that verdicts differ by more than their colour.
    """
    middle, parts = 13.0, list[str]()
    if (span := axis.span(row)) is not None and row.difference is not None:
        first, mean, last = (_pixel(axis, position) for position in span)
        begin, end = sorted((first, last))
        beyond = (span[0] < 0, span[2] > 1)
        at_left, at_right = beyond if axis.worse > 0 else beyond[::-1]
        if begin < end:
            line = f'y1="{middle}" y2="{middle}" stroke="{colour}" stroke-width="3" {_CRISP}'
            parts.append(f'<line x1="{begin:g}" x2="{end:g}" {line}/>')
        if at_right:
            parts.append(f'<path d="{_ARROWS[True]}" fill="{colour}"/>')
        if at_left:
            parts.append(f'<path d="{_ARROWS[False]}" fill="{colour}"/>')
        if 0 <= span[1] <= 1:
            parts.append(f'<path d="{outline(mark)}" transform="translate({mean} {middle})" fill="{colour}"/>')
    return _on_axis(axis, parts, ink)


def seeds_svg(axis: Axis, differences: Sequence[float], *, colour: str, ink: str, ground: str) -> str:
    """A circle for each difference where `interval_svg` draws the means; at the end of the axis for what lies beyond.

    Args:
        colour: Of the circles, as #rrggbb.
        ink: Of the lines at zero and at the margin.
        ground: Of the rims, which separate circles that overlap.
    """
    places = [axis.position(axis.worse * one) for one in differences]
    circles = [
        f'<circle cx="{_pixel(axis, place)}" cy="13" r="5" fill="{colour}" fill-opacity="0.85" stroke="{ground}"/>'
        for place in places if 0 <= place <= 1
    ]  # fmt: skip
    if any(place > 1 for place in places):
        circles.append(f'<path d="{_ARROWS[axis.worse > 0]}" fill="{colour}"/>')
    if any(place < 0 for place in places):
        circles.append(f'<path d="{_ARROWS[axis.worse < 0]}" fill="{colour}"/>')
    return _on_axis(axis, circles, ink)


def _on_axis(axis: Axis, parts: Sequence[str], ink: str) -> str:
    """A picture of a row, with the lines at zero and at the margin behind it."""
    width, height, zero = _WIDTH, 26, _pixel(axis, axis.position(0.0))

    def line(at: float, more: str = "") -> str:
        return f'<line x1="{at}" x2="{at}" y1="0" y2="{height}" stroke="{ink}" {_CRISP}{more}/>'

    behind = [line(zero)]
    for side in (1, -1)[: 1 + axis.both]:
        margin = _pixel(axis, axis.position(side * axis.margin))
        begin, end = (margin, float(width)) if side * axis.worse > 0 else (0.0, margin)
        shade = f'width="{end - begin:.1f}" height="{height}" fill="{ink}" fill-opacity="0.16" {_CRISP}'
        behind += [f'<rect x="{begin}" y="0" {shade}/>', line(margin, ' stroke-dasharray="3 3"')]
    box = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join((*behind, *parts))}</svg>'

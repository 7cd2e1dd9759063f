"""How figures look: colours for paper and for light and dark pages, shapes that say the same, and parts of their specs.

A figure is a Vega-Lite specification, as plain data: https://vega.github.io/vega-lite/docs/. Text of users is only ever
data or a title in it, which Vega-Lite does not interpret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ablate.analysis.answer_rows import GroupKey, in_answer
from ablate.analysis.numbers import listed, plural
from ablate.analysis.rows import SELECTED
from ablate.stats.verdict import removal_word
from ablate.store import StudyRecord

Spec = dict[str, Any]
"""A Vega-Lite specification, or a part of one."""

WIDTH = 672
"""Pixels of a written figure: 7 inches, the text width of a page."""
_CROSS = "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"
_LIGHT = ("#2365f8", "#c62b7a", "#6e19c2", "#69344a", "#865db7", "#323981")
_DARK = ("#208dc0", "#df468f", "#a05bfd", "#e3bbfe", "#d799b0", "#959dfe")
_SHADES = ("#0a2a7a", "#3f74d8", "#8793a8"), ("#9bceff", "#4f8fe0", "#66758c")
"""Of numbers, from those that stand out, on light and on dark pages."""
_DASHES = ((1, 0), (6, 4), (2, 3), (6, 3, 2, 3), (10, 4), (10, 3, 2, 3))
_MARKS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    _CROSS,
    "cross",
    "triangle-down",
    "triangle-left",
    "triangle-right",
)
_VERDICTS = {
    "better": (("#0b2acb", "#7acfff"), "triangle-up"),
    "not needed": (("#007a8c", "#0ebe81"), "circle"),
    "needed": (("#8f2c00", "#ea7c33"), "square"),
    "undecided": (("#8a6d00", "#f2c342"), "diamond"),
    "diverged": (("#7a2f8f", "#d07ae0"), _CROSS),
    SELECTED: (("#3c4148", "#7d8590"), "triangle-down"),
}
_AHEAD = _VERDICTS["not needed"][0], _VERDICTS["better"][1]  # better, but perhaps by less than the margin
_LOOKS = {"better": _VERDICTS["better"], "ahead": _AHEAD, **_VERDICTS}
DRAWN_AS: dict[GroupKey, str] = {
    "better": "better",
    "can go": "not needed",
    "ahead": "ahead",
    "as good": "not needed",
    "must stay": "needed",
    "worse": "needed",
    "undecided": "undecided",
    "unproven": "undecided",
    "lost": "diverged",
    "waiting": SELECTED,
    "no answer": "undecided",
}
"""Groups of an answer to the verdict in whose colour and mark they are drawn."""


@dataclass(frozen=True, slots=True)
class Look:
    """How something is drawn: colour as #rrggbb, lengths of strokes and gaps, Vega's name or the path of a mark."""

    colour: str
    dash: tuple[int, ...]
    mark: str


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a figure.

    One colour means one variant, chosen by its place in the study's design, with a dash and a mark. The colours are
    blue, pink and violet, each in a tone for light and one for dark pages; orange, green and yellow are for verdicts
    alone. Their contrast to the page is at least 4.5:1, and colour-blind people can distinguish them;
    `tests/dashboard/test_colours.py` measures both.

    Attributes:
        dark: Whether it is drawn on a dark page.
        paper: The background; empty on a page, which has its own.
    """

    dark: bool = False
    paper: str = ""

    @property
    def ink(self) -> str:
        """The colour of text and lines."""
        return "#d5dce5" if self.dark else "#33404f"

    @property
    def grey(self) -> str:
        """The colour of less important marks."""
        return "#8b97a8" if self.dark else "#667180"

    @property
    def faint(self) -> str:
        """The colour of areas behind marks."""
        return "#2a323d" if self.dark else "#e6e9ed"

    @property
    def ground(self) -> str:
        """The colour behind a figure: of the paper, or of the page."""
        return self.paper or ("#11161d" if self.dark else "#ffffff")

    @property
    def halos(self) -> tuple[Spec, Spec]:
        """How to draw a text twice, so that lines that cross it do not touch it."""
        return {"stroke": self.ground, "strokeWidth": 4, "strokeJoin": "round"}, {}

    @property
    def chosen(self) -> str:
        """The colour of the best point of a search, the one that is chosen; series beside it leave out the second."""
        return self.look(1).colour

    def shades(self, *, highest: bool = False) -> Spec:
        """The colour scale of a quantity, on which the lowest values stand out, or the highest."""
        colours = _SHADES[self.dark]
        return {"range": [*(reversed(colours) if highest else colours)]}

    def look(self, index: int) -> Look:
        """The look with this number: six colours, then the same with another dash; marks differ too."""
        colours = _DARK if self.dark else _LIGHT
        again, colour = divmod(index, len(colours))
        return Look(colours[colour], _DASHES[again % len(_DASHES)], _MARKS[(index + 1) % len(_MARKS)])

    def baseline(self, index: int = 0) -> Look:
        """The look of a baseline: black or, on a dark page, white; those of other studies are dashed, in turn grey."""
        colour = self.grey if index % 2 else "#e8edf3" if self.dark else "#1b2430"
        return Look(colour, _DASHES[index % len(_DASHES)], _MARKS[index % len(_MARKS)])

    def variants(self, record: StudyRecord) -> dict[str, Look]:
        """Variant name to its look."""
        others = [variant.name for variant in record.variants if variant.name != record.baseline]
        return {record.baseline: self.baseline()} | {name: self.look(index) for index, name in enumerate(others)}

    def verdict(self, word: str) -> Look:
        """The look of a verdict, a group of an answer or what stands in its place; `worse` looks as `needed` does."""
        colours, mark = _LOOKS[_drawn_as(word)]
        return Look(colours[self.dark], _DASHES[0], mark)

    def verdicts(self, words: Iterable[str]) -> dict[str, Look]:
        """The looks of these verdicts by their labels (`alike`), in the order of legends."""
        labels = alike(words)
        return {labels[word]: self.verdict(word) for kept in _LOOKS for word in labels if _drawn_as(word) == kept}


_CHARACTERS = {"square": "■", "diamond": "◆", "triangle-up": "▲", "triangle-down": "▼", "triangle-left": "◀",
               "triangle-right": "▶", "cross": "✚", _CROSS: "×"}  # fmt: skip
"""Marks to characters; others are circles."""


def character(look: Look) -> str:
    """The character for the mark of a look."""
    return _CHARACTERS.get(look.mark, "●")


def alike(words: Iterable[str]) -> dict[str, str]:
    """Verdict to its label in a legend: `must stay or worse` where both occur, which look the same."""
    found = sorted(set(words))
    said = {word: in_answer(word) for word in found}
    return {word: " or ".join(said[one] for one in found if _drawn_as(one) == _drawn_as(word)) for word in found}


def _drawn_as(word: str) -> str:
    """The verdict in whose colour and mark a verdict or a group of an answer is drawn."""
    return DRAWN_AS.get(word, removal_word(word))  # type: ignore[call-overload, no-any-return]


PAPER = Palette(paper="#ffffff")
"""For files."""


def tones() -> dict[str, tuple[str, str]]:
    """Each colour of a light page to itself and the colour that replaces it on a dark page."""
    both = [
        (of.ink, of.grey, of.faint, of.ground, of.baseline().colour, *(_DARK if of.dark else _LIGHT),
         *(colours[of.dark] for colours, _ in _VERDICTS.values()))
        for of in (Palette(), Palette(dark=True))
    ]  # fmt: skip
    return {pair[0]: pair for pair in zip(*both, strict=True)}


PADDING = {"left": 5, "top": 5, "right": 14, "bottom": 5}
"""Around a figure, in pixels; on the right there is room for half of the last number of an axis."""


def themed(spec: Spec, palette: Palette) -> Spec:
    """A figure with the fonts and colours of a palette."""
    ink, size = palette.ink, 11
    axis = {"labelColor": ink, "titleColor": ink, "domainColor": palette.grey, "tickColor": palette.grey,
            "gridColor": palette.faint, "labelFontSize": size, "titleFontSize": size, "titleFontWeight": "normal",
            "labelSeparation": 6, "labelLimit": 400, "labelOverlap": True}  # fmt: skip
    legend = {"labelColor": ink, "titleColor": ink, "labelFontSize": size, "labelLimit": 420, "symbolSize": 70,
              "symbolOpacity": 1, "orient": "bottom", "title": None, "columnPadding": 26}  # fmt: skip
    head = {"labelColor": ink, "titleColor": ink, "labelFontSize": size, "labelFontWeight": "bold"}
    config = {
        "aria": False, "font": "sans-serif", "lineBreak": "\n", "axis": axis, "legend": legend, "header": head,
        "text": {"color": ink, "fontSize": size, "font": FONT}, "rule": {"color": ink}, "view": {"stroke": None},
        "title": {"color": ink, "fontSize": size}, "point": {"filled": True, "opacity": 1}, "tick": {"opacity": 1},
        "axisX": {"labelSeparation": 14}, "axisY": {"titleLimit": 400, "titlePadding": 12},
        "concat": {"spacing": 12}, "facet": {"spacing": 10},
    }  # fmt: skip
    schema = "https://vega.github.io/schema/vega-lite/v6.json"
    return {
        "$schema": schema,
        "background": palette.paper or "transparent",
        "padding": PADDING,
        "config": config,
        **_printable(spec),
    }


def _printable(part: Any) -> Any:
    """The same data with a replacement character for every control code in a text."""
    if isinstance(part, str):
        return part if part.isprintable() else "".join(map(_shown, part))
    if isinstance(part, Mapping):
        return {key: _printable(value) for key, value in part.items()}
    return [*map(_printable, part)] if isinstance(part, list | tuple) else part


def _shown(character: str) -> str:
    return character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}"


def mark(kind: str, rows: Iterable[Mapping[str, Any]] | None, encoding: Spec, **look: Any) -> Spec:
    """A layer: marks of one kind, one for each row (lines and areas: one through all rows of a series)."""
    data = {} if rows is None else {"data": {"values": [*map(dict, rows)]}}
    return {**data, "mark": {"type": kind, **look}, "encoding": encoding}


def layers(parts: Iterable[Spec | None], height: float, **more: Any) -> Spec:
    """Layers in one panel, as wide as a page; `draw` makes it as wide as another."""
    drawn = [part for part in parts if part is not None]
    fit = {"type": "fit-x", "contains": "padding"}
    return {"width": WIDTH, "height": height, "autosize": fit, "layer": drawn, **more}


FAR = 10
"""Margins beyond which a difference is drawn apart from those of other variants."""


def far_off(differences: Mapping[str, Sequence[float | None]], margin: float) -> list[str]:
    """Names whose differences all lie beyond `FAR` margins, beside which those of others are flat; none if all do."""
    far = [name for name, of in differences.items() if all(abs(one) > FAR * margin for one in of if one is not None)]
    return far if len(far) < len(differences) else []


def omission(names: Sequence[str], hidden: int) -> str:
    """A sentence on the variants that a picture lacks: those far off, and those beyond the number of its panels."""
    said = [f"{listed(names)}, beyond {FAR} margins"] if names else []
    said += [plural(hidden, "further variant")] if hidden > 0 else []
    return f" Left out: {'; '.join(said)}." if said else ""


PANEL_NAME = 24
"""Characters of a name on one line of the title of a panel."""
LETTER, BOLD = 6.6, 7.3
"""Pixels of a letter, plain and bold, in the widest font that may show a figure; it is drawn in a narrower one."""
FONT = "Source Sans, sans-serif"
PANEL_TITLE: Spec = {"anchor": "middle", "font": FONT}
"""How the title of a panel looks."""


def panels(parts: Iterable[Spec], rows: Sequence[Spec], height: float = 110, width: float = WIDTH) -> Spec:
    """The same layers once for each `panel` of the rows, with the same axes; the title of a panel is its name."""
    named = dict.fromkeys(str(row["panel"]) for row in rows)
    lines = math.ceil(len(named) / (4 if width >= WIDTH else 2)) or 1
    columns = math.ceil(len(named) / lines) or 1
    each = (width - 60) / columns - 10
    titles = {name: "\n".join(wrapped(line, int(each / BOLD)) for line in name.split("\n")) for name in named}
    facet = {"field": "panel", "type": "nominal", "sort": [*titles.values()], "title": None,
             "header": {"labelPadding": 2}}  # fmt: skip
    drawn = {"layer": [*parts], "width": each, "height": height}
    apart: Spec = {"resolve": {"axis": {"x": "independent"}}} if len(named) % columns else {}  # no axis without a panel
    shown = [{**row, "panel": titles[str(row["panel"])]} for row in rows]
    return {"data": {"values": shown}, "facet": facet, "columns": columns, "spec": drawn, **apart}


def number(field: str, title: str | None = None, **more: Any) -> Spec:
    """A channel of numbers whose axis need not begin at zero; `more` may hold `domain`, `log`, `axis` and so on."""
    scale: Spec = {"zero": False, "nice": "domain" not in more}
    if (domain := more.pop("domain", None)) is not None:
        scale["domain"] = [*domain]
    if more.pop("log", False):
        scale |= {"type": "log", "base": more.pop("base", 10)}
        scale.pop("zero")
    axis, lines = {"tickCount": 8, **more.pop("axis", {})}, None if title is None else title.split("\n")
    return {"field": field, "type": "quantitative", "title": lines, "scale": scale, "axis": axis, **more}


def names(field: str, order: Sequence[str], **more: Any) -> Spec:
    """A channel of names, in this order from the top, with room for them in any font (or from the left)."""
    room = LETTER * max((len(line) for name in order for line in name.split("\n")), default=0) + 8
    axis = {"grid": False, "ticks": False, "domain": False, "title": None, "labelPadding": 8, "minExtent": room}
    return {"field": field, "type": "nominal", "sort": None, "title": None, "scale": {"domain": [*order]}, "axis": axis,
            **more}  # fmt: skip


def by_look(field: str, looks: Mapping[str, Look], *channels: str, legend: bool = True, **more: Any) -> Spec:
    """Channels (`color`, `shape`, `strokeDash`) that draw each name in its look, with one legend for all of them.

    Args:
        more: Of the legend.
    """
    of = {"color": lambda look: look.colour, "shape": lambda look: look.mark, "strokeDash": lambda look: [*look.dash]}
    widest = max(map(len, looks), default=0)
    shown = {"columns": max(1, min(4, 48 // (widest + 4))), **more} if legend else None
    scales = {channel: {"domain": [*looks], "range": [*map(of[channel], looks.values())]} for channel in channels}
    return {
        channel: {"field": field, "type": "nominal", "scale": scale, "legend": shown, "title": None}
        for channel, scale in scales.items()
    }


def margin_marks(margin: float, axis: str, edge: float | None = None, *, faint: str = "") -> list[Spec]:
    """The line of no difference, the dashed margin with its name, and the area beyond it up to `edge`.

    Args:
        margin: With the sign of a worse difference.
        axis: `x` or `y`, along which differences lie.
        edge: The end of the axis on the worse side; None: no area.
        faint: The colour of the area.
    """
    text = f"margin {abs(margin):g}"
    half = LETTER / 2 * len(text)
    labels: dict[str, Spec] = {
        "x": {
            "align": "center",
            "baseline": "bottom",
            "y": 0,
            "dy": -3,
            "x": {"expr": f"clamp(scale('x', {margin}), {half}, width - {half})"},
        },
        "y": {"align": "left", "baseline": "bottom", "x": 3, "dy": -2},
    }
    beyond = {axis: {"datum": margin}, f"{axis}2": {"datum": edge}}
    named = {"text": {"field": "margin"}} | ({"y": {"datum": margin}} if axis == "y" else {})
    return [
        *([] if edge is None else [mark("rect", [{}], beyond, color=faint)]),
        mark("rule", [{}], {axis: {"datum": 0}}),
        mark("rule", [{}], {axis: {"datum": margin}}, strokeDash=[4, 3]),
        mark("text", [{"margin": text}], named, **labels[axis]),
    ]


def with_equal_decimals(values: Sequence[float]) -> list[str]:
    """Numbers of up to four digits with the same decimals, for labels below each other; the greatest has no more."""
    said = [f"{value:.4g}" for value in values]
    greatest = max(map(abs, values), default=0.0)
    if not 1e-3 <= greatest < 1e4:
        return said
    needed = max(len(one.partition(".")[2]) for one in said)
    return [f"{value:.{min(needed, max(0, 3 - math.floor(math.log10(greatest))))}f}" for value in values]


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places moved as little as keeps them `gap` apart in the same order, so that labels there do not collide."""
    order = sorted(range(len(places)), key=places.__getitem__)
    blocks: list[list[float]] = []  # where each label wants the first of its block
    for rank, index in enumerate(order):
        blocks.append([places[index] - rank * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) >= fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    starts = [fmean(block) for block in blocks for _ in block]
    moved = {index: start + rank * gap for rank, (index, start) in enumerate(zip(order, starts, strict=True))}
    return [moved[index] for index in range(len(places))]


def wrapped(text: str, width: int, too: str = "= _") -> str:
    """The text in lines of at most this many characters, broken after a comma, a colon or `@`.

    A part that is longer than a line is broken after the characters `too` as well.
    """
    lines = [""]
    for part in re.split(r"(?<=[,:@])", " ".join(text.split())):
        for piece in re.split(f"(?<=[{too}])", part) if len(part) > width else [part]:
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(map(str.strip, lines))

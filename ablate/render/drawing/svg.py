"""Draws a block as an SVG document, from its layout or from what a store holds of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ablate.errors import AblateError
from ablate.locations import write_file
from ablate.render.drawing.layout import compare, lay_out_verdicts, layout
from ablate.render.drawing.picture import Box, Chip, Drawing, Note, Polyline, Presence, Sum
from ablate.spec.block import BlockSpec

_COLUMN, _ROW = 9, 17
"""Size of a cell in pixels."""
_RADIUS = 9
"""Of a sum, in pixels."""
_MARGIN = 28
_WIDEST = 11.2
"""Mean width in pixels of a character of a title in the widest font of the list (DejaVu Sans Bold)."""
_HEAD = 34
"""Height of the title."""
_LEGEND = 34

_STYLE = """
text { font-family: Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif; }
text { font-size: 13px; fill: #1f2937; }
text.title { font-size: 16px; font-weight: 600; }
text.label { font-weight: 600; }
text.note { font-size: 12px; }
text.removed { fill: #5b6472; font-weight: 400; text-decoration: line-through; }
text.added { fill: #0067a3; }
.paper { fill: #ffffff; }
.box { fill: #f3f4f6; stroke: #6b7280; stroke-width: 1.4; }
.chip { fill: #ffffff; stroke: #6b7280; stroke-width: 1; }
.box.removed, .chip.removed { fill: none; stroke: #6b7280; stroke-width: 1.5; stroke-dasharray: 4 3; }
.box.added, .chip.added { fill: #e3f1fb; stroke: #0067a3; stroke-width: 1.8; }
.line { fill: none; stroke: #4b5563; stroke-width: 1.6; }
.line.removed { stroke: #6b7280; stroke-width: 1.5; stroke-dasharray: 4 3; }
.line.added { stroke: #0067a3; stroke-width: 2; }
.head { fill: #4b5563; }
.head.removed { fill: #6b7280; }
.head.added { fill: #0067a3; }
.sum { fill: #ffffff; stroke: #4b5563; stroke-width: 1.6; }
.sum.removed { stroke: #6b7280; stroke-dasharray: 4 3; }
.sum.added { stroke: #0067a3; }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb; }
text.removed { fill: #a3adbd; }
text.added { fill: #7cc4f0; }
.paper { fill: #111827; }
.box { fill: #1f2937; stroke: #8b95a5; }
.chip, .sum { fill: #111827; stroke: #8b95a5; }
.box.added, .chip.added { fill: #0d2f47; stroke: #7cc4f0; }
.line { stroke: #cbd5e1; }
.box.removed, .chip.removed, .line.removed, .sum.removed { stroke: #8b97a8; }
.line.added, .sum.added { stroke: #7cc4f0; }
.sum { stroke: #cbd5e1; }
.head { fill: #cbd5e1; }
.head.removed { fill: #8b97a8; }
.head.added { fill: #7cc4f0; }
}
"""
VERDICTS: dict[Presence, tuple[str, str]] = {
    "needed": ("#8f2c00", "#ea7c33"),
    "dispensable": ("#007a8c", "#0ebe81"),
    "open": ("#8a6d00", "#f2c342"),
    "varied": ("#0067a3", "#7cc4f0"),
}
"""The colours of verdicts on light and on dark pages, which are those of every figure, and of what is varied."""


def _verdict_styles(dark: bool) -> str:
    rules = []
    for state, colours in VERDICTS.items():
        colour = colours[dark]
        rules.append(
            f".box.{state}, .chip.{state} {{ fill: {colour}33; stroke: {colour}; stroke-width: 2.4; }}\n"
            f".line.{state} {{ stroke: {colour}; stroke-width: 2.6; }}\n"
            f".head.{state} {{ fill: {colour}; }}\ntext.{state} {{ font-weight: 600; }}\n"
        )
    return "".join(rules)


_JUDGED = f"{_verdict_styles(dark=False)}@media (prefers-color-scheme: dark) {{\n{_verdict_styles(dark=True)}}}\n"


def to_svg(picture: Drawing, *, titled: bool = True, pickable: bool = False) -> str:
    """The picture as an SVG document.

    Args:
        titled: Whether its title is written above it; a page may have one of its own.
        pickable: Whether the shapes of a part are in groups whose attribute `data-part` is its slot.
    """
    columns, rows = picture.size
    head = _HEAD if titled else 0
    width = max(columns * _COLUMN, _WIDEST * len(picture.title) * titled, 250) + 2 * _MARGIN
    height = rows * _ROW + head + _LEGEND * bool(picture.legend) + 2 * _MARGIN
    left = _MARGIN + (width - 2 * _MARGIN - columns * _COLUMN) / 2
    order = {"removed": 0, "kept": 1}  # what is there is painted over what was
    drawn = [
        *((line.slot, _line(line)) for line in sorted(picture.lines, key=lambda line: order.get(line.state, 2))),
        *((box.slot, _box(box)) for box in picture.boxes),
        *((chip.slot, _chip(chip)) for chip in picture.chips),
        *(("", _sum(one)) for one in picture.sums),
        *((note.slot, _note(note)) for note in picture.notes),
    ]
    shapes = [f'<g data-part="{escape(slot)}">{shape}</g>' if pickable and slot else shape for slot, shape in drawn]
    body, judged = "\n".join(shapes), bool({*VERDICTS} & {*picture.legend})
    title = (
        f'<text class="title" x="{width / 2:g}" y="{_MARGIN + 8}" text-anchor="middle">{escape(picture.title)}</text>\n'
    )
    legend = _legend(picture.legend, width / 2, height - _MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(picture.title)}">\n'
        f"<style>{_STYLE}{_JUDGED * judged}</style>\n"
        f'<rect class="paper" width="100%" height="100%" rx="8"/>\n'
        f"{title if titled else ''}"
        f'<g transform="translate({left:g} {_MARGIN + head})">\n{body}\n</g>\n{legend}</svg>\n'
    )


def _centre(x: int, y: int) -> tuple[float, float]:
    return (x + 0.5) * _COLUMN, (y + 0.5) * _ROW


def _box(box: Box) -> str:
    x, y = box.x * _COLUMN, box.y * _ROW
    width, height = box.width * _COLUMN, box.height * _ROW
    # One run of text: not every painter of SVG centres several.
    label = escape(box.label + (f" (was {box.was})" if box.was else ""))
    middle, base = x + width / 2, y + (1.0 if box.height > 3 else box.height / 2) * _ROW + 5
    return (
        f'<rect class="box {box.state}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>\n'
        f'<text class="label {box.state}" x="{middle:g}" y="{base:g}" text-anchor="middle">{label}</text>'
    )


def _chip(chip: Chip) -> str:
    x, y, width = chip.x * _COLUMN, chip.y * _ROW - 3, chip.width * _COLUMN
    return (
        f'<rect class="chip {chip.state}" x="{x:g}" y="{y:g}" width="{width:g}" height="{_ROW + 6}" rx="4"/>\n'
        f'<text class="note {chip.state}" x="{x + width / 2:g}" y="{y + _ROW / 2 + 7.5:g}" '
        f'text-anchor="middle">{escape(chip.label)}</text>'
    )


def _sum(one: Sum) -> str:
    x, y = _centre(one.x, one.y)
    return (
        f'<circle class="sum {one.state}" cx="{x:g}" cy="{y:g}" r="{_RADIUS}"/>\n'
        f'<path class="line {one.state}" stroke-dasharray="none" d="M{x - 5:g} {y:g}h10M{x:g} {y - 5:g}v10"/>'
    )


def _line(line: Polyline) -> str:
    points = [_centre(x, y) for x, y in line.points]
    (ax, ay), (bx, by) = points[-2:]
    # A line ends at the edge of the cell that it points to.
    dx, dy = (bx > ax) - (bx < ax), (by > ay) - (by < ay)
    end = (bx + dx * (_COLUMN / 2 - _RADIUS / 2), by + dy * _ROW / 2)
    sy = (points[1][1] > points[0][1]) - (points[1][1] < points[0][1])
    points[0] = (points[0][0], points[0][1] - sy * _ROW / 2)
    points[-1] = (end[0] - 4 * dx, end[1] - 4 * dy) if line.arrow else end if dy else points[-1]
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    shape = f'<path class="line {line.state}" d="{path}"/>'
    if not line.arrow:
        return shape
    x, y = end
    wing = f"{x - 7 * dx + 4 * dy:g} {y - 7 * dy + 4 * dx:g}", f"{x - 7 * dx - 4 * dy:g} {y - 7 * dy - 4 * dx:g}"
    return f'{shape}\n<path class="head {line.state}" d="M{x:g} {y:g}L{wing[0]}L{wing[1]}Z"/>'


def _note(note: Note) -> str:
    x, y = _centre(note.x, note.y)
    start = f'<text class="note {note.state}" x="{x:g}" y="{y + 4:g}" text-anchor="{note.anchor}">'
    return f"{start}{escape(note.text)}</text>"


def _legend(entries: Mapping[Presence, str], x: float, y: float) -> str:
    shown = []
    for number, (state, text) in enumerate(entries.items()):
        left = x + 120 * number - 60 * len(entries) + 20
        shown.append(
            f'<rect class="chip {state}" x="{left:g}" y="{y - 13:g}" width="18" height="14" rx="3"/>\n'
            f'<text class="note" x="{left + 24:g}" y="{y - 1:g}">{text}</text>\n'
        )
    return "".join(shown)


def write_svg(path: Path, content: str) -> None:
    """Write an SVG document.

    Raises:
        AblateError: The file does not end in .svg, or cannot be written.
    """
    if path.suffix.lower() != ".svg":
        raise AblateError("pictures are written as SVG", where=str(path), remedy=f"Write `--out {path.stem}.svg`.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content.encode())
    except OSError as error:
        raise AblateError(
            f"this cannot be written: {error.strerror}", where=str(path), remedy="Name another place."
        ) from None


def stored_svg(
    name: str,
    model: Mapping[str, Any],
    versus: tuple[str, Mapping[str, Any]] | None = None,
    *,
    titled: bool = True,
) -> str:
    """The picture of a stored model's block as an SVG document.

    Args:
        name: What to call it.
        model: `model` of a variant's plain spec.
        versus: Name and plain model to compare it with.
        titled: Whether the name is written above it.

    Raises:
        ValidationError: A mixer of a kind that is not known here.
    """
    block = BlockSpec.model_validate(model["block"])
    if versus is None:
        return to_svg(layout(name, block, bool(model.get("exceptions"))), titled=titled)
    other, old = versus
    return to_svg(compare(other, BlockSpec.model_validate(old["block"]), name, block), titled=titled)


def pickable_svg(
    model: Mapping[str, Any], versus: Mapping[str, Any] | None = None, varied: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The picture of a block whose parts can be picked (`to_svg`), without a title.

    Args:
        model: The plain model.
        versus: A plain block to compare it with.
        varied: Plain blocks of its variants; without `versus` the parts that they lack or replace are marked.

    Raises:
        ValidationError: A block is not valid.
    """
    block = BlockSpec.model_validate(model["block"])
    if versus is None:
        others = [BlockSpec.model_validate(other) for other in varied]
        drawn = lay_out_verdicts("block", block, [(other, "varied") for other in others], bool(model.get("exceptions")))
    else:
        drawn = compare("start", BlockSpec.model_validate(versus), "block", block)
    return to_svg(drawn, titled=False, pickable=True)


def judged_svg(name: str, model: Mapping[str, Any], judged: Sequence[tuple[Mapping[str, Any], str]]) -> str:
    """The picture of a study's baseline, its parts in the colours of the verdicts on them.

    Args:
        name: What to call it.
        model: `model` of the baseline's plain spec.
        judged: What `verdicts_on_parts` returns.

    Raises:
        ValidationError: A mixer of a kind that is not known here.
    """
    states = [(BlockSpec.model_validate(other["block"]), state) for other, state in judged]
    picture = lay_out_verdicts(name, BlockSpec.model_validate(model["block"]), states)  # type: ignore[arg-type]
    return to_svg(picture, titled=False)

"""Paint a picture in box-drawing characters. Without colours, removed is dashed and added is heavy."""

from __future__ import annotations

from rich.text import Text

from ablate.render.drawing.picture import Box, Drawing, Polyline, Presence

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LIGHT = " │││─┘┐┤─└┌├─┴┬┼"
_HEAVY = " ┃┃┃━┛┓┫━┗┏┣━┻┳╋"
"""Characters by the directions in which lines leave a cell."""
_STYLES: dict[Presence, str] = {"kept": "", "removed": "dim", "added": "bold yellow"}
_RANK: dict[Presence, int] = {"removed": 0, "kept": 1, "added": 2}
_MARK: dict[Presence, str] = {"kept": "", "removed": "- ", "added": "+ "}


def to_text(picture: Drawing) -> Text:
    """The picture as text with styles, a line for each row of cells."""
    columns, rows = picture.size
    canvas = _Canvas(columns, rows)
    for line in sorted(picture.lines, key=lambda line: _RANK[line.state]):
        canvas.line(line)
    canvas.resolve()
    for box in picture.boxes:
        canvas.box(box)
    for chip in picture.chips:
        ends = {"kept": "[]", "removed": "╌╌", "added": "++"}[chip.state]
        canvas.write(chip.x, chip.y, ends[0] + chip.label + ends[1], chip.state)
    for one in picture.sums:
        canvas.write(one.x, one.y, "⊕", one.state)
    for line in picture.lines:
        if line.arrow:
            (ax, ay), (x, y) = line.points[-2:]
            canvas.write(x, y, "▲" if y < ay else "▼" if y > ay else "▶" if x > ax else "◀", line.state)
    for note in picture.notes:
        start = note.x - {"start": 0, "middle": len(note.text) // 2, "end": len(note.text) - 1}[note.anchor]
        canvas.write(start, note.y, note.text, note.state)
    text = Text(picture.title, style="bold").append("\n\n", style="")
    text.append_text(canvas.text())
    marks: tuple[tuple[Presence, str], ...] = (("removed", "╌"), ("added", "━"))
    known = [(f"{sign} {state}", state) for state, sign in marks if state in picture.legend]
    for number, (told, state) in enumerate(known):
        text.append("   " if number else "\n\n").append(told, style=_STYLES[state])
    return text


class _Canvas:
    """Cells that are written one over the other."""

    def __init__(self, columns: int, rows: int) -> None:
        self.cells: list[list[tuple[str, str]]] = [[(" ", "")] * columns for _ in range(rows)]
        self.ways: dict[tuple[int, int], tuple[int, Presence]] = {}

    def write(self, x: int, y: int, words: str, state: Presence) -> None:
        for offset, character in enumerate(words):
            self.cells[y][x + offset] = (character, _STYLES[state])

    def line(self, line: Polyline) -> None:
        """Note in which directions a line leaves each of its cells."""
        for (ax, ay), (bx, by) in zip(line.points, line.points[1:], strict=False):
            dx, dy = (bx > ax) - (bx < ax), (by > ay) - (by < ay)
            out = {(0, -1): _UP, (0, 1): _DOWN, (-1, 0): _LEFT, (1, 0): _RIGHT}[dx, dy]
            back = {_UP: _DOWN, _DOWN: _UP, _LEFT: _RIGHT, _RIGHT: _LEFT}[out]
            x, y = ax, ay
            while (x, y) != (bx, by):
                self._leave(x, y, out, line.state)
                x, y = x + dx, y + dy
                self._leave(x, y, back, line.state)

    def _leave(self, x: int, y: int, way: int, state: Presence) -> None:
        ways, before = self.ways.get((x, y), (0, state))
        if _RANK[state] > _RANK[before] and before == "removed":
            before = state
        self.ways[x, y] = (ways | way, before)

    def resolve(self) -> None:
        """Put the characters of all lines."""
        for (x, y), (ways, state) in self.ways.items():
            character = (_HEAVY if state == "added" else _LIGHT)[ways]
            if state == "removed":
                character = {"│": "╎", "─": "╌"}.get(character, character)
            self.write(x, y, character, state)

    def box(self, box: Box) -> None:
        across, down = {"kept": ("─", "│"), "removed": ("╌", "╎"), "added": ("━", "┃")}[box.state]
        corners = "┏┓┗┛" if box.state == "added" else "┌┐└┘"
        inside = box.width - 2
        self.write(box.x, box.y, corners[0] + across * inside + corners[1], box.state)
        for y in range(box.y + 1, box.y + box.height - 1):
            self.write(box.x, y, down + " " * inside + down, box.state)
        self.write(box.x, box.y + box.height - 1, corners[2] + across * inside + corners[3], box.state)
        label = box.label + (f" (was {box.was})" if box.was else "")
        row = box.y + 1 if box.height == 3 else box.y
        words = label if box.height == 3 else f" {label} "
        self.write(box.x + (box.width - len(words)) // 2, row, words, box.state)

    def text(self) -> Text:
        """All rows, blanks at their ends left out."""
        rows = []
        for cells in self.cells:
            row = Text()
            for character, style in cells:
                row.append(character, style=style)
            row.rstrip()
            rows.append(row)
        return Text("\n").join(rows)

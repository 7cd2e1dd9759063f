"""What a painter is given: boxes, chips, sums, lines and notes on a grid of cells, each kept, removed or added."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Presence = Literal["kept", "removed", "added"]
"""Beside another block: in both, only in the other, or only in this one (or another than there)."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of cells with a label in its first row; `was` is what stood there in the other block."""

    x: int
    y: int
    width: int
    height: int
    kind: Literal["norm", "mixer", "mlp", "gain", "dropout"]
    label: str
    state: Presence
    was: str = ""

    @property
    def middle(self) -> int:
        """The column that the main line goes through."""
        return self.x + self.width // 2


@dataclass(frozen=True, slots=True)
class Chip:
    """A part inside a box, one row high."""

    x: int
    y: int
    width: int
    label: str
    state: Presence


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum, one cell."""

    x: int
    y: int
    state: Presence


@dataclass(frozen=True, slots=True)
class Polyline:
    """A line through cells, bent at right angles; with `arrow` it ends in a head."""

    points: tuple[tuple[int, int], ...]
    state: Presence
    arrow: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A label beside a line; `anchor` says which end of the text is at x."""

    x: int
    y: int
    text: str
    state: Presence
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(slots=True)
class Drawing:
    """A drawn block. Cells count from the top left.

    Attributes:
        title: Its name, or `NAME, compared with OTHER`.
        comparison: Whether removed and added have a meaning in it.
    """

    title: str
    comparison: bool
    boxes: list[Box] = field(default_factory=list)
    chips: list[Chip] = field(default_factory=list)
    sums: list[Sum] = field(default_factory=list)
    lines: list[Polyline] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        columns = [box.x + box.width for box in self.boxes] + [x + 1 for line in self.lines for x, _ in line.points]
        rows = [box.y + box.height for box in self.boxes] + [y + 1 for line in self.lines for _, y in line.points]
        for note in self.notes:
            length = len(note.text)
            columns.append(note.x + {"start": length, "middle": (length + 1) // 2, "end": 1}[note.anchor])
            rows.append(note.y + 1)
        return max(columns), max(rows)

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"columns": self.size[0], "rows": self.size[1], **asdict(self)}

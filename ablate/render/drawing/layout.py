"""From a block, or from two, to a picture: the input below, the output above, skips beside what they go round.

A sequential block is one column. A parallel one is two, the MLP at the right, both fed by the norm below them. When two
blocks are compared, the new one determines the arrangement, and parts that only the old one has are drawn as removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ablate.render.drawing.picture import (
    Box,
    Chip,
    Drawing,
    JudgedSlots,
    Note,
    Polyline,
    Presence,
    SlotPart,
    Slots,
    Sum,
)
from ablate.spec.block import BlockSpec

_GAP = 2
"""Rows between two boxes."""
_EXCEPTIONS = "some layers differ"
_ROUND = 4
"""Columns between a box and the skip round it."""


def layout(name: str, block: BlockSpec, exceptions: bool = False) -> Drawing:
    """Lay one block out; `exceptions` says that some layers of its model differ."""
    picture = Drawing(name, {})
    return _lay_out(picture, Slots(block, block), block.arrangement, _EXCEPTIONS * exceptions)


def compare(old_name: str, old: BlockSpec, new_name: str, new: BlockSpec) -> Drawing:
    """Lay a block out beside another: what only the other has is removed, what only it has is added."""
    picture = Drawing(f"{new_name}, compared with {old_name}", {"removed": "removed", "added": "added"})
    drawn = _lay_out(picture, Slots(old, new), new.arrangement, "")
    shapes = drawn.lines, drawn.boxes, drawn.chips, drawn.sums, drawn.notes
    seen = {state for of in shapes for state in {one.state for one in of}}
    return replace(drawn, legend={state: word for state, word in drawn.legend.items() if state in seen})


def lay_out_verdicts(
    name: str, block: BlockSpec, judged: Sequence[tuple[BlockSpec, Presence]], exceptions: bool = False
) -> Drawing:
    """Lay a study's baseline out with the verdicts on its parts, as `JudgedSlots` finds them."""
    slots = JudgedSlots(block, judged)
    words: dict[Presence, str] = {
        "needed": "must stay",
        "dispensable": "can go",
        "open": "undecided",
        "varied": "varied",
    }
    legend = {state: word for state, word in words.items() if state in slots.found.values()}
    return _lay_out(Drawing(name, legend), slots, block.arrangement, _EXCEPTIONS * exceptions)


def _lay_out(picture: Drawing, slots: Slots, arrangement: str, note: str) -> Drawing:
    builder = _Builder(picture, slots)
    draw = {"parallel": builder.parallel, "mlp_first": builder.mlp_first}.get(arrangement, builder.sequential)
    draw()
    if note:
        picture.notes.append(Note(0, 2, note, "kept", "middle"))
    return _shift_to_origin(picture)


def _column_of(part: str) -> list[str]:
    """The slots of a branch, from its input up."""
    return [f"norm_{part}_pre", part, f"dropout_{part}", f"norm_{part}_output", f"gain_{part}"]


class _Builder:
    """Puts boxes from row 0 upwards (rows are negative), round column 0."""

    def __init__(self, picture: Drawing, slots: Slots) -> None:
        self.picture = picture
        self.slots = slots
        self.parts = {box: [row for row in slots.rows(box) if row] for box in ("mixer", "mlp")}

    def sequential(self) -> None:
        self.note("x", 0, 0)
        y, _ = self.column(0, -1, ["gain_residual"])
        fork = y - 1
        y = self.line_up(y, fork)
        y, half = self.column(0, y, _column_of("mixer"))
        y = self.join(0, fork, y, half + _ROUND, "skip_mixer")
        y, _ = self.column(0, y, ["norm_mixer_post"])
        second = self.slots.get("mlp")
        if second is not None:
            low = y - 1
            y = self.line_up(y, low)
            y, wide = self.column(0, y, _column_of("mlp"))
            self.feed_from_below(fork, half)
            again = self.slots.get("skip_second")
            left = -(max(half, wide) + _ROUND)
            y = self.join(0, low, y, wide + _ROUND, "skip_mlp", and_from=(again, left, fork))
            y, _ = self.column(0, y, ["norm_mlp_post"])
        self.finish(0, y)

    def mlp_first(self) -> None:
        """As a sequential block, the two sub-layers in the other order."""
        self.note("x", 0, 0)
        y, _ = self.column(0, -1, ["gain_residual"])
        for part in ("mlp", "mixer"):
            fork = y - 1
            y = self.line_up(y, fork)
            y, half = self.column(0, y, _column_of(part))
            y = self.join(0, fork, y, half + _ROUND, f"skip_{part}")
            y, _ = self.column(0, y, [f"norm_{part}_post"])
        self.finish(0, y)

    def parallel(self) -> None:
        self.note("x", 0, 0)
        y, _ = self.column(0, -1, ["gain_residual"])
        fork = y - 1
        y = self.line_up(y, fork)
        y, _ = self.column(0, y, ["norm_mixer_pre"])
        split = y - 1
        y = self.line_up(y, split)
        top, half = self.column(0, y, ["mixer", "dropout_mixer", "gain_mixer", "norm_mixer_post"])
        wide = self.half(["norm_mlp_pre", "mlp", "dropout_mlp", "gain_mlp"])
        right = half + wide + 2 * _ROUND + 6
        new = _state(self.slots.get("feed_parallel"))
        start = split - 1
        self.picture.lines.append(Polyline(((0, split), (right, split), (right, start)), new))
        other, _ = self.column(right, start, ["norm_mlp_pre", "mlp", "dropout_mlp", "gain_mlp", "norm_mlp_post"])
        feed = self.slots.get("feed_sequential")
        if feed is not None:  # the MLP once read what the mixer gave
            middle = half + _ROUND - 1
            points = ((0, top - 1), (middle, top - 1), (middle, split - 1), (right - 1, split - 1))
            self.picture.lines.append(Polyline(points, feed.state, arrow=True))
        self.ghost_skip("skip_mlp", right, start, other, wide + _ROUND)
        self.ghost_skip("skip_mixer", 0, split, top - 1, -(half + _ROUND - 2))
        at = min(top, other) - 3
        self.picture.lines.append(Polyline(((right, other), (right, at), (1, at)), new, arrow=True))
        self.picture.lines.append(Polyline(((0, top), (0, at + 1)), "kept", arrow=True))
        self.picture.sums.append(Sum(0, at, "kept"))
        both = self.slots.get("skip_both")
        if both is not None:
            beside = _ROUND + 6 * (self.slots.get("skip_mixer") is not None)  # its label is between the two
            self.skip(0, fork, at, -(half + beside), both)
        self.finish(0, at - 1)

    def column(self, x: int, y: int, slots: list[str]) -> tuple[int, int]:
        """Boxes above each other from row y on, the line through them; the row above, and half their width."""
        for slot in slots:
            part = self.slots.get(slot)
            if part is None:
                continue
            height, width = self.size(slot, part)
            bottom = y - _GAP
            self.picture.lines.append(Polyline(((x, y), (x, bottom + 1)), "kept", arrow=part.state != "removed"))
            top = bottom - height + 1
            kind = slot.partition("_")[0]
            self.picture.boxes.append(
                Box(x - width // 2, top, width, height, kind, part.label, part.state, part.was, slot)  # type: ignore[arg-type]
            )
            for index, row in enumerate(self.parts.get(slot, ())):
                # The first part of the computation is at the bottom.
                self.chips(x, bottom - 1 - 2 * index, row)
            y = top - 1
        return y, self.half(slots)

    def chips(self, x: int, y: int, row: list[SlotPart]) -> None:
        at = x - _row_width(row) // 2
        for part in row:
            width = len(part.label) + 2
            self.picture.chips.append(Chip(at, y, width, part.label, part.state, part.slot))
            at += width + 1

    def size(self, slot: str, part: SlotPart) -> tuple[int, int]:
        """Height and width of a box; widths are odd, so that it has a middle column."""
        label = part.label + (f" (was {part.was})" if part.was else "")
        rows = self.parts.get(slot, [])
        width = max([len(label) + 4, 13, *(_row_width(row) + 4 for row in rows)])
        return 3 + 2 * len(rows), width + 1 - width % 2

    def half(self, slots: list[str]) -> int:
        """Half the width of the widest box among them."""
        parts = [(slot, self.slots.get(slot)) for slot in slots]
        return max((self.size(slot, part)[1] // 2 for slot, part in parts if part is not None), default=6)

    def join(
        self,
        x: int,
        fork: int,
        y: int,
        beside: int,
        slot: str,
        and_from: tuple[SlotPart | None, int, int] | None = None,
    ) -> int:
        """A sum above row y where a skip comes in from `fork` (and a second one), if there is any; the row above."""
        skip = self.slots.get(slot)
        again, left, low = and_from or (None, 0, 0)
        if skip is None and again is None:
            return y
        at = y - 2
        live = [one for one in (skip, again) if one is not None and one.state != "removed"]
        self.picture.lines.append(Polyline(((x, y), (x, at + 1)), "kept", arrow=bool(live)))
        state: Presence = "removed" if not live else "added" if all(one.state == "added" for one in live) else "kept"
        self.picture.sums.append(Sum(x, at, state))
        if skip is not None:
            self.skip(x, fork, at, x + beside, skip)
        if again is not None:
            self.skip(x, low, at, left, again)
        return at - 1

    def skip(self, x: int, fork: int, at: int, beside: int, part: SlotPart) -> None:
        """A line from the main one at `fork` round to a sum at `at`, along column `beside`."""
        side = 1 if beside > x else -1
        state = part.state
        points = ((x, fork), (beside, fork), (beside, at), (x + side, at))
        self.picture.lines.append(Polyline(points, state, arrow=True, slot=part.slot))
        words = "skip" if not part.label else "skip, again" if part.label == "again" else f"skip {part.label}"
        anchor = "start" if side > 0 else "end"
        note = Note(beside + 2 * side, (fork + at) // 2, words, state, anchor, part.slot)  # type: ignore[arg-type]
        self.picture.notes.append(note)

    def ghost_skip(self, slot: str, x: int, fork: int, at: int, beside: int) -> None:
        """A skip of the other block, which goes round one branch of a parallel one."""
        part = self.slots.get(slot)
        if part is not None:
            column = x + beside
            points = ((x, fork), (column, fork), (column, at), (x, at))
            self.picture.lines.append(Polyline(points, part.state))
            side = 1 if beside > 0 else -1
            anchor = "start" if side > 0 else "end"
            note = Note(column + 2 * side, (fork + at) // 2, "skip", part.state, anchor)  # type: ignore[arg-type]
            self.picture.notes.append(note)

    def feed_from_below(self, fork: int, half: int) -> None:
        """In a sequential block whose other was parallel: the MLP once read the block's input."""
        feed = self.slots.get("feed_parallel")
        if feed is None:
            return
        mlp = next(box for box in self.picture.boxes if box.kind == "mlp")
        low, column = fork - 1, -(half + 2)
        points = ((0, low), (column, low), (column, mlp.y + mlp.height), (-1, mlp.y + mlp.height))
        self.picture.lines.append(Polyline(points, feed.state, arrow=True))

    def line_up(self, y: int, to: int) -> int:
        self.picture.lines.append(Polyline(((0, y), (0, to)), "kept"))
        return to

    def note(self, text: str, x: int, y: int) -> None:
        self.picture.notes.append(Note(x, y, text, "kept", "middle"))

    def finish(self, x: int, y: int) -> None:
        self.picture.lines.append(Polyline(((x, y), (x, y - 1)), "kept", arrow=True))
        self.note("output", x, y - 2)


def _state(part: SlotPart | None) -> Presence:
    return "kept" if part is None else part.state


def _row_width(row: list[SlotPart]) -> int:
    return sum(len(part.label) + 2 for part in row) + len(row) - 1


def _shift_to_origin(picture: Drawing) -> Drawing:
    """The same with the leftmost and topmost cell at (0, 0)."""
    xs = [box.x for box in picture.boxes] + [x for line in picture.lines for x, _ in line.points]
    ys = [box.y for box in picture.boxes] + [y for line in picture.lines for _, y in line.points]
    for note in picture.notes:
        xs.append(note.x - {"start": 0, "middle": len(note.text) // 2, "end": len(note.text) - 1}[note.anchor])
        ys.append(note.y)
    dx, dy = -min(xs), -min(ys)
    return replace(
        picture,
        boxes=[replace(box, x=box.x + dx, y=box.y + dy) for box in picture.boxes],
        chips=[replace(chip, x=chip.x + dx, y=chip.y + dy) for chip in picture.chips],
        sums=[replace(one, x=one.x + dx, y=one.y + dy) for one in picture.sums],
        lines=[replace(line, points=tuple((x + dx, y + dy) for x, y in line.points)) for line in picture.lines],
        notes=[replace(note, x=note.x + dx, y=note.y + dy) for note in picture.notes],
    )

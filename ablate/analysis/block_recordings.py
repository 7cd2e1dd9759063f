"""Recordings inside a trial's model: norms of its blocks over training, and how its mixers mix tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ablate.analysis.curves import Line
from ablate.store.records import Recording

Quantity = Literal["gradients", "weights", "spread"]

QUANTITIES: dict[Quantity, str] = {
    "gradients": "2-norm of the gradient before clipping",
    "weights": "2-norm of the weights",
    "spread": "standard deviation of the mixing map",
}
"""What is recorded of a part of a block, in words."""
MAP = "map"
WHOLE = "block"
"""All parts of a block together."""


@dataclass(frozen=True, slots=True)
class MixingMap:
    """The mixing map of a mixer on the first tokens of a sample.

    Attributes:
        part: `block 1 mixer`.
        rows: Output token by input token: the root mean square by which an output answers to an input; None where it
            is no number.
        own: Share of the diagonal, over all rows; None for maps that are not square.
        reach: Mean distance in tokens, by the same shares.
        highest: The largest entry.
    """

    part: str
    rows: tuple[tuple[float | None, ...], ...]
    own: float | None
    reach: float | None
    highest: float


@dataclass(frozen=True, slots=True)
class BlockRecordings:
    """What was recorded of a trial.

    Attributes:
        parts: Of blocks, without the block's name: `mixer`, `mlp`, `rest` ..., in the order of the model.
        blocks: Names of the blocks, first to last.
        maps: The mixing maps at the end, first to last; empty if the trial did not get there.
    """

    recordings: tuple[Recording, ...]
    parts: tuple[str, ...]
    blocks: tuple[str, ...]
    maps: tuple[MixingMap, ...]

    def lines(self, quantity: Quantity, part: str) -> dict[str, Line]:
        """A quantity over the steps, by block; of `WHOLE` the norm over all parts. Blocks without it are left out."""
        by_block = {}
        for block in self.blocks:
            points = [(one.step, self._at(one, quantity, block, part)) for one in self.recordings]
            known = [(step, value) for step, value in points if value is not None]
            if known:
                steps, values = zip(*known, strict=True)
                by_block[block] = Line(steps, tuple(map(float, steps)), values)
        return by_block

    def parts_with(self, quantity: Quantity) -> tuple[str, ...]:
        """The parts that recorded the quantity; `WHOLE` first, where it is a norm."""
        whole = () if quantity == "spread" else (WHOLE,)
        return (*whole, *(part for part in self.parts if self.lines(quantity, part)))

    def _at(self, one: Recording, quantity: Quantity, block: str, part: str) -> float | None:
        values = one.values.get(quantity, {})
        if part != WHOLE:
            return values.get(f"{block} {part}")
        known = [value for name in self.parts if (value := values.get(f"{block} {name}", 0.0)) is not None]
        return math.hypot(*known) if values and len(known) == len(self.parts) else None


def block_recordings(recordings: Iterable[Recording]) -> BlockRecordings | None:
    """What was recorded of a trial's blocks; None if nothing was. Members of a population record other quantities."""
    recordings = tuple(recording for recording in recordings if recording.values.keys() & {*QUANTITIES, MAP})
    if not recordings:
        return None
    named = [name.rsplit(" ", 1) for name in recordings[0].values.get("weights", {})]
    drawn = recordings[-1].values.get(MAP, {})
    return BlockRecordings(
        recordings=recordings,
        parts=tuple(dict.fromkeys(part for _, part in named)),
        blocks=tuple(dict.fromkeys(block for block, _ in named)),
        maps=tuple(_map(part, rows) for part, rows in drawn.items()),
    )


def _map(part: str, rows: Sequence[Sequence[Any]]) -> MixingMap:
    known = [(i, j, float(value)) for i, row in enumerate(rows) for j, value in enumerate(row) if value is not None]
    total = math.fsum(value for _, _, value in known)
    square = len(rows) == len(rows[0])
    own = math.fsum(value for i, j, value in known if i == j) / total if square and total else None
    reach = math.fsum(abs(i - j) * value for i, j, value in known) / total if square and total else None
    highest = max((value for _, _, value in known), default=0.0)
    return MixingMap(part, tuple(tuple(row) for row in rows), own, reach, highest)

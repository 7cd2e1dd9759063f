"""Curves to be drawn, loss against steps, tokens, seconds or FLOPs, in bands over trials; and recordings of blocks.

Of blocks, norms are recorded over training, and how their mixers mix tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np

from ablate.analysis.runs import Curve
from ablate.stats import mean_interval
from ablate.store.records import CurvePoint, Recording

Axis = Literal["steps", "tokens", "seconds", "flops"]
Loss = Literal["val_loss", "train_loss"]
Spread = Literal["range", "interval"]

AXES: dict[Axis, Callable[[CurvePoint], float]] = {
    "steps": attrgetter("step"),
    "tokens": attrgetter("tokens"),
    "seconds": attrgetter("seconds"),
    "flops": attrgetter("flops"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One trial's curve.

    Attributes:
        steps: At which the loss was taken, rising.
        x: Their values on the axis.
        y: The losses, finite; or differences of losses, once aligned with other lines.
    """

    steps: tuple[int, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """The curves of several trials together, at the steps that all of them have.

    Attributes:
        x: Mean position of the trials at each step.
        mean: Mean loss.
        low: Lowest loss, or lower bound of the 95 % interval of the mean.
        high: Highest loss, or upper bound.
        n: How many trials.
    """

    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: int


def line(curve: Curve, axis: Axis = "steps", loss: Loss = "val_loss", smoothing: float = 0.0) -> Line:
    """The points of a curve that have a finite loss.

    Args:
        curve: A trial's.
        axis: What the loss is drawn against.
        smoothing: Weight in [0, 1) of what came before in an exponential moving average; it is debiased, so that the
            first point stays where it is.
    """
    height = attrgetter(loss)
    points = [point for point in curve if (value := height(point)) is not None and math.isfinite(value)]
    return Line(
        steps=tuple(point.step for point in points),
        x=tuple(map(float, map(AXES[axis], points))),
        y=tuple(smooth(list(map(height, points)), smoothing)),
    )


def smooth(values: Sequence[float], weight: float) -> list[float]:
    """The debiased exponential moving average: Σ wⁱ·v₋ᵢ / Σ wⁱ."""
    smoothed, total, norm = [], 0.0, 0.0
    for value in values:
        total, norm = weight * total + value, weight * norm + 1.0
        smoothed.append(total / norm)
    return smoothed


def versus(one: Line, other: Line) -> Line:
    """One line minus another at the same positions, on straight lines between the other's points.

    Where the other has no points on both sides there is nothing to compare, and nothing comes out.
    """
    if not other.x:
        return Line((), (), ())
    gaps = np.subtract(one.y, np.interp(one.x, other.x, other.y)).tolist()
    kept = [at for at in zip(one.steps, one.x, gaps, strict=True) if _is_along(other, at[1])]
    steps, xs, ys = zip(*kept, strict=True) if kept else ((), (), ())
    return Line(steps, xs, ys)


def band_at(one: Band, x: float) -> tuple[float, float, float] | None:
    """Mean, low and high of a band at a place, on straight lines between its points; None where it has none around."""
    if not _is_along(one, x):
        return None
    mean, low, high = (float(np.interp(x, one.x, values)) for values in (one.mean, one.low, one.high))
    return mean, low, high


def _is_along(one: Line | Band, x: float) -> bool:
    return bool(one.x) and one.x[0] <= x <= one.x[-1]


def share(one: Line) -> Line:
    """The same line over the share of its own training, from 0 to 1."""
    return replace(one, x=tuple(x / one.x[-1] for x in one.x)) if any(one.x) else one


def band(lines: Sequence[Line], spread: Spread = "range") -> Band:
    """Several lines together; empty if they have no step in common."""
    by_step = [
        dict(zip(curve.steps, zip(curve.x, curve.y, strict=True), strict=True)) for curve in lines if curve.steps
    ]
    shared = sorted(set.intersection(*map(set, by_step))) if by_step else []
    xs, means, lows, highs = [], [], [], []
    for step in shared:
        ys = [values[step][1] for values in by_step]
        mean = math.fsum(ys) / len(ys)
        low, high = _spread(ys, spread)
        xs.append(math.fsum(values[step][0] for values in by_step) / len(by_step))
        means.append(mean)
        lows.append(mean if low is None else low)
        highs.append(mean if high is None else high)
    return Band(tuple(xs), tuple(means), tuple(lows), tuple(highs), len(by_step))


FEW_POINTS = 5
"""Points of a curve from which on its fall is cut off."""
FALL = 0.2
"""Share of the way along its axis that a curve may fall in beyond what is shown."""


def heights(bands: Iterable[Band]) -> tuple[float, float] | None:
    """Limits of loss that show where curves differ: the fall in the first fifth of their way is cut off at the top.

    Of curves of fewer than five points all is shown: the fall is most of what they have.
    """
    drawn = [shown for shown in bands if shown.mean]
    if not drawn:
        return None
    bottom = min(min(shown.low) for shown in drawn)
    top = max(max(_after_fall(shown)) for shown in drawn)
    room = 0.06 * (top - bottom) or 0.05 * abs(top) or 1.0
    return bottom - room, top + room


def _after_fall(one: Band) -> Sequence[float]:
    if len(one.high) < FEW_POINTS:
        return one.high
    begin = one.x[0] + FALL * (one.x[-1] - one.x[0])
    return [high for x, high in zip(one.x, one.high, strict=True) if x >= begin]


def _spread(values: Sequence[float], spread: Spread) -> tuple[float | None, float | None]:
    if spread == "range":
        return min(values), max(values)
    interval = mean_interval(values)
    return interval.low, interval.high


Quantity = Literal["gradients", "weights", "spread"]

QUANTITIES: dict[Quantity, str] = {
    "gradients": "2-norm of the gradient before clipping",
    "weights": "2-norm of the weights",
    "spread": "standard deviation of the mixing map",
}
"""What is recorded of a part of a block, in words."""
MAP: Final = "map"
WHOLE = "block"
"""All parts of a block together."""


@dataclass(frozen=True, slots=True)
class MixingMap:
    """The mixing map of a mixer on the first tokens of a sample.

    Attributes:
        part: `block 1 mixer`.
        rows: Output token by input token: the root mean square by which an output answers to an input; None where it
            is not a number.
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
            points = [(recording.step, self._at(recording, quantity, block, part)) for recording in self.recordings]
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

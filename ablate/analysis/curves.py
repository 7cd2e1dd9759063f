"""Curves to be drawn: loss against steps, tokens, seconds or FLOPs; smoothed, aligned, in bands over trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, sub
from typing import Literal

from ablate.analysis.runs import Curve
from ablate.stats import mean_interval
from ablate.store.records import CurvePoint

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
        loss: Which loss.
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
    if weight == 0:
        return list(values)
    smoothed, total, norm = [], 0.0, 0.0
    for value in values:
        total, norm = weight * total + value, weight * norm + 1.0
        smoothed.append(total / norm)
    return smoothed


def versus(one: Line, other: Line) -> Line:
    """One line minus another at the same positions, on straight lines between the other's points.

    Where the other has no points on both sides there is nothing to compare, and nothing comes out.
    """
    known = dict(zip(other.x, other.y, strict=True))
    if one.x == other.x and len(known) == len(other.x):
        return Line(one.steps, one.x, tuple(map(sub, one.y, other.y)))
    kept = [
        (step, x, y - at)
        for step, x, y in zip(one.steps, one.x, one.y, strict=True)
        if (at := _height(known, x)) is not None
    ]
    steps, xs, ys = zip(*kept, strict=True) if kept else ((), (), ())
    return Line(steps, xs, ys)


def share(one: Line) -> Line:
    """The same line over the share of its own training, from 0 to 1."""
    end = one.x[-1] if one.x else 0.0
    return replace(one, x=tuple(x / end for x in one.x)) if end > 0 else one


def band(lines: Sequence[Line], spread: Spread = "range") -> Band:
    """Several lines together; empty if they have no step in common."""
    by_step = [dict(zip(one.steps, zip(one.x, one.y, strict=True), strict=True)) for one in lines if one.steps]
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


def heights(bands: Iterable[Band]) -> tuple[float, float] | None:
    """Limits of loss that show where curves differ: the fall from the initial loss is cut off at the top."""
    drawn = [one for one in bands if one.mean]
    if not drawn:
        return None
    bottom = min(min(one.low) for one in drawn)
    top = max(max(one.high[min(1, len(one.high) - 1) :]) for one in drawn)
    room = 0.06 * (top - bottom) or 0.05 * abs(top) or 1.0
    return bottom - room, top + room


def _spread(values: Sequence[float], spread: Spread) -> tuple[float | None, float | None]:
    if spread == "range":
        return min(values), max(values)
    interval = mean_interval(values)
    return interval.low, interval.high


def _height(known: Mapping[float, float], x: float) -> float | None:
    if x in known:
        return known[x]
    for (left, low), (right, high) in pairwise(known.items()):
        if left < x < right:
            return low + (high - low) * (x - left) / (right - left)
    return None

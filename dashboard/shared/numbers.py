"""Numbers with sensible digits and units, for texts and labels."""

from __future__ import annotations

from ablate.analysis.numbers import MISSING, count

_TIMES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def duration(seconds: float | None) -> str:
    """A time: 8.2 s, 4 min, 3.1 h, 12 d."""
    if seconds is None:
        return MISSING
    for unit, name in _TIMES:
        if seconds >= unit:
            return f"{_short(seconds / unit)} {name}"
    return f"{_short(seconds)} s"


def arithmetic(flops: float) -> str:
    """An amount of arithmetic: 8.1 GFLOP, 812 TFLOP."""
    scaled = flops
    for prefix in ("", "k", "M", "G", "T", "P"):
        if scaled < 999.5:
            return f"{_short(scaled)} {prefix}FLOP"
        scaled /= 1000
    return f"{scaled:.3g} EFLOP"


def parameters(number: int) -> str:
    """A number of parameters: 81.2k."""
    return count(number)


def _short(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 10 else f"{value:.0f}"

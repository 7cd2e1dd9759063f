"""Numbers with as many digits as are significant, durations, counts, plurals and lists, as a person reads them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from ablate.stats import Interval
from ablate.stats.bounds import at_least, at_most

MISSING = "-"


def decimals_for(margin: float, half_widths: Iterable[float]) -> int:
    """Decimals that show a tenth of the margin, however small, and with up to 8 the first digit of most half-widths."""
    widths = [width for width in half_widths if width > 0]
    of_widths = -math.floor(math.log10(statistics.median_high(widths))) if widths else 0
    return max(0, min(8, of_widths), -math.floor(math.log10(margin / 10)))


def fixed(value: float | None, decimals: int, sign: bool = False) -> str:
    """A number with fixed decimals; a hyphen if there is none."""
    if value is None:
        return MISSING
    rounded = round(value, decimals) + 0.0  # adding 0.0 turns -0.0 into 0.0
    return f"{rounded:+.{decimals}f}" if sign else f"{rounded:.{decimals}f}"


def bound_text(bound: float, *, upper: bool, margin: float) -> str:
    """A bound as `≤ +0.11` or `≥ -0.02`: rounded outward, and never onto the margin.

    Args:
        bound: With its sign.
        upper: Whether it is an upper bound.
        margin: A bound on one side of it, or of its negative, is written with as many digits as show on which.
    """
    text = (at_most if upper else at_least)(bound, math.copysign(margin, bound))
    return f"{'≤' if upper else '≥'} {'+' if bound > 0 else ''}{text}"


def with_interval(
    mean: float | None, low: float | None, high: float | None, write: Callable[[float], str]
) -> list[str]:
    """A mean and, if there is one, its interval: `± half`, or `[low, high]` if the digits show that it is lopsided.

    Args:
        mean: In the middle of a t interval; a bootstrap's need not be symmetric about it.
        write: How a number is written.
    """
    if mean is None:
        return [MISSING]
    if low is None or high is None:
        return [write(mean)]
    below, above = mean - low, high - mean
    if write(below) == write(above) or math.isclose(below, above, rel_tol=1e-6):
        return [write(mean), f"± {write((high - low) / 2).lstrip('+')}"]
    return [write(mean), f"[{write(low)}, {write(high)}]"]


def fixed_beside(value: float, margin: float, decimals: int) -> str:
    """A number with its sign and fixed decimals, and more where these hide on which side of a margin or of 0 it lies.

    Args:
        margin: In either direction: 0.0852 beside a margin of 0.085 is `+0.0852`, not `+0.085`.
    """
    exact = float(f"{value:.12g}")  # the last digits of a sum are noise
    for enough in range(decimals, decimals + 7):
        rounded = round(exact, enough)
        if all((rounded > edge, rounded < edge) == (exact > edge, exact < edge) for edge in (-margin, 0.0, margin)):
            return fixed(exact, enough, sign=True)
    return fixed(exact, decimals, sign=True)


def interval_words(low: float | None, high: float | None, margin: float, decimals: int) -> str:
    """An interval as `-0.01 to +0.02`; `-0.01 or more` where nothing bounds it above.

    Args:
        margin: What both ends are compared with, as in `fixed_beside`.
        decimals: The least number of decimals.
    """
    write = partial(fixed_beside, margin=margin, decimals=decimals)
    if low is None or high is None or (math.isinf(low) and math.isinf(high)):
        return MISSING
    if math.isinf(low) or math.isinf(high):
        return f"{write(high)} or less" if math.isinf(low) else f"{write(low)} or more"
    return f"{write(low)} to {write(high)}"


def count(value: int | None) -> str:
    """A count with three significant digits and a letter: 812, 81.2k, 8.12M, 812M, 8.12B; a hyphen if there is none."""
    if value is None:
        return MISSING
    scaled, letter = float(value), ""
    for larger in ("k", "M", "B", "T"):
        if abs(scaled) >= 999.5:
            scaled, letter = scaled / 1000, larger
    if not letter:
        return str(value)
    return f"{scaled:#.3g}".rstrip(".") + letter


def percent(fraction: float | None) -> str:
    """A signed change: -12%, +0.4%, 0%."""
    if fraction is None:
        return MISSING
    rounded = round(100 * fraction, 1)
    if rounded == 0:
        return "0%"
    return f"{rounded:+.1f}%" if abs(rounded) < 10 else f"{100 * fraction:+.0f}%"


def times(ratio: float | None) -> str:
    """A ratio as 1.08x."""
    if ratio is None:
        return MISSING
    return f"{ratio:.2f}x" if ratio < 9.995 else f"{ratio:.0f}x"


def measured(ratio: Interval | None) -> tuple[float, float, float] | None:
    """A ratio with the ends of its interval; None if it is not known within a factor of 2, and shown nowhere."""
    if ratio is None or ratio.mean is None or ratio.low is None or ratio.high is None or ratio.high > 2 * ratio.low:
        return None
    return ratio.mean, ratio.low, ratio.high


def times_within(ratio: Interval | None) -> str:
    """A measured ratio with its interval as `1.08x [1.02, 1.15]`; a hyphen if it is not known."""
    if (known := measured(ratio)) is None:
        return MISSING
    mean, low, high = known
    if low == high:  # the baseline compared with itself
        return times(mean)
    return f"{times(mean)} [{low:.2f}, {high:.2f}]"


def duration(seconds: float | None) -> str:
    """< 1 s, 12 s, 3 min 05 s, 2 h 07 min, 3 d 4 h; a hyphen if it is not known."""
    if seconds is None:
        return MISSING
    if 0 < seconds <= 0.5:  # which is rounded to 0
        return "< 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def about(seconds: float) -> str:
    """A duration that is estimated, in whole minutes from one on: about 18 min."""
    return f"about {round(seconds / 60)} min" if 60 <= round(seconds) < 3600 else f"about {duration(seconds)}"


def scaled(number: float) -> str:
    """Three digits and a prefix, ready for a unit: `12.3 T`."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 999.5:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} E"


MOST_NAMES = 8
"""A sentence that lists more names than this counts the rest."""


def counted(counts: Iterable[tuple[str, int]]) -> list[str]:
    """Counts such as `3 failed`, without those that are zero."""
    return [f"{n} {what}" for what, n in counts if n]


def plural(number: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """`a, b and c`; beyond `MOST_NAMES` and one more the rest are counted."""
    shown = shortened(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def shortened(names: Iterable[str]) -> list[str]:
    """The names; beyond `MOST_NAMES` and one more, the first of them and a count of the rest."""
    shown = list(names)
    if len(shown) > MOST_NAMES + 1:  # naming one more is as short as counting it
        return [*shown[:MOST_NAMES], f"{len(shown) - MOST_NAMES} others"]
    return shown


def replaced(changes: Collection[str]) -> str:
    """What several changes replace alike: `attention` of `attention → Hyena` and others; empty if they do not."""
    olds = {change.partition(" → ")[0] if " → " in change else "" for change in changes}
    return olds.pop() if len(changes) > 1 and len(olds) == 1 else ""


def new_part(change: str) -> str:
    """`GELU` of `ReLU → GELU`; all of several changes, or if the new part refers to the old one (`heads → one`)."""
    new = change.rpartition("→ ")[2]
    return change if " + " in change or {"one", "ones", "those"} & {*new.split()} else new


def few(names: Sequence[str]) -> str:
    """One or two names; of more the first and a count of the rest."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"

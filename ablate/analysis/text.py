"""Words of sentences: counts, plurals and lists of names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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
    """`GELU` of `ReLU → GELU`; the whole change if its new part refers to the old one, as `keys → normalised ones`."""
    new = change.rpartition("→ ")[2]
    return change if {"one", "ones", "those"} & {*new.split()} else new


def few(names: Sequence[str]) -> str:
    """One or two names; of more the first and a count of the rest."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"

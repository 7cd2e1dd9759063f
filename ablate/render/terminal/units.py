"""Durations, counts and large numbers as a person reads them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """< 1 s, 12 s, 3 min 05 s, 2 h 07 min, 3 d 4 h."""
    if 0 < seconds < 0.5:
        return "< 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def scaled(number: float) -> str:
    """Three digits and a prefix, ready for a unit: `12.3 T`."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 999.5:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} E"

"""The cells of a table as texts and numbers: nothing that has two readings is taken for one of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablate.errors import DataError

MISSING = frozenset({"", "-", "n/a", "na", "none", "null", "nan", "<na>"})
"""Texts of a cell without a number, in small letters."""
_TRUTH = {"true": 1.0, "false": 0.0}
_SIGNED = re.compile(r"[-+]?(?P<whole>\d+)(?P<sign>[.,])(?P<rest>\d+)(?P<exponent>[eE][-+]?\d+)?\s*%?")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?P<sign>[.,])\d{3}(?:(?P=sign)\d{3})*(?:(?!(?P=sign))[.,]\d+|(?P=sign)\d{3})\s*%?")
"""A number with separators of thousands that nobody can read as a decimal sign: `1,234,567` and `1.234,5`."""


def cell_text(cell: Any) -> str:
    """A cell as the text of a name."""
    if cell is None or (not isinstance(cell, str) and str(cell) in ("nan", "<NA>", "NaT")):
        return ""
    if isinstance(cell, float) and cell.is_integer():  # a column of whole numbers that another cell made one of floats
        return str(int(cell))
    return str(cell).strip()


def is_missing(cell: Any) -> bool:
    """Whether a cell holds no number."""
    return cell_text(cell).lower() in MISSING


def number_of(cell: Any, where: str) -> float | None:
    """The number in a cell; None if it holds none. True is 1 and false 0.

    Raises:
        DataError: It holds something else.
    """
    if isinstance(cell, int | float):
        try:
            return float(cell)
        except OverflowError:
            return math.inf if cell > 0 else -math.inf
    text = "" if cell is None else str(cell).strip()
    if text.lower() in MISSING:
        return math.nan if text.lower() == "nan" else None
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    try:
        return float(text.replace("_", "\0").replace("\N{MINUS SIGN}", "-"))
    except ValueError:
        pass
    remedy = "Mark failed rows by `failed`, such as `failed: {status: crash}`."
    if re.match(r"[-+\N{MINUS SIGN}]?[\d.,]", text):
        remedy = "Write numbers with a decimal point, without separators of thousands and without a unit."
    if re.search(r"±|\+/-|\+-|\\pm|\d\s*\(", text):
        remedy = "Give the runs, a row for each: a mean with its spread does not say which runs, nor how many."
    raise DataError("this is not a number", where=where, got=repr(text[:60]), remedy=remedy)


def with_decimal_points(
    columns: Mapping[str, Sequence[str]], lines: Sequence[str], decimal: str | None
) -> dict[str, list[str]]:
    """Columns with a decimal point in each number that has a decimal comma.

    Args:
        columns: Name to cells.
        lines: Where each row stands, for messages.
        decimal: The decimal sign; None: the one that numbers of the column show, else those of the others.

    Raises:
        DataError: The numbers of a column show both signs, or all could be read in two ways, as `1,000`.
    """
    signs = {name: dict(_signs(cells)) for name, cells in columns.items()}
    shown = {sign for own in signs.values() for sign in own if sign != _UNCLEAR}
    found = {}
    for name, cells in columns.items():
        own = signs[name]
        clear = {sign: place for sign, place in own.items() if sign != _UNCLEAR}
        used = decimal or (next(iter(clear or shown)) if len(clear or shown) == 1 else None)
        first = next(iter(own.values()), 0)
        if used is None and own:
            both = len(clear) > 1
            raise DataError(
                f"{'a column has decimal commas and points' if both else 'this number can be read in two ways'}",
                where=f"{lines[max(own.values()) if both else first]}, column {name!r}",
                got=" and ".join(repr(cells[place]) for place in clear.values()) if both else repr(cells[first]),
                remedy='Say which sign divides decimals: `decimal: ","` or `decimal: "."`.',
            )
        found[name] = (
            [_pointed(cell, f"{lines[row]}, column {name!r}") for row, cell in enumerate(cells)]
            if used == ","
            else [*cells]
        )
    return found


_UNCLEAR = "?"


def _signs(cells: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The decimal signs that numbers show, each with the last row that shows it, and those that could be either."""
    for row, cell in enumerate(cells):
        if match := _SIGNED.fullmatch(cell.strip()):
            groups = len(match["rest"]) == 3 and re.fullmatch(r"[1-9]\d{0,2}", match["whole"]) and not match["exponent"]
            yield _UNCLEAR if groups else match["sign"], row
        elif match := _GROUPED.fullmatch(cell.strip()):
            yield "." if match["sign"] == "," else ",", row


def _pointed(cell: str, where: str) -> str:
    match = _SIGNED.fullmatch(cell.strip())
    if match is None:
        return cell
    if match["sign"] == ".":
        remedy = 'Write numbers without separators of thousands, or give `decimal: "."`.'
        raise DataError("a number has a point where decimals have a comma", where=where, got=repr(cell), remedy=remedy)
    return cell.replace(",", ".")

"""Differences as a table: path, one side, the other; drawn with rich, plain text in a pipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from ablate.analysis.differences import Difference
from ablate.analysis.numbers import MISSING
from ablate.render.cells import plain, plain_table


def differences_table(differences: Sequence[Difference], left: str, right: str) -> Table:
    """A row for each path; `left` and `right` are the headings of its values."""
    table = plain_table(gap=2)
    for title in ("path", left, right):
        table.add_column(plain(title), overflow="fold")
    for difference in differences:
        values = difference.values
        table.add_row(plain(difference.path), *(plain(_written(values, side), "cyan") for side in ("left", "right")))
    return table


def _written(values: dict[str, Any], side: str) -> str:
    if side not in values:
        return MISSING
    value = values[side]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

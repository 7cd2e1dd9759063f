"""The ablation table as Parquet: the columns of the CSV, with their types; of several types, as text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from ablate.analysis.answer import Answer
from ablate.analysis.columns import Value
from ablate.analysis.findings import Findings
from ablate.extras import require
from ablate.render.formats import Format, Place
from ablate.render.formats.csv import table_rows


def _parquet(findings: Iterable[Findings]) -> bytes:
    require("data", "the format parquet", where="--format", packages=("pyarrow",))
    import pyarrow as pa
    import pyarrow.parquet

    def column(values: list[Value]) -> Any:
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, OverflowError):  # a path may be a number in one variant and a word in another
            return pa.array([None if value is None else str(value) for value in values])

    rows = [row for found in findings for row in table_rows(found)]
    titles = dict.fromkeys(title for row in rows for title in row)
    table = pa.table({title: column([row.get(title) for row in rows]) for title in titles})
    written = io.BytesIO()
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()


class ParquetFormat(Format):
    """The ablation table as Parquet: the columns of the CSV, with their types."""

    kind: Literal["parquet"] = "parquet"
    suffix = "parquet"

    def render(self, findings: Findings, place: Place) -> bytes:
        """The table; null where there is no number.

        Raises:
            MissingPackageError: pyarrow is not installed.
        """
        return _parquet([findings])

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> bytes:
        """The lines of all; the column `study` names the question."""
        return _parquet(findings)

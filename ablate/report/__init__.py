"""Reads the store and says what a study found: rows, answer, table, JSON. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.late import late

if TYPE_CHECKING:
    from ablate.report.runs import StudyReader
    from ablate.report.study import StudyReport, VariantRow, read_study

__all__ = ["StudyReader", "StudyReport", "VariantRow", "read_study"]

# Looked up late: a list of studies needs no statistics.
__getattr__ = late(
    __name__,
    {
        "StudyReader": "ablate.report.runs",
        "StudyReport": "ablate.report.study",
        "VariantRow": "ablate.report.study",
        "read_study": "ablate.report.study",
    },
)

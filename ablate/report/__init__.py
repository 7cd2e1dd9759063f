"""Reads the store and says what a study found: rows, answer, effects, path, front, tables, figures. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.late import late

if TYPE_CHECKING:
    from ablate.report.effects import read_effects
    from ablate.report.importances import read_importances
    from ablate.report.pareto import read_front
    from ablate.report.path import read_path
    from ablate.report.runs import StudyReader
    from ablate.report.slices import read_slices
    from ablate.report.study import StudyReport, VariantRow, read_study

__all__ = [
    "StudyReader",
    "StudyReport",
    "VariantRow",
    "read_effects",
    "read_front",
    "read_importances",
    "read_path",
    "read_slices",
    "read_study",
]

# Looked up late: a list of studies needs no statistics.
__getattr__, __dir__ = late(
    __name__,
    {
        "StudyReader": "ablate.report.runs",
        "StudyReport": "ablate.report.study",
        "VariantRow": "ablate.report.study",
        "read_effects": "ablate.report.effects",
        "read_front": "ablate.report.pareto",
        "read_importances": "ablate.report.importances",
        "read_path": "ablate.report.path",
        "read_slices": "ablate.report.slices",
        "read_study": "ablate.report.study",
    },
)

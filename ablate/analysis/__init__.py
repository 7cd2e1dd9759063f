"""Reads the store and says what a study found: rows, answer, effects, path, front. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.lazy_imports import lazy_names

if TYPE_CHECKING:
    from ablate.analysis.effects import read_effects, read_importances
    from ablate.analysis.pareto import read_front
    from ablate.analysis.path import read_path
    from ablate.analysis.report import StudyReport
    from ablate.analysis.rows import VariantRow
    from ablate.analysis.runs import StudyReader
    from ablate.analysis.slices import read_slices
    from ablate.analysis.study import read_study

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
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "StudyReader": "ablate.analysis.runs",
        "StudyReport": "ablate.analysis.report",
        "VariantRow": "ablate.analysis.rows",
        "read_effects": "ablate.analysis.effects",
        "read_front": "ablate.analysis.pareto",
        "read_importances": "ablate.analysis.effects",
        "read_path": "ablate.analysis.path",
        "read_slices": "ablate.analysis.slices",
        "read_study": "ablate.analysis.study",
    },
)

"""Reads the store and says what a study found: rows, answer, effects, path, front, tables, figures. Needs no torch."""

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

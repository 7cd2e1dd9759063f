"""Reads the store and says what a study found: rows, answer, table, JSON. Needs no torch."""

from ablate.report.runs import StudyReader
from ablate.report.study import StudyReport, VariantRow, read_study

__all__ = ["StudyReader", "StudyReport", "VariantRow", "read_study"]

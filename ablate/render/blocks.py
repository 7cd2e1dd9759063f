"""What a written report is made of: titled sections of paragraphs, items, tables, listings and pictures."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.analysis.report_format import Picture

__all__ = ["Block", "Grid", "Items", "Listing", "Paragraph", "Picture", "ReportDocument", "Section"]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Short texts, one below the other."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        titles: One for each column.
        groups: Rows of cells; groups are set apart from one another.
        texts: Columns that hold text; all others hold numbers, which are set flush right.
    """

    titles: tuple[str, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    texts: frozenset[int]


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be shown exactly as they are."""

    text: str


Block = Paragraph | Items | Grid | Listing | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """A report as a person reads it from top to bottom."""

    title: str
    sections: tuple[Section, ...]

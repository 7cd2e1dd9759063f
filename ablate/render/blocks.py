"""What a written report is made of: titled sections of paragraphs, tables, listings and pictures; code in sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ablate.analysis.answer import Answer
from ablate.analysis.findings import Findings
from ablate.analysis.report_format import Picture

__all__ = [
    "AnswerGrid",
    "Block",
    "Cautions",
    "ClaimsGrid",
    "Grid",
    "Items",
    "Listing",
    "Paragraph",
    "Picture",
    "ReportDocument",
    "Section",
    "lead",
    "with_code",
]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Short texts, one below the other."""

    texts: tuple[str, ...]


class Cautions(Items):
    """What limits an answer most, below its headline."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        titles: One for each column.
        groups: Rows of cells; groups are set apart from one another.
        texts: Columns that hold text; all others hold numbers, which are set flush right.
        links: Where the first cell of each row leads; empty: nowhere. Markdown and HTML show links.
        fold: The label under which HTML folds the table; empty: the table is not folded.
    """

    titles: tuple[str, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    texts: frozenset[int]
    links: tuple[str, ...] = ()
    fold: str = ""

    def only(self, *columns: int) -> Grid:
        """The same rows with these columns alone; negative numbers count from the last one."""
        kept = [range(len(self.titles))[column] for column in columns]
        groups = tuple(tuple(tuple(row[place] for place in kept) for row in group) for group in self.groups)
        texts = frozenset(number for number, place in enumerate(kept) if place in self.texts)
        return Grid(tuple(self.titles[place] for place in kept), groups, texts, self.links)


@dataclass(frozen=True, slots=True)
class AnswerGrid(Grid):
    """The rows of an answer, which HTML draws as a forest plot.

    Attributes:
        answer: What they are rows of.
    """

    answer: Answer = field(kw_only=True)


class ClaimsGrid(Grid):
    """The claims of a study with their evidence, before which HTML draws their verdicts as a forest plot."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be shown exactly as they are."""

    text: str


Block = Paragraph | Items | Grid | Listing | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report.

    Attributes:
        title: Its heading; empty: none.
        blocks: What it holds.
        level: Of its heading: 3 for the parts of one question of several, else 2.
        of: Of which its pictures are drawn; None if it has none.
    """

    title: str
    blocks: tuple[Block, ...]
    level: int = 2
    of: Findings | None = None


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """A report as a person reads it from top to bottom."""

    title: str
    sections: tuple[Section, ...]


_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def with_code(text: str, plain: Callable[[str], str], code: Callable[[str], str]) -> str:
    """A sentence on one line, without the backticks round its code; a backtick without a partner stays.

    Args:
        plain: Writes what stands outside backticks. It gets pieces of the line and must keep blanks at their ends.
        code: Writes what stands between two backticks; it is not empty and holds no backtick.
    """
    pieces = _SPAN.split(" ".join(text.split()))
    return "".join((code if number % 2 else plain)(piece) for number, piece in enumerate(pieces))


def lead(text: str) -> tuple[str, str]:
    """What a sentence says before its first colon outside code, and what follows it; no lead without such a colon."""
    colon = _SPAN.sub(lambda span: "`" * len(span[0]), text).find(": ")
    return ("", text) if colon < 0 else (text[:colon], text[colon + 2 :])

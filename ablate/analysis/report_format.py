"""What a format of a written report is: the family, and what its members get."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    from ablate.analysis.answer import Answer
    from ablate.analysis.findings import Findings

FORMATS = Family("report format", package="ablate.render.formats", entry_points="ablate.formats")


@dataclass(frozen=True, slots=True)
class Picture:
    """The place of a figure of this name, with its caption."""

    name: str
    caption: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report goes.

    Attributes:
        pictures: The figures that it may show.
        folder: Where their files lie beside the report; None if it is printed.
    """

    pictures: tuple[Picture, ...] = ()
    folder: Path | None = None


class Format(Kinded):
    """A way to write a report. A final subclass adds `kind`, `suffix` and `render`."""

    family = FORMATS
    suffix: ClassVar[str]
    """Of its file, without the dot."""
    ending: ClassVar[str] = ""
    """Between the study's name and the dot of its file, where another format has the same suffix."""
    figures: ClassVar[tuple[str, ...]] = ()
    """The kinds of picture files (`svg`, `png`, `pdf`) that go with it; none if it shows no figures."""
    inlined: ClassVar[bool] = False
    """Whether the text holds its figures itself, also when it is printed."""
    draws_blocks: ClassVar[bool] = False
    """Whether it draws blocks, for which kinds of mixers are imported, and torch."""
    coloured: ClassVar[bool] = False
    """Whether its text may hold the control codes of a terminal; they are removed from all others."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The suffix of its file."""
        return {"suffix": cls.suffix}

    def companions(self, findings: Findings) -> dict[str, str]:
        """Further files beside the report: what follows the study's name in the file's name, to its text."""
        return {}

    @abstractmethod
    def render(self, findings: Findings, place: Place) -> str | bytes:
        """What was found as text, or as bytes if the format is binary."""

    def render_questions(
        self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]
    ) -> str | bytes | None:
        """Several questions on a table as one report; None: each has a report of its own."""
        return None

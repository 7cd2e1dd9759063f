"""The formats of a written report, one file each in this folder."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic_core import PydanticCustomError

from ablate.errors import AblateError
from ablate.portable_names import FILE, portable_name
from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    from ablate.analysis.findings import Findings
    from ablate.render.blocks import Picture

FORMATS = Family("report format", package="ablate.render.formats", entry_points="ablate.formats")


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

    @abstractmethod
    def render(self, findings: Findings, place: Place) -> str | bytes:
        """What was found as text, or as bytes if the format is binary."""


def file_stem(findings: Findings) -> str:
    """The beginning of the names of a report's files: the study's, which a store of another origin may choose."""
    return portable_name(findings.report.record.name, FILE, room=40)


def format_names() -> list[str]:
    """The formats there are."""
    return list(FORMATS.members())


def find_format(name: str) -> Format:
    """The format of this name.

    Raises:
        AblateError: There is none.
    """
    try:
        format_ = FORMATS.member(name)()
    except PydanticCustomError:
        raise AblateError(
            "there is no such format of a report",
            where="--format",
            expected=f"one of {', '.join(format_names())}",
            got=f"`{name}`",
            remedy="Give one of these.",
        ) from None
    assert isinstance(format_, Format)
    return format_

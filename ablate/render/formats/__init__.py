"""The formats of a written report, one file each in this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from ablate.analysis.report_format import FORMATS, Format, Place
from ablate.errors import AblateError
from ablate.portable_names import FILE, portable_name

if TYPE_CHECKING:
    from ablate.analysis.findings import Findings

__all__ = ["FORMATS", "Format", "Place", "file_stem", "find_format", "format_names"]


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

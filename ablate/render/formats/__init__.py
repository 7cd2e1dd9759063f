"""The formats of a written report, one file each in this folder, and the writing of a report to text or to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic_core import PydanticCustomError

from ablate.analysis.findings import Findings
from ablate.analysis.report_format import FORMATS, Format, Place
from ablate.errors import AblateError, printable
from ablate.portable_names import FILE, portable_name
from ablate.render.figures import draw, pictures, save

__all__ = ["FORMATS", "Format", "Place", "file_stem", "find_format", "format_names", "render_report", "write_report"]


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


def render_report(findings: Findings, format_name: str) -> str | bytes:
    """A report as text, or bytes if its format is binary; with its figures only if the format holds them itself.

    Raises:
        AblateError: There is no such format.
    """
    format_ = find_format(format_name)
    if not format_.inlined:
        return _rendered(format_, findings, Place())
    return _rendered(format_, findings, Place(pictures(findings)))


def _rendered(format_: Format, findings: Findings, place: Place) -> str | bytes:
    rendered = format_.render(findings, place)
    return rendered if isinstance(rendered, bytes) or format_.coloured else printable(rendered)


def write_report(findings: Findings, format_name: str, folder: Path) -> list[Path]:
    """Write `STUDY.suffix`, its companions and, where the format shows figures, `STUDY_figure.svg` and so on.

    Returns:
        The files, the report first.

    Raises:
        AblateError: There is no such format, or the folder cannot be written.
    """
    format_ = find_format(format_name)
    study = file_stem(findings)
    written: dict[Path, bytes] = {}
    place = Place(folder=folder)
    if format_.figures:
        place = Place(pictures(findings), folder)
        for picture in place.pictures:
            figure = draw(picture.name, findings)
            for kind in format_.figures:
                written[folder / f"{study}_{picture.name}.{kind}"] = save(figure, kind)
    report = folder / f"{study}{format_.ending}.{format_.suffix}"
    rendered = _rendered(format_, findings, place)
    written = {report: rendered.encode() if isinstance(rendered, str) else rendered} | written
    written |= {folder / f"{study}{end}": text.encode() for end, text in format_.companions(findings).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in written.items():
            path.write_bytes(content)
    except OSError as error:
        raise AblateError(
            f"the report cannot be written ({error.strerror})",
            where=str(error.filename or folder),
            remedy="Name a folder that you may write.",
        ) from None
    return list(written)


def print_report(rendered: str | bytes) -> None:
    """Print a report to stdout.

    Raises:
        AblateError: It is binary, and stdout is a terminal.
    """
    if isinstance(rendered, str):
        sys.stdout.write(rendered)
        return
    if sys.stdout.isatty():
        raise AblateError(
            "this format is binary and cannot be shown on a terminal",
            where="--format",
            remedy="Give `--out DIR`, or send the output into a file.",
        )
    sys.stdout.buffer.write(rendered)

"""The formats of a written report, one file each in this folder, and the writing of a report to text or to a folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic_core import PydanticCustomError

from ablate.analysis.answer import Answer
from ablate.analysis.findings import Findings
from ablate.analysis.report_format import FORMATS, Format, Place
from ablate.errors import AblateError, printable
from ablate.locations import write_file
from ablate.portable_names import FILE, portable_name
from ablate.render.figures import draw, pictures, save

__all__ = [
    "FORMATS",
    "Format",
    "Place",
    "file_stem",
    "find_format",
    "format_names",
    "render_questions",
    "render_report",
    "write_questions",
    "write_report",
]


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
        ) from None
    assert isinstance(format_, Format)
    return format_


def render_report(findings: Findings, format_name: str) -> str | bytes:
    """A report as text, or bytes if its format is binary; with its figures only if the format holds them itself.

    Raises:
        AblateError: There is no such format.
    """
    format_ = find_format(format_name)
    return _text(format_, format_.render(findings, _without_folder(format_, findings)))


def render_questions(answer: Answer, findings: Sequence[Findings], format_name: str) -> list[str | bytes]:
    """The same of several questions on a table: one report, or one for each if the format cannot hold several.

    Raises:
        AblateError: There is no such format.
    """
    format_ = find_format(format_name)
    places = [_without_folder(format_, found) for found in findings]
    together = format_.render_questions(answer, findings, places) if len(findings) > 1 else None
    rendered = [*map(format_.render, findings, places)] if together is None else [together]
    return [_text(format_, one) for one in rendered]


def _without_folder(format_: Format, findings: Findings) -> Place:
    return Place(pictures(findings)) if format_.inlined else Place()


def _text(format_: Format, rendered: str | bytes) -> str | bytes:
    return rendered if isinstance(rendered, bytes) or format_.coloured else printable(rendered)


def write_report(findings: Findings, format_name: str, folder: Path) -> list[Path]:
    """Write `STUDY.suffix`, its companions and, where the format shows figures, `STUDY_figure.svg` and so on.

    Returns:
        The files, the report first.

    Raises:
        AblateError: There is no such format, or the folder cannot be written.
    """
    format_ = find_format(format_name)
    _check_folder(format_, folder)
    place, beside = _beside(format_, findings, folder)
    return _written(format_, format_.render(findings, place), folder, file_stem(findings), beside)


def write_questions(
    answer: Answer, findings: Sequence[Findings], format_name: str, folder: Path, stem: str
) -> list[Path]:
    """The same of several questions on a table: one report, or one for each if the format cannot hold several.

    Args:
        answer: To all of them.
        folder: Where to.
        stem: What the one report is called, as a path component takes it; a single question is called as it is.

    Returns:
        The files, the report first.

    Raises:
        AblateError: There is no such format, or the folder cannot be written.
    """
    format_ = find_format(format_name)
    _check_folder(format_, folder)
    drawn = [_beside(format_, found, folder) for found in findings]
    places = [place for place, _ in drawn]
    together = format_.render_questions(answer, findings, places) if len(findings) > 1 else None
    if together is None:
        return [file for found in findings for file in write_report(found, format_name, folder)]
    beside = {file: content for _, files in drawn for file, content in files.items()}
    return _written(format_, together, folder, portable_name(stem, FILE, room=40), beside)


def _check_folder(format_: Format, folder: Path) -> None:
    """Refuse what looks like the name of the report itself."""
    if folder.suffix == f".{format_.suffix}" and not folder.is_dir():
        raise AblateError(
            "a report is written into a folder, under the name of its study",
            where="--out",
            expected="a folder",
            got=str(folder),
            remedy=f"Write `--out {folder.parent if folder.parent.name else folder.stem}`.",
        )


def _beside(format_: Format, findings: Findings, folder: Path) -> tuple[Place, dict[Path, bytes]]:
    """Where a report goes, with its figures, and the files beside it."""
    study, files, place = file_stem(findings), dict[Path, bytes](), Place(folder=folder)
    if format_.figures:
        place = Place(pictures(findings), folder)
        for picture in place.pictures:
            figure = draw(picture.name, findings)
            for kind in format_.figures:
                files[folder / f"{study}_{picture.name}.{kind}"] = save(figure, kind)
    companions = format_.companions(findings).items()
    return place, files | {folder / f"{study}{end}": text.encode() for end, text in companions}


def _written(
    format_: Format, rendered: str | bytes, folder: Path, stem: str, beside: Mapping[Path, bytes]
) -> list[Path]:
    report, text = folder / f"{stem}{format_.ending}.{format_.suffix}", _text(format_, rendered)
    files = {report: text.encode() if isinstance(text, str) else text, **beside}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_file(path, content)
    except OSError as error:
        raise AblateError(
            f"the report cannot be written ({error.strerror})",
            where=str(error.filename or folder),
            remedy="Name a folder that you may write.",
        ) from None
    return list(files)


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

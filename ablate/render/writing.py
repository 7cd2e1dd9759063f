"""Writes a report: as text to be printed, or as a file in a folder with its figures beside it."""

from __future__ import annotations

import sys
from pathlib import Path

from ablate.analysis.findings import Findings
from ablate.errors import AblateError, printable
from ablate.render.figures import draw, pictures, save
from ablate.render.formats import Format, Place, file_stem, find_format


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
    """Write `STUDY.suffix` and, where the format shows figures, `STUDY_figure.svg` and so on into a folder.

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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in written.items():
            path.write_bytes(content)
    except OSError as error:
        raise AblateError(
            f"the report cannot be written ({error.strerror})",
            where=str(error.filename or folder),
            remedy="Give `--out` a folder that you may write.",
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

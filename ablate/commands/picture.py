"""The file that a picture is written to, as every command that draws one takes it."""

from __future__ import annotations

from pathlib import Path

from ablate.errors import AblateError


def picture_file(option: str, file: Path, endings: tuple[str, ...] = (".svg",)) -> Path:
    """The file, if a picture can be written there; asked before anything is measured or drawn.

    Args:
        option: The option that names it, for messages.
        file: Where the picture is to stand.
        endings: Of the kinds of picture that can be drawn.

    Raises:
        AblateError: It is no such picture, or its folder is not there.
    """
    where = f"{option} {file}"
    if file.suffix.lower() not in endings:
        raise AblateError(
            "this is no kind of picture that can be drawn",
            where=where,
            expected=", ".join(endings),
            got=file.suffix or "no ending",
            remedy=f"Write `{option} {file.with_suffix(endings[0])}`.",
        )
    if not file.parent.is_dir():
        raise AblateError("there is no such folder", where=where, remedy=f"Make {file.parent} first.")
    return file

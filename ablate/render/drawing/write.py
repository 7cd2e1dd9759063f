"""Write a picture to a file."""

from __future__ import annotations

from pathlib import Path

from ablate.errors import AblateError


def write_svg(path: Path, content: str) -> None:
    """Write an SVG document.

    Raises:
        AblateError: The file does not end in .svg, or cannot be written.
    """
    if path.suffix.lower() != ".svg":
        raise AblateError("pictures are written as SVG", where=str(path), remedy=f"Write `--out {path.stem}.svg`.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise AblateError(
            f"this cannot be written: {error.strerror}", where=str(path), remedy="Name another place."
        ) from None

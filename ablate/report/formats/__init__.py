"""The formats of a written report: each module of this package is one, and is found by its name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ablate.errors import AblateError
from ablate.report.blocks import Picture
from ablate.report.findings import Findings


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report goes.

    Attributes:
        pictures: The figures that it may show.
        folder: Where their files lie beside the report; None if it is printed.
    """

    pictures: tuple[Picture, ...] = ()
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a report; a module of this package defines one as `FORMAT`.

    Attributes:
        suffix: Of its file, without the dot.
        render: Turns what was found into text, or into bytes if the format is binary.
        figures: The kinds of picture files (`svg`, `png`, `pdf`) that go with it; none if it shows no figures.
        inlined: Whether the text holds its figures itself, also when it is printed.
    """

    suffix: str
    render: Callable[[Findings, Place], str | bytes]
    figures: tuple[str, ...] = ()
    inlined: bool = False


def format_names() -> list[str]:
    """The formats there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find_format(name: str) -> Format:
    """The format of this name.

    Raises:
        AblateError: There is none.
    """
    if name not in format_names():
        raise AblateError(
            "there is no such format of a report",
            where="--format",
            expected=f"one of {', '.join(format_names())}",
            got=f"`{name}`",
            remedy="Give one of these.",
        )
    found: Format = importlib.import_module(f"{__name__}.{name}").FORMAT
    return found

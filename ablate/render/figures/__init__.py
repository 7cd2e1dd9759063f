"""Figures, and the sections of a report that only some designs give: each module of this package holds a kind of them.

A figure is a Vega-Lite specification, one for all outputs: Streamlit shows it on a page, `save` writes it as a file. A
module gives `pictures`, which names the figures that a study has data for, and `FIGURES`, the functions that draw them.

A section takes what was found, and by name the pictures that may be shown; it is None where there is nothing to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ablate.analysis.findings import Findings
from ablate.errors import AblateError
from ablate.extras import missing_packages, require
from ablate.locations import write_file
from ablate.render.blocks import Picture, Section
from ablate.render.figures import axes, curves, effects, forest, front, laws, path, profile
from ablate.render.figures.style import PAPER, WIDTH, Palette, Spec, themed

_KINDS = (profile, forest, curves, axes, laws, path, effects, front)
SECTIONS: tuple[Callable[[Findings, Mapping[str, Picture]], Section | None], ...] = (
    profile.section,
    axes.scaling_section,
    laws.section,
    path.section,
    axes.slices_section,
    axes.insides_section,
    effects.section,
    effects.importances_section,
    front.section,
)
"""Sections that only some designs give, in the order in which a report has them."""
_DOTS_PER_INCH = 210
_ID, _REFERENCE = re.compile(r'(?<= )id="([^"]+)"'), re.compile(r"""(url\(|href=")#([^")]+)""")


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figures that a study has data for, with their captions; none where they cannot be drawn."""
    if missing_packages("figures"):
        return ()
    return tuple(picture for kind in _KINDS for picture in kind.pictures(findings))


def draw(name: str, findings: Findings, palette: Palette = PAPER, width: float = WIDTH) -> Spec:
    """The figure of this name, one of those that `pictures` gives, as a Vega-Lite specification."""
    drawing: dict[str, Callable[[Findings, Palette, float], Spec]] = {
        name: figure for kind in _KINDS for name, figure in kind.FIGURES.items()
    }
    drawn = drawing[name](findings, palette, width)
    drawn = drawn | {"width": width} if "autosize" in drawn else drawn
    return themed(_listed(drawn) if width < WIDTH else drawn, palette)


def _listed(part: Any) -> Any:
    """A part of a figure with the entries of its legends below each other."""
    if isinstance(part, Mapping):
        return {key: {**of, "columns": 1} if key == "legend" and of else _listed(of) for key, of in part.items()}
    return [*map(_listed, part)] if isinstance(part, list | tuple) else part


def save(figure: Spec, kind: str) -> bytes:
    """A figure as a file of this kind (`svg`, `png`, `pdf`); the same figure gives the same bytes.

    Raises:
        MissingPackageError: vl-convert-python is not installed.
    """
    require("figures", "a figure")
    import vl_convert

    if kind == "png":
        return bytes(vl_convert.vegalite_to_png(figure, scale=_DOTS_PER_INCH / 96))
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(figure))
    return _numbered_ids(str(vl_convert.vegalite_to_svg(figure))).encode()


def save_to(figure: Spec, file: Path) -> None:
    """Write a figure as a file of the kind that its ending names.

    Raises:
        MissingPackageError: vl-convert-python is not installed.
        AblateError: The file cannot be written.
    """
    drawn = save(figure, file.suffix.lower().lstrip("."))
    try:
        write_file(file, drawn)
    except OSError as error:
        raise AblateError(f"the picture cannot be written ({error.strerror})", where=str(file)) from error


def _numbered_ids(svg: str) -> str:
    """The document with its ids numbered from 1: Vega goes on counting from one figure to the next."""
    places = {name: str(number) for number, name in enumerate(dict.fromkeys(_ID.findall(svg)), 1)}
    svg = _ID.sub(lambda found: f'id="part{places[found[1]]}"', svg)
    return _REFERENCE.sub(lambda found: f"{found[1]}#part{places[found[2]]}", svg)

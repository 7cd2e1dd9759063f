"""The figures of a report, drawn with matplotlib; each module of this package draws a kind of them.

A module gives `pictures`, which names the figures that a study has data for, and `FIGURES`, the functions that draw
them.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from ablate.analysis.findings import Findings
from ablate.extras import missing_packages, require
from ablate.render.blocks import Picture
from ablate.render.figures import course, curves, effects, forest, front, importances, path, scaling, slices
from ablate.render.figures.style import LOOKS, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LOOKS", "draw", "pictures", "save"]

_KINDS = (forest, course, curves, scaling, path, slices, effects, importances, front)


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figures that a study has data for, with their captions; none where matplotlib is missing."""
    if missing_packages("figures"):
        return ()
    return tuple(picture for kind in _KINDS for picture in kind.pictures(findings))


def draw(name: str, findings: Findings) -> Figure:
    """The figure of this name, one of those that `pictures` gives.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    require("figures", f"the figure `{name}`")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # matplotlib reports when it builds its font cache
    import matplotlib as mpl

    drawing: dict[str, Callable[[Findings], Figure]] = {
        name: figure for kind in _KINDS for name, figure in kind.FIGURES.items()
    }
    with mpl.rc_context(STYLE):
        return drawing[name](findings)


def save(figure: Figure, kind: str) -> bytes:
    """A figure as a file of this kind (`svg`, `png`, `pdf`); the same figure gives the same bytes."""
    import matplotlib as mpl

    written = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # Characters that the font lacks are drawn as boxes, without a warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(written, format=kind, metadata=undated.get(kind))
    return written.getvalue()

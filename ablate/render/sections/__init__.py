"""The sections of a report that only some designs give: each module of this package is one.

Each takes what was found, and by name the pictures that may be shown; it gives None where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ablate.analysis.findings import Findings
from ablate.render.blocks import Picture, Section
from ablate.render.sections import effects, front, importances, path, scaling, slices

OF_DESIGNS: tuple[Callable[[Findings, Mapping[str, Picture]], Section | None], ...] = (
    scaling.section,
    path.section,
    slices.section,
    effects.section,
    importances.section,
    front.section,
)
"""In the order in which a report has them."""

"""The sections of a report that only some designs give: the modules of this package hold them.

Each takes what was found, and by name the pictures that may be shown; it gives None where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ablate.analysis.findings import Findings
from ablate.render.blocks import Picture, Section
from ablate.render.sections import axes, effects, front, path

OF_DESIGNS: tuple[Callable[[Findings, Mapping[str, Picture]], Section | None], ...] = (
    axes.scaling_section,
    path.section,
    axes.slices_section,
    effects.section,
    effects.importances_section,
    front.section,
)
"""In the order in which a report has them."""

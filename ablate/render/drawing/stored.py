"""Draws blocks from what a store holds of them: the plain spec of a variant. Knows the kinds, and so needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.render.drawing.layout import compare, layout
from ablate.render.drawing.svg import to_svg
from ablate.spec.block import BlockSpec


def stored_svg(
    name: str, model: Mapping[str, Any], versus: tuple[str, Mapping[str, Any]] | None = None, *, titled: bool = True
) -> str:
    """The picture of a stored model's block as an SVG document.

    Args:
        name: What to call it.
        model: `model` of a variant's plain spec.
        versus: Name and plain model to compare it with.
        titled: Whether the name is written above it.

    Raises:
        ValidationError: A mixer of a kind that is not known here.
    """
    block = BlockSpec.model_validate(model["block"])
    if versus is None:
        return to_svg(layout(name, block, bool(model.get("exceptions"))), titled=titled)
    other, old = versus
    return to_svg(compare(other, BlockSpec.model_validate(old["block"]), name, block), titled=titled)

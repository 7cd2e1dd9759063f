"""Pictures of blocks: a layout on a grid of cells, and two painters, SVG and box-drawing characters. Needs no torch."""

from ablate.render.drawing.layout import compare, layout
from ablate.render.drawing.svg import to_svg
from ablate.render.drawing.text import to_text

__all__ = ["compare", "layout", "to_svg", "to_text"]

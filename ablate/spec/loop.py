"""Layers that are passed through more than once, with the same weights."""

from __future__ import annotations

from pydantic import Field

from ablate.spec.base import Spec


class LoopSpec(Spec):
    """Layers `first` to `last`, passed through `times` times in a row with shared weights.

    One layer in a loop is ALBERT's sharing (arXiv:1909.11942); a loop in the middle is the core of a recurrent-depth
    model (arXiv:2502.05171).
    """

    first: int = Field(ge=0)
    """Index of the first layer, from 0."""
    last: int = Field(ge=0)
    """Index of the last layer."""
    times: int = Field(ge=2, le=1000)
    """Passes."""

"""The special functions of scipy, imported at their first use: importing them takes longer than checking a space.

`special.stdtr(...)` is the cumulative t distribution and so on; see `scipy.special`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.lazy_imports import lazy_names

if TYPE_CHECKING:
    from scipy.special import fdtrc, nctdtr, ndtr, ndtri, stdtr, stdtrit

__all__ = ["fdtrc", "nctdtr", "ndtr", "ndtri", "stdtr", "stdtrit"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "scipy.special"))

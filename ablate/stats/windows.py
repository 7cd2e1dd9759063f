"""The noise of a shared draw of validation data, from differences over parts of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def draw_variance(gaps: Sequence[Sequence[float]]) -> float | None:
    """Variance over draws of the mean difference over all parts and seeds; below 0 by chance where there is none.

    A two-way analysis of variance: parts are a random sample of draws, each a `parts`-th as large as the whole. Their
    mean square holds the noise of the draw and that of seeds within parts; the mean square of the residuals holds the
    latter alone.

    Args:
        gaps: Differences [S, G] of each seed over each part.

    Returns:
        None below two seeds or two parts, or where seeds have different numbers of parts.
    """
    if len({len(row) for row in gaps}) != 1:
        return None
    table = np.asarray(gaps, dtype=np.float64)
    seeds, parts = table.shape
    if seeds < 2 or parts < 2:
        return None
    of_parts = table.mean(axis=0)
    rest = table - of_parts - table.mean(axis=1, keepdims=True) + table.mean()
    between = seeds * float(of_parts.var(ddof=1))
    within = float((rest**2).sum()) / ((seeds - 1) * (parts - 1))
    return float((between - within) / (seeds * parts))

"""The exact sign-flip test: the check on a t-test that assumes no normal distribution, only a symmetric one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_EXACT = 20
"""Seeds up to which every one of the 2^n sign patterns is counted; beyond, `_DRAWN` random ones."""
_DRAWN = 99_999
_CHUNK = 10_000
_TIE = 1e-12
"""Relative rounding error within which two sums count as equal."""


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Result of a two-sided sign-flip test.

    Attributes:
        p: Share of the sign patterns whose mean lies at least as far from the tested value as the observed one.
        floor: The least p that this many seeds can give, 2 / 2^n: below 6 seeds it is above 5 %, and a large p then
            says nothing against the difference.
    """

    p: float
    floor: float


def sign_flip(differences: Sequence[float], tested: float = 0.0) -> SignFlip:
    """Test whether differences (one for each seed) are symmetric about `tested`.

    Raises:
        ValueError: There is no difference.
    """
    if not differences:
        raise ValueError("a sign-flip test needs at least 1 difference")
    shifted = np.asarray(differences, dtype=np.float64) - tested
    n, observed = len(shifted), abs(float(shifted.sum())) * (1 - _TIE)
    if n <= MOST_EXACT:
        # The overall sign makes no difference to a two-sided test, so the first seed's is kept.
        sums = shifted[:1]
        for value in shifted[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return SignFlip(float((np.abs(sums) >= observed).mean()), 2.0 / 2**n)
    rng, extreme = np.random.default_rng(0), 1  # the observed pattern is one of them
    for begin in range(0, _DRAWN, _CHUNK):
        signs = rng.choice((-1.0, 1.0), (min(_CHUNK, _DRAWN - begin), n))
        extreme += int((np.abs(signs @ shifted) >= observed).sum())
    return SignFlip(extreme / (_DRAWN + 1), 1 / (_DRAWN + 1))

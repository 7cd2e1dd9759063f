"""`Draws`: random numbers that are a pure function of a name and the same with every version of numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Draws:
    """A stream of random numbers keyed by a name. Streams with equal names give the same numbers in the same order.

    Args:
        name: All that the numbers depend on, such as fingerprint, seed and step.
    """

    def __init__(self, name: str) -> None:
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        # numpy guarantees the raw stream of a bit generator across versions, but not the distributions.
        self._bits = np.random.Philox(key=key)

    def integers(self, high: int, shape: int | Sequence[int]) -> NDArray[np.int64]:
        """Uniform integers from 0 to high - 1 (with a modulo bias below high / 2^64)."""
        size = int(np.prod(shape))
        return (self._bits.random_raw(size) % np.uint64(high)).astype(np.int64).reshape(shape)

    def uniforms(self, shape: int | Sequence[int]) -> NDArray[np.float64]:
        """Uniform numbers in (0, 1)."""
        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(12)
        return ((raw.astype(np.float64) + 0.5) / float(1 << 52)).reshape(shape)

    def subsets(
        self, population: int, count: int, rows: int, weights: NDArray[np.float64] | None = None
    ) -> NDArray[np.int64]:
        """Weighted sampling without replacement: in each row, `count` distinct numbers below `population`.

        Sorts exponential variables divided by the weights: the smallest is item i with probability proportional to its
        weight, and so on (Efraimidis and Spirakis 2006).
        """
        keys = -np.log(self.uniforms((rows, population)))
        return np.argsort(keys if weights is None else keys / weights, axis=1, kind="stable")[:, :count]

"""`Draws`: random numbers that are a pure function of a name, the same with every version of numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Draws:
    """A stream of random numbers keyed by its name. Two streams of one name give the same numbers in the same order.

    Args:
        name: Everything that the numbers may depend on, such as fingerprint, seed and step.
    """

    def __init__(self, name: str) -> None:
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        # The raw stream of a bit generator is the same in every version of numpy; its distributions need not be.
        self._bits = np.random.Philox(key=key)

    def integers(self, high: int, shape: int | Sequence[int]) -> NDArray[np.int64]:
        """Uniform whole numbers from 0 to high - 1 (the remainder's bias is below high / 2^64)."""
        size = int(np.prod(shape))
        return (self._bits.random_raw(size) % np.uint64(high)).astype(np.int64).reshape(shape)

    def uniforms(self, shape: int | Sequence[int]) -> NDArray[np.float64]:
        """Uniform numbers in (0, 1)."""
        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(12)
        return ((raw.astype(np.float64) + 0.5) / float(1 << 52)).reshape(shape)

    def subsets(
        self, population: int, count: int, rows: int, weights: NDArray[np.float64] | None = None
    ) -> NDArray[np.int64]:
        """In every row, `count` different numbers below `population`, drawn one after another by their weights.

        An exponential variable divided by its weight comes first with a probability that is in proportion to it.
        """
        times = -np.log(self.uniforms((rows, population)))
        return np.argsort(times if weights is None else times / weights, axis=1, kind="stable")[:, :count]

"""Which rows a batch has: `Draws`, random numbers by the name of their stream, and `Buckets`, rows of similar length.

All seeds read the same bucket at the same step: the batches of a pack's members are stacked and need one width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

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


MOST_BUCKETS = 32
SMALLEST_BUCKET = 64


class Buckets:
    """Rows sorted by length and divided into buckets whose sizes differ by at most one row.

    Args:
        fingerprint: Fingerprint of the data. Fingerprint, seed, step and batch size determine a batch.
        lengths: Number of tokens of each row, [N], or of each text of each row, [N, texts].
    """

    def __init__(self, fingerprint: str, lengths: NDArray[np.int64]) -> None:
        self._fingerprint = fingerprint
        self._lengths = lengths.reshape(len(lengths), -1)
        self.order: NDArray[np.int64] = np.argsort(self._lengths.sum(axis=1), kind="stable")
        """Row indices, shortest row first."""
        count = max(1, min(MOST_BUCKETS, len(lengths) // SMALLEST_BUCKET))
        self._buckets = np.array_split(self.order, count)
        self._widths = [tuple(self._lengths[bucket].max(axis=0).tolist()) for bucket in self._buckets]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Padded width of each bucket; the mean over the texts of a row if it has several."""
        return tuple(round(sum(widths) / len(widths)) for widths in self._widths)

    def draw(
        self, seed: int, step: int, batch_size: int, tokens: int | None = None
    ) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """Sample rows of one bucket uniformly with replacement; also returns the padded width of each text.

        Over all steps, all rows are equally likely, except that bucket sizes may differ by one row.

        Args:
            seed: Seed of the rows; all seeds read the same bucket.
            step: Number of the batch.
            batch_size: Number of rows, unless `tokens` is given.
            tokens: Capacity of the batch: as many rows as have at most so many tokens of each text, padding included.
                A bucket is then drawn as often as it has batches, so that rows stay equally likely.
        """
        name = f"{self._fingerprint}/{step}/{batch_size}"
        if tokens is None:
            bucket, size = int(Draws(f"{name}/bucket").integers(len(self._buckets), 1)[0]), batch_size
        else:
            sizes, shares = self._capacities(tokens)
            place = Draws(f"{name}/{tokens}/bucket").uniforms(1)
            bucket = min(int(np.searchsorted(shares.cumsum(), place)[0]), len(sizes) - 1)
            size = int(sizes[bucket])
        rows = self._buckets[bucket]
        return rows[Draws(f"{name}/{seed}").integers(rows.size, size)], self._widths[bucket]

    def mean_rows(self, tokens: int) -> float:
        """The expected number of rows of a batch with this capacity."""
        sizes, shares = self._capacities(tokens)
        return float(sizes @ shares)

    def _capacities(self, tokens: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """For each bucket the rows of its batches, and the share of steps that read it."""
        sizes = np.array([max(1, tokens // max(widths)) for widths in self._widths])
        batches = np.array([bucket.size for bucket in self._buckets]) / sizes
        return sizes, batches / batches.sum()

    def batches(self, batch_size: int) -> Iterator[tuple[NDArray[np.int64], tuple[int, ...]]]:
        """Every row once, shortest first, with the padded widths of each batch."""
        for first in range(0, self.order.size, batch_size):
            rows = self.order[first : first + batch_size]
            yield rows, tuple(self._lengths[rows].max(axis=0).tolist())


def pad_rows(
    tokens: NDArray[np.integer], starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int, padding_id: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Slices of `tokens` as rows padded to `width`, and a mask that is True for real tokens; both [B, width]."""
    offsets = np.arange(width)
    real = offsets < lengths[:, None]
    positions = np.where(real, starts[:, None] + offsets, 0)
    return np.where(real, tokens[positions].astype(np.int64), padding_id), real

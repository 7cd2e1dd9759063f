"""`Buckets`: rows of nearly equal length side by side, so that a batch holds little padding.

Which bucket a step reads is the same for all seeds: members of a pack are stacked, so their batches have one width.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ablate.tasks.random_stream import Draws

MOST_BUCKETS = 32
SMALLEST_BUCKET = 64


class Buckets:
    """Rows sorted by length and cut into buckets of one size, give or take a row.

    Args:
        fingerprint: Of the data; with step and batch size it decides the batches.
        lengths: Tokens of every row, [N], or of each of its texts, [N, texts].
    """

    def __init__(self, fingerprint: str, lengths: NDArray[np.int64]) -> None:
        self._fingerprint = fingerprint
        self._lengths = lengths.reshape(len(lengths), -1)
        self.order: NDArray[np.int64] = np.argsort(self._lengths.sum(axis=1), kind="stable")
        """The rows, from short to long."""
        count = max(1, min(MOST_BUCKETS, len(lengths) // SMALLEST_BUCKET))
        self._buckets = np.array_split(self.order, count)
        self._widths = [tuple(self._lengths[bucket].max(axis=0).tolist()) for bucket in self._buckets]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of a row of each bucket with its padding, of a text on average where it has several."""
        return tuple(round(sum(widths) / len(widths)) for widths in self._widths)

    def draw(self, seed: int, step: int, batch_size: int) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """Rows of one bucket, drawn uniformly with replacement, and the width that each of their texts is padded to.

        Over all steps every row is as likely as any other, up to one row more in some buckets.
        """
        place = f"{self._fingerprint}/{step}/{batch_size}"
        bucket = int(Draws(f"{place}/bucket").integers(len(self._buckets), 1)[0])
        rows = self._buckets[bucket]
        return rows[Draws(f"{place}/{seed}").integers(rows.size, batch_size)], self._widths[bucket]

    def batches(self, batch_size: int) -> Iterator[tuple[NDArray[np.int64], tuple[int, ...]]]:
        """Every row once, from short to long, with the widths of each batch."""
        for first in range(0, self.order.size, batch_size):
            rows = self.order[first : first + batch_size]
            yield rows, tuple(self._lengths[rows].max(axis=0).tolist())


def padded(
    tokens: NDArray[np.integer], starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int, filler: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Runs of `tokens` as rows of one width, and where a token is real; [B, width] each."""
    offsets = np.arange(width)
    real = offsets < lengths[:, None]
    places = np.where(real, starts[:, None] + offsets, 0)
    return np.where(real, tokens[places].astype(np.int64), filler), real

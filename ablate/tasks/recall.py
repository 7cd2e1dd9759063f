"""`recall`: multi-query associative recall (arXiv:2312.04927): key-value pairs, then queries for their values."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks.probe import UNSCORED, Context, ContextProbeSpec
from ablate.tasks.sampling import Draws


class RecallSpec(ContextProbeSpec):
    """Multi-query associative recall, generated as in the authors' released code.

    A sequence begins with `pairs` pairs of distinct keys and distinct values. Then every key occurs once more, at a
    random even distance with density a·x^(a-1), a = `recency`, and the model predicts its value. The other tokens are
    random. Keys are ids 1 to V/2 - 1, values V/2 to V - 1.
    """

    kind: Literal["recall"] = "recall"
    """Multi-query associative recall: predict the value that was paired with a key."""
    context: Context = Field(default=64, ge=4, multiple_of=2)
    pairs: int = Field(default=8, ge=1)
    """Number of key-value pairs; each needs four tokens of the context."""
    symbols: int = Field(default=8192, ge=8, multiple_of=2)
    """Number of token ids V."""
    recency: float = Field(default=0.01, gt=0)
    """Exponent a of the distribution of distances: 1 is uniform; smaller values make short distances more likely."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if 4 * self.pairs > self.context:
            rule = f"every pair needs four tokens of the context, which is {self.context}"
            raise refusal(("pairs",), self.pairs, rule, f"Set `pairs: {self.context // 4}`, or a longer context.")
        if self.pairs >= self.symbols // 2:
            rule = f"there are {self.symbols // 2 - 1} different keys, half of the symbols minus one"
            raise refusal(("pairs",), self.pairs, rule, "Lower `pairs`, or raise `symbols`.")
        return self

    @property
    def vocabulary(self) -> int:
        return self.symbols

    @property
    def guesses(self) -> int:
        """The number of values in the sequence."""
        return self.pairs

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        half, shown = self.symbols // 2, 2 * self.pairs
        keys = 1 + draws.subsets(half - 1, self.pairs, rows)
        values = half + draws.subsets(self.symbols - half, self.pairs, rows)
        room = (self.context - shown) // 2
        density: NDArray[np.float64] = np.arange(1.0, room + 1.0) ** (self.recency - 1.0)
        gaps = draws.subsets(room, self.pairs, rows, density)
        inputs = draws.integers(self.symbols, (rows, self.context))
        inputs[:, 0:shown:2], inputs[:, 1:shown:2] = keys, values
        targets = np.full((rows, self.context), UNSCORED, dtype=np.int64)
        np.put_along_axis(inputs, shown + 2 * gaps, keys, axis=1)
        np.put_along_axis(targets, shown + 2 * gaps, values, axis=1)
        return inputs, targets

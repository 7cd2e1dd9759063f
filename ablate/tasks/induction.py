"""`induction`: predict the token that followed an earlier special token (arXiv:2209.11895, arXiv:2212.14052)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.probe import UNSCORED, Context, ContextProbeSpec
from ablate.tasks.sampling import Draws


class InductionSpec(ContextProbeSpec):
    """Induction heads: random symbols with a special token at a random position and again at the end.

    The model predicts the symbol that followed the first special token. Default sizes are those of arXiv:2212.14052.
    """

    kind: Literal["induction"] = "induction"
    """Predict the symbol that followed an earlier special token."""
    context: Context = Field(default=30, ge=3)
    symbols: int = Field(default=20, ge=2)
    """Number of distinct symbols; the special token is one more id."""

    @property
    def vocabulary(self) -> int:
        return self.symbols + 1

    @property
    def guesses(self) -> int:
        """Any symbol."""
        return self.symbols

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        inputs = draws.integers(self.symbols, (rows, self.context))
        position = draws.integers(self.context - 2, (rows, 1))
        inputs[:, -1] = self.symbols
        np.put_along_axis(inputs, position, self.symbols, axis=1)
        targets = np.full((rows, self.context), UNSCORED, dtype=np.int64)
        targets[:, -1:] = np.take_along_axis(inputs, position + 1, axis=1)
        return inputs, targets

    def shown(self, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The symbols."""
        return (inputs < self.symbols).astype(np.int64)

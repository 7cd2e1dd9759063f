"""`induction`: what followed the special token the first time follows it again (arXiv:2209.11895, arXiv:2212.14052)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.probe import UNSCORED, ProbeSpec
from ablate.tasks.random_stream import Draws


class InductionSpec(ProbeSpec):
    """Induction head: random symbols, with a special token at a random place and again at the end.

    The model must say which symbol followed the special token at its first place. Sizes are those of arXiv:2212.14052.
    """

    kind: Literal["induction"] = "induction"
    """Say what followed the special token the first time."""
    context: int = Field(default=30, ge=3, le=1_000_000)
    """Tokens in a sequence."""
    symbols: int = Field(default=20, ge=2)
    """Number of symbols; the special token is one id more."""

    @property
    def length(self) -> int:
        """See `TaskSpec.length`."""
        return self.context

    @property
    def vocabulary(self) -> int:
        """See `ProbeSpec.vocabulary`."""
        return self.symbols + 1

    @property
    def guesses(self) -> int:
        """Any symbol."""
        return self.symbols

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See `ProbeSpec.sequences`."""
        inputs = draws.integers(self.symbols, (rows, self.context))
        place = draws.integers(self.context - 2, (rows, 1))
        inputs[:, -1] = self.symbols
        np.put_along_axis(inputs, place, self.symbols, axis=1)
        targets = np.full((rows, self.context), UNSCORED, dtype=np.int64)
        targets[:, -1:] = np.take_along_axis(inputs, place + 1, axis=1)
        return inputs, targets

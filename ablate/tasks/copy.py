"""`copy`: repeat a random sequence of symbols after a separator (arXiv:2402.01032)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.probe import UNSCORED, ProbeSpec
from ablate.tasks.sampling import Draws


class CopySpec(ProbeSpec):
    """Copy `span` uniformly random symbols: the symbols, a separator, and the symbols again, which are predicted."""

    kind: Literal["copy"] = "copy"
    """Repeat a random sequence after a separator."""
    span: int = Field(default=32, ge=1, le=500_000)
    """Number of symbols to copy; an input has twice as many tokens."""
    symbols: int = Field(default=26, ge=2)
    """Number of distinct symbols; the separator is one more id."""

    @property
    def length(self) -> int:
        return 2 * self.span

    @property
    def vocabulary(self) -> int:
        return self.symbols + 1

    @property
    def guesses(self) -> int:
        """Any symbol."""
        return self.symbols

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        text = draws.integers(self.symbols, (rows, self.span))
        separator = np.full((rows, 1), self.symbols, dtype=np.int64)
        whole = np.concatenate([text, separator, text], axis=1)
        targets = whole[:, 1:].copy()
        targets[:, : self.span] = UNSCORED
        return whole[:, :-1].copy(), targets

"""`copy`: a random text, a separator, and the text again (arXiv:2402.01032)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.probe import UNSCORED, ProbeSpec
from ablate.tasks.random_stream import Draws


class CopySpec(ProbeSpec):
    """Copy a text: `span` symbols drawn alike, a separator, then the symbols again, which the model must say."""

    kind: Literal["copy"] = "copy"
    """Say a random text again after a separator."""
    span: int = Field(default=32, ge=1, le=500_000)
    """Symbols to copy; a sequence has twice as many tokens."""
    symbols: int = Field(default=26, ge=2)
    """Number of symbols; the separator is one id more."""

    @property
    def length(self) -> int:
        """See `TaskSpec.length`."""
        return 2 * self.span

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
        text = draws.integers(self.symbols, (rows, self.span))
        separator = np.full((rows, 1), self.symbols, dtype=np.int64)
        whole = np.concatenate([text, separator, text], axis=1)
        targets = whole[:, 1:].copy()
        targets[:, : self.span] = UNSCORED
        return whole[:, :-1].copy(), targets

"""`copy` and `palindrome`: repeat a random sequence of symbols after a separator, forwards or backwards.

Sources: copying, arXiv:2402.01032; palindromes, Kimi Linear (arXiv:2510.26692, section 5.1), whose generator is not
published.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.probe import UNSCORED, ProbeSpec
from ablate.tasks.sampling import Draws


class RepeatSpec(ProbeSpec):
    """`span` uniformly random symbols, a separator, and the symbols again in some order, which are predicted."""

    length_field: ClassVar[str] = "span"

    span: int = Field(default=32, ge=1, le=500_000)
    """Number of symbols to repeat; an input has twice as many tokens."""
    symbols: int = Field(default=26, ge=2)
    """Number of distinct symbols; the separator is one more id."""

    @abstractmethod
    def repeated(self, text: NDArray[np.int64]) -> NDArray[np.int64]:
        """What follows the separator, [rows, span], for symbols of that shape."""

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
        whole = np.concatenate([text, separator, self.repeated(text)], axis=1)
        targets = whole[:, 1:].copy()
        targets[:, : self.span] = UNSCORED
        return whole[:, :-1].copy(), targets

    def shown(self, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The symbols, each of which is repeated once."""
        return np.where(inputs == self.symbols, 0, np.where(np.arange(inputs.shape[1]) < self.span, 1, -1))


class CopySpec(RepeatSpec):
    """Copy `span` uniformly random symbols: the symbols, a separator, and the symbols again, which are predicted."""

    kind: Literal["copy"] = "copy"
    """Repeat a random sequence after a separator."""

    def repeated(self, text: NDArray[np.int64]) -> NDArray[np.int64]:
        return text


class PalindromeSpec(RepeatSpec):
    """Repeat uniformly random symbols in reverse: the symbols, a separator, and the symbols backwards."""

    kind: Literal["palindrome"] = "palindrome"
    """Repeat a random sequence backwards after a separator."""

    def repeated(self, text: NDArray[np.int64]) -> NDArray[np.int64]:
        return text[:, ::-1]

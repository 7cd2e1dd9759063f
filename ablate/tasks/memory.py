"""Tasks of memory over random symbols.

- `copy` and `palindrome`: repeat a sequence after a separator, forwards (arXiv:2402.01032) or backwards (Kimi Linear,
  arXiv:2510.26692, section 5.1, whose generator is not published).
- `recall`: multi-query associative recall (arXiv:2312.04927): key-value pairs, then queries for their values.
- `induction`: predict the token that followed an earlier special token (arXiv:2209.11895, arXiv:2212.14052).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks.probe import UNSCORED, Context, ContextProbeSpec, ProbeSpec, WithMark
from ablate.tasks.sampling import Draws


class RepeatSpec(WithMark, ProbeSpec):
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


class InductionSpec(WithMark, ContextProbeSpec):
    """Induction heads: random symbols with a special token at a random position and again at the end.

    The model predicts the symbol that followed the first special token. Default sizes are those of arXiv:2212.14052.
    """

    kind: Literal["induction"] = "induction"
    """Predict the symbol that followed an earlier special token."""
    context: Context = Field(default=30, ge=3)
    symbols: int = Field(default=20, ge=2)
    """Number of distinct symbols; the special token is one more id."""

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

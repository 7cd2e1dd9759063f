"""Tasks of MAD (arXiv:2403.17844) and a needle in a haystack: recall, memory and selection.

Defaults are MAD's basic settings, and sequences are generated as in its released code (athms/mad-lab), with several
queries in a sequence. Differences: training draws new sequences at every step instead of repeating 12,800, or 256 of
memorization; in-context recall does not force the last key to be a known one. MAD's compression, which needs an
encoder whose one vector a decoder reads, is not here.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks.probe import UNSCORED, Context, ContextProbeSpec, WithMark
from ablate.tasks.sampling import Draws


class InContextRecallSpec(ContextProbeSpec):
    """Pairs of a key and a value; each sequence has a random map of keys to values, and keys come again.

    Trained on the token after every position, measured at keys that the sequence has shown before. With `noise`, a pair
    is two random noise tokens instead. Ids: keys, values, noise.
    """

    kind: Literal["in_context_recall"] = "in_context_recall"
    """Predict the value that a key had earlier in the sequence; with noise between the pairs if wanted."""
    context: Context = Field(default=128, ge=4, multiple_of=2)
    symbols: int = Field(default=16, ge=4, multiple_of=2)
    """Keys and values, half of each."""
    noise: float = Field(default=0.0, ge=0, lt=1)
    """Probability that noise takes the place of a pair; 0.2 in MAD's noisy recall."""
    noise_symbols: int = Field(default=16, ge=1)
    """Number of distinct noise tokens; they have ids only if there is noise."""

    @property
    def vocabulary(self) -> int:
        return self.symbols + (self.noise_symbols if self.noise else 0)

    @property
    def guesses(self) -> int:
        """Any value."""
        return self.symbols // 2

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._drawn(draws, rows)[:2]

    def training_sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        inputs, _, following = self._drawn(draws, rows)
        return inputs, np.concatenate([inputs[:, 1:], following], axis=1)

    def shown(self, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The values."""
        return ((inputs >= self.symbols // 2) & (inputs < self.symbols)).astype(np.int64)

    def _drawn(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Inputs, targets at repeated keys, and the token after each input."""
        half, pairs = self.symbols // 2, self.context // 2 + 1
        keys, values = draws.integers(half, (rows, pairs)), half + draws.integers(half, (rows, half))
        noisy = draws.uniforms((rows, pairs)) < self.noise
        whole = np.stack([keys, np.take_along_axis(values, keys, axis=1)], axis=2)
        if self.noise:
            whole[noisy] = self.symbols + draws.integers(self.noise_symbols, (rows, pairs, 2))[noisy]
        shown, row = np.zeros((rows, half), dtype=bool), np.arange(rows)
        targets = np.full_like(whole, UNSCORED)
        for number in range(pairs):
            key, real = keys[:, number], ~noisy[:, number]
            targets[:, number, 0] = np.where(real & shown[row, key], whole[:, number, 1], UNSCORED)
            shown[row[real], key[real]] = True
        flat, scored = whole.reshape(rows, -1), targets.reshape(rows, -1)
        return flat[:, : self.context], scored[:, : self.context], flat[:, self.context : self.context + 1]


class FuzzyRecallSpec(WithMark, ContextProbeSpec):
    """In-context recall whose keys and values are motifs: one to several tokens, without repeats in a motif.

    Trained on the token after every position, with keys of 1 to `motif` tokens; measured with keys of exactly `motif`
    tokens, at the values of keys that the sequence has shown before. The last pair is always such a key. Short
    sequences are padded at their beginning. Ids: key tokens, value tokens, padding.
    """

    kind: Literal["fuzzy_recall"] = "fuzzy_recall"
    """Predict the value that a key had earlier in the sequence, where both have several tokens."""
    context: Context = Field(default=128, ge=4)
    symbols: int = Field(default=14, ge=4, multiple_of=2)
    """Key tokens and value tokens, half of each."""
    motif: int = Field(default=3, ge=1)
    """Maximum number of tokens of a key and of a value."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        most = min(self.context // 4, self.symbols // 2)
        if self.motif > most:
            rule = f"a context of {self.context} and {self.symbols} symbols have space for motifs of {most} tokens"
            raise refusal(("motif",), self.motif, rule, f"Set `motif: {most}`, or a longer context and more symbols.")
        return self

    @property
    def guesses(self) -> int:
        """Any value token."""
        return self.symbols // 2

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        whole, repeated = self._drawn(draws, rows, shortest=self.motif)
        return whole[:, :-1], np.where(repeated, whole, UNSCORED)[:, 1:]

    def training_sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        whole, _ = self._drawn(draws, rows, shortest=1)
        return whole[:, :-1], whole[:, 1:]

    def shown(self, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of values."""
        return ((inputs >= self.symbols // 2) & (inputs < self.symbols)).astype(np.int64)

    def _drawn(self, draws: Draws, rows: int, shortest: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Tokens, [rows, T + 1], and where they are values of keys shown before; keys have at least `shortest`."""
        half, most, room = self.symbols // 2, self.motif, self.context + 1
        pairs = room // (shortest + 1)
        key_sizes = shortest + draws.integers(most - shortest + 1, (rows, pairs))
        value_sizes = 1 + draws.integers(most, (rows, pairs))
        keys = draws.subsets(half, most, rows * pairs).reshape(rows, pairs, most)
        values = half + draws.subsets(half, most, rows * pairs).reshape(rows, pairs, most)
        asked = draws.uniforms(rows)
        whole = np.full((rows, room), self.symbols, dtype=np.int64)
        repeated = np.zeros((rows, room), dtype=bool)
        for row in range(rows):
            shown = dict[tuple[int, ...], list[int]]()
            line, marks = list[int](), list[bool]()
            drawn = zip(keys[row].tolist(), key_sizes[row], values[row].tolist(), value_sizes[row], strict=True)
            for key, key_size, value, value_size in drawn:
                if len(line) + 4 * most > room:
                    break  # no further pair fits
                known = tuple(key[:key_size]) in shown
                answer = shown.setdefault(tuple(key[:key_size]), value[:value_size])
                line += [*key[:key_size], *answer]
                marks += [False] * key_size + [known] * len(answer)
            last = list(shown)[int(asked[row] * len(shown))]
            line += [*last, *shown[last]]
            marks += [False] * len(last) + [True] * len(shown[last])
            whole[row, room - len(line) :], repeated[row, room - len(line) :] = line, marks
        return whole, repeated


class SelectiveCopySpec(ContextProbeSpec):
    """Copy the symbols that stand scattered between blanks, in their order, after a token that asks for them.

    Every blank is put before a symbol chosen uniformly, so the last symbol stands directly before the token that asks.
    The copy is predicted at as many blanks after it. Ids: symbols, blank, copy.
    """

    kind: Literal["selective_copy"] = "selective_copy"
    """Copy scattered symbols in their order, without the blanks between them."""
    context: Context = Field(default=256, ge=4)
    copied: int = Field(default=16, ge=1)
    """Number of symbols to copy."""
    symbols: int = Field(default=14, ge=2)
    """Number of distinct symbols."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if 2 * self.copied >= self.context:
            rule = f"every symbol needs two tokens of the context, which is {self.context}, besides one"
            most = (self.context - 1) // 2
            raise refusal(("copied",), self.copied, rule, f"Set `copied: {most}`, or a longer context.")
        return self

    @property
    def vocabulary(self) -> int:
        return self.symbols + 2

    @property
    def guesses(self) -> int:
        """Any symbol."""
        return self.symbols

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start = self.context - self.copied
        text = draws.integers(self.symbols, (rows, self.copied))
        before = draws.integers(self.copied, (rows, start - 1 - self.copied))
        blanks = np.zeros((rows, self.copied), dtype=np.int64)
        np.add.at(blanks, (np.arange(rows)[:, None], before), 1)
        places = np.arange(self.copied) + blanks.cumsum(axis=1)
        inputs = np.full((rows, self.context), self.symbols, dtype=np.int64)
        np.put_along_axis(inputs, places, text, axis=1)
        inputs[:, start - 1] = self.symbols + 1
        targets = np.full((rows, self.context), UNSCORED, dtype=np.int64)
        targets[:, start:] = text
        return inputs, targets

    def shown(self, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The symbols."""
        return (inputs < self.symbols).astype(np.int64)


class MemorizationSpec(WithMark, ContextProbeSpec):
    """Keys whose values are the same in all sequences and never shown: a model must learn them by heart.

    The map from keys to values is one-to-one. Every key is followed by a question, at which its value is predicted.
    Ids: keys, values, question.
    """

    kind: Literal["memorization"] = "memorization"
    """Say the value of a key that only training shows."""
    context: Context = Field(default=32, ge=2, multiple_of=2)
    symbols: int = Field(default=254, ge=4, multiple_of=2)
    """Keys and values, half of each."""

    @property
    def guesses(self) -> int:
        """Any value."""
        return self.symbols // 2

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        half = self.symbols // 2
        value_of = half + Draws(f"memorization/{self.symbols}").subsets(half, half, 1)[0]
        keys = draws.integers(half, (rows, self.context // 2))
        inputs = np.full((rows, self.context), self.symbols, dtype=np.int64)
        targets = np.full((rows, self.context), UNSCORED, dtype=np.int64)
        inputs[:, ::2], targets[:, 1::2] = keys, value_of[keys]
        return inputs, targets


class NeedleSpec(ContextProbeSpec):
    """Needles in a haystack: pairs of a key and a value among random tokens; the last token asks for one of the keys.

    Keys, and values, are distinct within a sequence. Ids: hay, keys, values, as many of each.
    """

    kind: Literal["needle"] = "needle"
    """Find the value of a key among random tokens."""
    context: Context = Field(default=128, ge=4)
    needles: int = Field(default=4, ge=1)
    """Number of pairs, of which one is asked for."""
    symbols: int = Field(default=32, ge=2)
    """Number of distinct tokens of hay, of keys and of values."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        most = min((self.context - 1) // 2, self.symbols)
        if self.needles > most:
            rule = f"a context of {self.context} and {self.symbols} symbols hold {most} pairs"
            raise refusal(("needles",), self.needles, rule, f"Set `needles: {most}`, or a longer context.")
        return self

    @property
    def vocabulary(self) -> int:
        return 3 * self.symbols

    @property
    def guesses(self) -> int:
        """The values in the sequence."""
        return self.needles

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        keys = self.symbols + draws.subsets(self.symbols, self.needles, rows)
        values = 2 * self.symbols + draws.subsets(self.symbols, self.needles, rows)
        places = 2 * draws.subsets((self.context - 1) // 2, self.needles, rows)
        inputs = draws.integers(self.symbols, (rows, self.context))
        np.put_along_axis(inputs, places, keys, axis=1)
        np.put_along_axis(inputs, places + 1, values, axis=1)
        inputs[:, -1] = keys[:, 0]
        targets = np.full((rows, self.context), UNSCORED, dtype=np.int64)
        targets[:, -1] = values[:, 0]
        return inputs, targets

"""`chars` and `words`: units of text that the training documents hold, looked up in a table."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.tokenizers import FILE, Tokenizer, TokenizerSpec

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""What the id of everything that is not in the table decodes to."""


class CharactersSpec(TokenizerSpec):
    """Characters that occur in the training documents, in the order of Unicode; then the unknown, then the end."""

    kind: Literal["chars"] = "chars"
    """Each character of the training documents is a token; others are one unknown token."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Collect the characters."""
        known: set[str] = set()
        for text in texts:
            known.update(text)
        return CharacterTokenizer(sorted(known))

    def load(self, folder: Path) -> Tokenizer:
        """Read the characters."""
        return CharacterTokenizer(_units(folder))


class WordsSpec(TokenizerSpec):
    """The most frequent words between white space; then the unknown, then the end. White space is lost."""

    kind: Literal["words"] = "words"
    """The most frequent words of the training documents are tokens; others are one unknown token."""
    vocab_size: int = Field(ge=3, le=10_000_000)
    """Number of ids at most: words, the unknown and the end of a document."""
    lowercase: bool = False
    """Whether capital letters become small."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Count the words; of words that occur equally often, the first in the order of Unicode is kept."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text.lower().split() if self.lowercase else text.split())
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return WordTokenizer(ranked[: self.vocab_size - 2], self.lowercase)

    def load(self, folder: Path) -> Tokenizer:
        """Read the words."""
        return WordTokenizer(_units(folder), self.lowercase)


class LookupTokenizer(Tokenizer):
    """Ids are places in a list of units; the id after the last unit is the unknown.

    Args:
        units: Characters or words.
        extra_bytes: Bytes of white space that each unit stands for besides its own.
    """

    def __init__(self, units: Sequence[str], extra_bytes: int) -> None:
        self.units = list(units)
        self.vocabulary = len(self.units) + 2
        self._ids = {unit: index for index, unit in enumerate(self.units)}
        self.token_bytes = np.array([*(len(unit.encode()) + extra_bytes for unit in self.units), 0, 0], dtype=np.int64)

    @abstractmethod
    def split(self, text: str) -> Sequence[str]:
        """The units of a text."""

    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text."""
        unknown, ids = len(self.units), self._ids
        for text in texts:
            units = self.split(text)
            yield np.fromiter((ids.get(unit, unknown) for unit in units), dtype=np.int64, count=len(units))

    def save(self, folder: Path) -> None:
        """Write the units."""
        (folder / FILE).write_text(json.dumps({"units": self.units}, ensure_ascii=False), encoding="utf-8")

    def named(self, ids: Sequence[int] | NDArray[Any]) -> list[str]:
        """The units of ids."""
        known = [*self.units, UNKNOWN]
        return [known[int(token)] for token in ids]


class CharacterTokenizer(LookupTokenizer):
    """See `CharactersSpec`."""

    def __init__(self, characters: Sequence[str]) -> None:
        super().__init__(characters, extra_bytes=0)

    def split(self, text: str) -> Sequence[str]:
        """The characters."""
        return text

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text; U+FFFD for an unknown character."""
        return "".join(self.named(ids))


class WordTokenizer(LookupTokenizer):
    """See `WordsSpec`."""

    def __init__(self, words: Sequence[str], lowercase: bool) -> None:
        super().__init__(words, extra_bytes=1)
        self.lowercase = lowercase

    def split(self, text: str) -> Sequence[str]:
        """The words."""
        return text.split()

    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text."""
        return super().encode_all(text.lower() if self.lowercase else text for text in texts)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The words with one space between them; U+FFFD for an unknown word."""
        return " ".join(self.named(ids))


def _units(folder: Path) -> list[str]:
    units: list[str] = json.loads((folder / FILE).read_text(encoding="utf-8"))["units"]
    return units

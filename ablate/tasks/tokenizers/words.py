"""`words`: the most frequent words of the training documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.tokenizers import LookupTokenizer, Tokenizer, TokenizerSpec, units


class WordsSpec(TokenizerSpec):
    """The most frequent words between white space, then the unknown token and the end. White space is lost."""

    kind: Literal["words"] = "words"
    """The most frequent words of the training documents are tokens; all other words are one unknown token."""
    source = "common practice"
    divides = "after any line"
    vocab_size: int = Field(ge=3, le=10_000_000)
    """Maximum number of ids: words, the unknown token and the end of a document."""
    lowercase: bool = False
    """Whether to lowercase the text."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Count the words; ties are broken by Unicode order."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text.lower().split() if self.lowercase else text.split())
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return WordTokenizer(ranked[: self.vocab_size - 2], self.lowercase)

    def load(self, folder: Path) -> Tokenizer:
        """Read the words."""
        return WordTokenizer(units(folder), self.lowercase)


class WordTokenizer(LookupTokenizer):
    """The tokenizer of `WordsSpec`."""

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
        """The words separated by spaces, with U+FFFD for unknown words."""
        return " ".join(self.named(ids))

"""`words`: the most frequent words of the training documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.tokenizers import Tokenizer, TokenizerSpec
from ablate.tasks.tokenizers.lookup import LookupTokenizer, units


class WordsSpec(TokenizerSpec):
    """The most frequent words between white space; then the unknown, then the end. White space is lost."""

    kind: Literal["words"] = "words"
    """The most frequent words of the training documents are tokens; others are one unknown token."""
    source = "common practice"
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
        return WordTokenizer(units(folder), self.lowercase)


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

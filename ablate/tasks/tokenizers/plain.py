"""Tokenizers without a library: `bytes`, `chars` and `words`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.tokenizers import FILE, LookupTokenizer, Tokenizer, TokenizerSpec, units


class BytesSpec(TokenizerSpec):
    """UTF-8 bytes: ids 0 to 255, and 256 for the end of a document. Needs no training."""

    kind: Literal["bytes"] = "bytes"
    """Each UTF-8 byte is a token; 257 ids."""
    source = "RFC 3629"
    divides = "after any line"

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Create the byte tokenizer; `texts` is ignored."""
        return ByteTokenizer()

    def load(self, folder: Path) -> Tokenizer:
        """Create the byte tokenizer; no file is read."""
        return ByteTokenizer()


class ByteTokenizer(Tokenizer):
    """The tokenizer of `BytesSpec`."""

    def __init__(self) -> None:
        self.vocabulary = 257
        self.token_bytes = np.ones(257, dtype=np.int64)
        self.token_bytes[self.end_of_document] = 0

    @property
    def divides_at_lines(self) -> bool:
        return True

    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The bytes of each text."""
        for text in texts:
            yield np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of bytes."""
        return bytes(int(token) for token in ids).decode(errors="replace")

    def save(self, folder: Path) -> None:
        """Write the kind alone."""
        (folder / FILE).write_text(json.dumps({"kind": "bytes"}))


class CharactersSpec(TokenizerSpec):
    """Characters of the training documents in Unicode order, then the unknown token and the end of a document."""

    kind: Literal["chars"] = "chars"
    """Each character of the training documents is a token; all other characters are one unknown token."""
    source = "common practice"
    divides = "after any line"

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Collect the characters."""
        known: set[str] = set()
        for text in texts:
            known.update(text)
        return CharacterTokenizer(sorted(known))

    def load(self, folder: Path) -> Tokenizer:
        """Read the characters."""
        return CharacterTokenizer(units(folder))


class CharacterTokenizer(LookupTokenizer):
    """The tokenizer of `CharactersSpec`."""

    def __init__(self, characters: Sequence[str]) -> None:
        super().__init__(characters, extra_bytes=0)

    def split(self, text: str) -> Sequence[str]:
        """The characters."""
        return text

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text, with U+FFFD for unknown characters."""
        return "".join(self.named(ids))


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

"""Tokenizers, one file each in this folder: text to token ids and back. The last id ends a document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ablate.spec.base import Family, Kinded

TOKENIZERS = Family("tokenizer", package="ablate.tasks.tokenizers", entry_points="ablate.tokenizers")

FILE = "tokenizer.json"
"""Name of the file that holds a tokenizer, in the folder of the data prepared with it."""


class Again(Iterable[str]):
    """Texts that are read anew whenever they are iterated over, so that they need not be held.

    Args:
        read: Begins to read them.
    """

    def __init__(self, read: Callable[[], Iterator[str]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[str]:
        """Begin again."""
        return self._read()


class Tokenizer(ABC):
    """Text to ids and back.

    Attributes:
        vocabulary: Number of ids.
        token_bytes: UTF-8 bytes that each id stands for, int64 [vocabulary]; 0 for the end of a document and for what
            is unknown.
    """

    vocabulary: int
    token_bytes: NDArray[np.int64]

    @property
    def end_of_document(self) -> int:
        """The id that ends a document. No text encodes to it."""
        return self.vocabulary - 1

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of one text, without an end of document."""
        return next(self.encode_all([text]))

    @abstractmethod
    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text, faster than one by one; few texts are held at once."""

    @abstractmethod
    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids without an end of document; what cannot be told becomes U+FFFD."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `TokenizerSpec.load` needs."""


class TokenizerSpec(Kinded):
    """How text becomes tokens. A final subclass adds `kind`, its fields, `train`, `load` and `source`."""

    family = TOKENIZERS
    source: ClassVar[str]
    """Paper or library."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """Paper or library."""
        return {"source": cls.source}

    @abstractmethod
    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Learn from texts; the same texts in the same order give the same tokenizer.

        Raises:
            DataError: The texts are too few for the vocabulary.
        """

    @abstractmethod
    def load(self, folder: Path) -> Tokenizer:
        """A tokenizer that was saved."""

    def identity(self) -> Any:
        """Plain data that two tokenizers share if the same texts make them the same.

        Raises:
            DataError: A file that the tokenizer is made from is missing.
        """
        return self.canonical()

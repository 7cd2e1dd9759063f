"""Tokenizers, one file each in this folder. An id marks the end of a document, the last one if nothing else is said."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ablate.spec.base import Family, PublishedKind

TOKENIZERS = Family("tokenizer", package="ablate.tasks.tokenizers", entry_points="ablate.tokenizers")

LINE_END = re.compile(r"(?<=\S)\n(?=\S)")
"""A line end between visible characters, after which a long text is divided; see `Tokenizer.divides_at_lines`."""

FILE = "tokenizer.json"
"""Name of the tokenizer file in the folder of prepared data."""


class ReiterableTexts(Iterable[str]):
    """Texts that are read again at each iteration, so that they need not be kept in memory.

    Args:
        read: Returns a new iterator over the texts.
    """

    def __init__(self, read: Callable[[], Iterator[str]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[str]:
        """Start a new iteration."""
        return self._read()


class Tokenizer(ABC):
    """Converts text to ids and back.

    Attributes:
        vocabulary: Number of ids.
        token_bytes: Number of UTF-8 bytes that each id encodes, int64 [vocabulary]; 0 for the end of a document and for
            unknown tokens.
    """

    vocabulary: int
    token_bytes: NDArray[np.int64]

    @property
    def end_of_document(self) -> int:
        """The id of the end of a document, the last one unless a subclass says another. No text encodes to it."""
        return self.vocabulary - 1

    @property
    def divides_at_lines(self) -> bool:
        """Whether the ids of a text are those of its parts, one after the other, if it is divided after a `LINE_END`.

        Otherwise a long text, such as a corpus of one document, is encoded as a whole, in memory.
        """
        return False

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a text, without an end of document."""
        return next(self.encode_all([text]))

    @abstractmethod
    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text, encoded in batches for speed; only one batch is in memory at a time."""

    @abstractmethod
    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids without an end of document; undecodable ids become U+FFFD."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the files that `TokenizerSpec.load` reads."""


class TokenizerSpec(PublishedKind):
    """Base class of tokenizers. A final subclass adds `kind`, its fields, `train`, `load` and `source`."""

    family = TOKENIZERS
    divides: ClassVar[Literal["after any line", "between visible characters", "unknown"]] = "unknown"
    """After which line ends a text can be divided so that its ids are those of its parts, whatever the training."""

    @abstractmethod
    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Train on texts; the same texts in the same order give the same tokenizer.

        Raises:
            DataError: The texts are too few for the vocabulary.
        """

    @abstractmethod
    def load(self, folder: Path) -> Tokenizer:
        """Load a saved tokenizer."""

    def identity(self) -> Any:
        """JSON data that is equal for two specs if training on equal texts gives equal tokenizers.

        Raises:
            DataError: A file that the tokenizer reads is missing.
        """
        return self.canonical()

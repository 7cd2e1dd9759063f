"""Tokenizers, one file each in this folder, and the base class of those that look units of text up in a table.

An id marks the end of a document, the last one if nothing else is said.
"""

from __future__ import annotations

import json
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


UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""Text to which the unknown id decodes."""


class LookupTokenizer(Tokenizer):
    """Ids are indices in a list of units; the next id is the unknown token.

    Args:
        units: Characters or words.
        extra_bytes: Number of bytes of white space that each unit encodes in addition to its own.
    """

    def __init__(self, units: Sequence[str], extra_bytes: int) -> None:
        self.units = list(units)
        self.vocabulary = len(self.units) + 2
        self._ids = {unit: index for index, unit in enumerate(self.units)}
        self.token_bytes = np.array([*(len(unit.encode()) + extra_bytes for unit in self.units), 0, 0], dtype=np.int64)

    @property
    def divides_at_lines(self) -> bool:
        """Characters and words end where a line does."""
        return True

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


def units(folder: Path) -> list[str]:
    """The units that `LookupTokenizer.save` wrote."""
    saved: list[str] = json.loads((folder / FILE).read_text(encoding="utf-8"))["units"]
    return saved

"""`LookupTokenizer`: base class of `chars` and `words`, which look up units of text in a table."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.tasks.tokenizers import FILE, Tokenizer

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

"""`chars`: the characters of the training documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from ablate.tasks.tokenizers import LookupTokenizer, Tokenizer, TokenizerSpec, units


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

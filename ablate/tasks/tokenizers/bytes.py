"""`bytes`: UTF-8 bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ablate.tasks.tokenizers import FILE, Tokenizer, TokenizerSpec


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

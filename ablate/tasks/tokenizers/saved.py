"""`saved`: a tokenizer saved by the `tokenizers` library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ablate.errors import DataError
from ablate.locations import typed_path
from ablate.tasks.tokenizers import FILE, Tokenizer, TokenizerSpec
from ablate.tasks.tokenizers.subwords import read_saved


class SavedSpec(TokenizerSpec):
    """A tokenizer saved by the `tokenizers` library, with an added end-of-document token."""

    kind: Literal["saved"] = "saved"
    """A saved `tokenizer.json`."""
    source = "the tokenizers library"
    file: str
    """Path of the `tokenizer.json`, relative to the working folder."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read the file; `texts` is ignored."""
        return read_saved(typed_path(self.file, DataError))

    def load(self, folder: Path) -> Tokenizer:
        """Read the copy that was stored with the data."""
        return read_saved(folder / FILE)

    def identity(self) -> Any:
        """The content of the file."""
        path = typed_path(self.file, DataError)
        try:
            return {"kind": "saved", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
        except OSError as error:
            raise DataError(
                f"the tokenizer cannot be read ({error.strerror})",
                where=str(path),
                remedy="Check the path in `tokenizer.file`.",
            ) from None

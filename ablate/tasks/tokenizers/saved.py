"""`saved`: a tokenizer saved by the `tokenizers` library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ablate.errors import DataError
from ablate.locations import check_regular, typed_path
from ablate.tasks.tokenizers import FILE, Tokenizer, TokenizerSpec
from ablate.tasks.tokenizers.subwords import read_saved


class SavedSpec(TokenizerSpec):
    """A tokenizer saved by the `tokenizers` library. One id is added for the end of a document, unless `end` names it.

    A model of `transformers` has a row of its embedding for each id of its own tokenizer, so a space that starts from
    its weights names `end`.
    """

    kind: Literal["saved"] = "saved"
    """A saved `tokenizer.json`."""
    source = "the tokenizers library"
    file: str
    """Path of the `tokenizer.json`, relative to the working folder."""
    end: str = ""
    """A token of the file that ends a document, such as `<|endoftext|>` or `[SEP]`; in a text it is read as text.
    Unless set, an id is added."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read the file; `texts` is ignored."""
        return read_saved(typed_path(self.file, DataError), self.end)

    def load(self, folder: Path) -> Tokenizer:
        """Read the copy that was stored with the data."""
        return read_saved(folder / FILE, self.end)

    def identity(self) -> Any:
        """The content of the file."""
        path = typed_path(self.file, DataError)
        try:
            if path.exists():
                check_regular(path, DataError)
            content = path.read_bytes()
            # Data of other vocabularies was once prepared with other numbers of bytes of their tokens.
            known = b'"ByteLevel"' in content or b'"WordPiece"' in content
            return {
                "kind": "saved",
                "content": hashlib.sha256(content).hexdigest(),
                **({"end": self.end} if self.end else {}),
                **({} if known else {"bytes": "as decoded"}),
            }
        except OSError as error:
            raise DataError(
                f"the tokenizer cannot be read ({error.strerror})",
                where=str(path),
                remedy="Check the path in `tokenizer.file`.",
            ) from None

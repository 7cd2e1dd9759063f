"""`SubwordTokenizer`: a model of the `tokenizers` library, for `bpe`, `wordpiece` and `saved`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.tasks.tokenizers import FILE, Tokenizer

if TYPE_CHECKING:
    import tokenizers

_TEXTS_AT_ONCE = 256
_CHARACTERS_AT_ONCE = 1 << 22
_LONG_TEXT = 1 << 20

UNKNOWN = "[UNK]"
"""The token of a piece that is not in the vocabulary."""


class SubwordTokenizer(Tokenizer):
    """A model of the library. Its special tokens are none of ours: only a saved model has any that a text can name."""

    def __init__(self, model: tokenizers.Tokenizer) -> None:
        self._model = model
        ids = model.get_vocab(with_added_tokens=True)
        self.vocabulary = max(ids.values()) + 2
        self.token_bytes = np.zeros(self.vocabulary, dtype=np.int64)
        byte_level = type(model.decoder).__name__ == "ByteLevel"
        for token, index in ids.items():
            # A byte-level token is written with one character for each byte; another by what it decodes to.
            known = 0 if token == UNKNOWN else len(token.removeprefix("##").encode())
            self.token_bytes[index] = len(token) if byte_level else known

    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text."""
        for some in _handfuls(texts):
            pieces = [_pieces(text) for text in some]
            flat = [piece for text in pieces for piece in text]
            encodings = iter(self._model.encode_batch_fast(flat, add_special_tokens=False))
            for text in pieces:
                yield np.concatenate([np.array(next(encodings).ids, dtype=np.int64) for _ in text])

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids."""
        return str(self._model.decode([int(token) for token in ids], skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        """Write the model as the library writes it."""
        (folder / FILE).write_text(self._model.to_str(), encoding="utf-8")


def trained(model: tokenizers.Tokenizer, texts: Iterable[str], trainer: Any) -> tokenizers.Tokenizer:
    """The model after training on texts."""
    model.train_from_iterator((piece for text in texts for piece in _pieces(text)), trainer)
    return model


def filled(model: tokenizers.Tokenizer, size: int) -> Tokenizer:
    """The tokenizer of a trained model, which must have exactly `size` ids.

    Raises:
        DataError: The training documents give fewer, or need more.
    """
    tokenizer = SubwordTokenizer(model)
    if tokenizer.vocabulary < size:
        raise DataError(
            "the training documents are too few for this vocabulary",
            where="tokenizer.vocab_size",
            expected=f"at most {tokenizer.vocabulary:,}",
            got=f"{size:,}",
            remedy="Lower `vocab_size`, use the tokenizer `bytes`, or give more text.",
        )
    if tokenizer.vocabulary > size:
        raise DataError(
            "every character of the training documents needs a token",
            where="tokenizer.vocab_size",
            expected=f"at least {tokenizer.vocabulary:,}",
            got=f"{size:,}",
            remedy="Raise `vocab_size`, or use the tokenizer `bytes`.",
        )
    return tokenizer


def read_saved(path: Path) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        DataError: The file is missing, or is no saved tokenizer.
    """
    from tokenizers import Tokenizer as Model

    try:
        model = Model.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises plain exceptions
        raise DataError(
            f"this is no saved tokenizer ({error})",
            where=str(path),
            expected="a `tokenizer.json` of the `tokenizers` library",
        ) from None
    model.no_padding()
    model.no_truncation()
    return SubwordTokenizer(model)


def _handfuls(texts: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if len(some) == _TEXTS_AT_ONCE or size >= _CHARACTERS_AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _pieces(text: str) -> list[str]:
    """A long text in pieces that are tokenized as they would be within it: cut after line ends between visible
    characters. The library needs a hundred bytes of memory for each token."""
    pieces: list[str] = []
    start = 0
    while len(text) - start > _LONG_TEXT:
        cut = re.compile(r"(?<=\S)\n(?=\S)").search(text, start + _LONG_TEXT)
        if cut is None:
            break
        pieces.append(text[start : cut.end()])
        start = cut.end()
    return [*pieces, text[start:]]

"""Tokenizers: text to token ids and back without loss. The last id of every vocabulary ends a document."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.spec.base import Family, Kinded

if TYPE_CHECKING:
    import tokenizers

TOKENIZERS = Family("tokenizer")

FILE = "tokenizer.json"
"""Name of the file that holds a tokenizer, in the folder of the data prepared with it."""

_TEXTS_AT_ONCE = 256


class Tokenizer(ABC):
    """Text to ids and back; `decode(encode(text)) == text` for every text without lone surrogates.

    Attributes:
        vocabulary: Number of ids.
        token_bytes: UTF-8 bytes that each id stands for, int64 [vocabulary]; 0 for the end of a document.
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
    def encode_all(self, texts: Sequence[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text, faster than one by one."""

    @abstractmethod
    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids without an end of document; ids that cut a character in two give U+FFFD."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `TokenizerSpec.load` needs."""


class TokenizerSpec(Kinded):
    """How text becomes tokens."""

    family = TOKENIZERS

    @abstractmethod
    def train(self, texts: Sequence[str]) -> Tokenizer:
        """Learn from texts; the same texts in the same order give the same tokenizer.

        Raises:
            DataError: The texts are too few for the vocabulary.
        """

    @abstractmethod
    def load(self, folder: Path) -> Tokenizer:
        """A tokenizer that was saved."""


class BytesSpec(TokenizerSpec):
    """The bytes of UTF-8: ids 0 to 255 and 256 for the end of a document. Nothing to learn."""

    kind: Literal["bytes"] = "bytes"
    """Each byte of UTF-8 is a token; 257 ids."""

    def train(self, texts: Sequence[str]) -> Tokenizer:
        """The one byte tokenizer; the texts make no difference."""
        return ByteTokenizer()

    def load(self, folder: Path) -> Tokenizer:
        """The one byte tokenizer; nothing is read."""
        return ByteTokenizer()


class ByteTokenizer(Tokenizer):
    """See `BytesSpec`."""

    def __init__(self) -> None:
        self.vocabulary = 257
        self.token_bytes = np.ones(257, dtype=np.int64)
        self.token_bytes[self.end_of_document] = 0

    def encode_all(self, texts: Sequence[str]) -> Iterator[NDArray[np.int64]]:
        """The bytes of each text."""
        for text in texts:
            yield np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of bytes."""
        return bytes(int(token) for token in ids).decode(errors="replace")

    def save(self, folder: Path) -> None:
        """Write the kind alone."""
        (folder / FILE).write_text(json.dumps({"kind": "bytes"}))


class BpeSpec(TokenizerSpec):
    """Byte-level byte pair encoding, learnt from all training documents by the `tokenizers` library."""

    kind: Literal["bpe"] = "bpe"
    """Byte-level byte pair encoding, learnt from the training documents."""
    vocab_size: int = Field(ge=257, le=1_000_000)
    """Number of ids: 256 bytes, the pairs that were merged, and the end of a document."""

    def train(self, texts: Sequence[str]) -> Tokenizer:
        """Merge the most frequent pair until the vocabulary is full; a pair must occur at least twice."""
        from tokenizers import Tokenizer as Model
        from tokenizers import decoders, models, pre_tokenizers, trainers

        model = Model(models.BPE())
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size - 1,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
        model.train_from_iterator(texts, trainer)
        tokenizer = BpeTokenizer(model)
        if tokenizer.vocabulary != self.vocab_size:
            raise DataError(
                "the training documents are too few for this vocabulary",
                where="tokenizer.vocab_size",
                expected=f"at most {tokenizer.vocabulary:,}",
                got=f"{self.vocab_size:,}",
                remedy="Lower `vocab_size`, use the tokenizer `bytes`, or give more text.",
            )
        return tokenizer

    def load(self, folder: Path) -> Tokenizer:
        """Read the merges."""
        from tokenizers import Tokenizer as Model

        return BpeTokenizer(Model.from_str((folder / FILE).read_text(encoding="utf-8")))


class BpeTokenizer(Tokenizer):
    """See `BpeSpec`.

    Args:
        model: A byte-level model without special tokens, so that no text can be taken for one.
    """

    def __init__(self, model: tokenizers.Tokenizer) -> None:
        self._model = model
        self.vocabulary = model.get_vocab_size() + 1
        self.token_bytes = np.zeros(self.vocabulary, dtype=np.int64)
        for token, index in model.get_vocab().items():
            self.token_bytes[index] = len(token)  # a byte-level token is written with one character for each byte

    def encode_all(self, texts: Sequence[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text."""
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = list(texts[start : start + _TEXTS_AT_ONCE])
            for encoding in self._model.encode_batch_fast(some, add_special_tokens=False):
                yield np.array(encoding.ids, dtype=np.int64)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids."""
        return str(self._model.decode([int(token) for token in ids], skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        """Write the model as the library writes it."""
        (folder / FILE).write_text(self._model.to_str(), encoding="utf-8")

"""`bpe`, `wordpiece` and `saved`: what the `tokenizers` library learns, or reads from a `tokenizer.json`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.tasks.tokenizers import FILE, Tokenizer, TokenizerSpec

if TYPE_CHECKING:
    import tokenizers

_TEXTS_AT_ONCE = 256
_CHARACTERS_AT_ONCE = 1 << 22
_LONG_TEXT = 1 << 20

_UNKNOWN = "[UNK]"


class BpeSpec(TokenizerSpec):
    """Byte-level byte pair encoding, learnt from all training documents by the `tokenizers` library."""

    kind: Literal["bpe"] = "bpe"
    """Byte-level byte pair encoding, learnt from the training documents."""
    vocab_size: int = Field(ge=257, le=1_000_000)
    """Number of ids: 256 bytes, the pairs that were merged, and the end of a document."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
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
        return _filled(_trained(model, texts, trainer), self.vocab_size)

    def load(self, folder: Path) -> Tokenizer:
        """Read the merges."""
        return _read(folder / FILE)


class WordPieceSpec(TokenizerSpec):
    """WordPiece as in BERT, learnt from all training documents by the `tokenizers` library. White space is lost."""

    kind: Literal["wordpiece"] = "wordpiece"
    """Pieces of words as in BERT, learnt from the training documents."""
    vocab_size: int = Field(ge=3, le=1_000_000)
    """Number of ids: pieces, the unknown and the end of a document."""
    lowercase: bool = True
    """Whether capital letters become small and accents are dropped."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Join the most frequent pair until the vocabulary is full; a pair must occur at least twice."""
        from tokenizers import Tokenizer as Model
        from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

        if iter(texts) is texts:
            texts = list(texts)
        normalizer = normalizers.BertNormalizer(lowercase=self.lowercase, strip_accents=self.lowercase)
        known: set[str] = set()
        for text in texts:
            known.update(normalizer.normalize_str(text))
        characters = sorted(character for character in known if not character.isspace())
        # Left to itself the library numbers the pieces within words in the order of a hash table with a random seed.
        within = [f"##{character}" for character in characters]
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.vocab_size - 1,
            min_frequency=2,
            show_progress=False,
            special_tokens=[_UNKNOWN, *within],
            initial_alphabet=characters,
            limit_alphabet=len(characters),
        )

        def model(pieces: dict[str, int] | None = None) -> tokenizers.Tokenizer:
            made = Model(models.WordPiece(pieces, unk_token=_UNKNOWN))
            made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
            made.decoder = decoders.WordPiece()
            return made

        # A fresh model: that which was trained takes the pieces within words for special tokens.
        return _filled(model(_trained(model(), texts, trainer).get_vocab()), self.vocab_size)

    def load(self, folder: Path) -> Tokenizer:
        """Read the pieces."""
        return _read(folder / FILE)


class SavedSpec(TokenizerSpec):
    """A tokenizer that the `tokenizers` library saved; an end of document is added to its vocabulary."""

    kind: Literal["saved"] = "saved"
    """A saved `tokenizer.json`."""
    file: str
    """Path of the `tokenizer.json`; a relative path is below the working folder."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read the file; the texts make no difference."""
        return _read(Path(self.file).expanduser())

    def load(self, folder: Path) -> Tokenizer:
        """Read the copy that was kept with the data."""
        return _read(folder / FILE)

    def identity(self) -> Any:
        """The content of the file."""
        path = Path(self.file).expanduser()
        try:
            return {"kind": "saved", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
        except OSError as error:
            raise DataError(
                f"the tokenizer cannot be read ({error.strerror})",
                where=str(path),
                remedy="Check the path in `tokenizer.file`.",
            ) from None


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
            known = 0 if token == _UNKNOWN else len(token.removeprefix("##").encode())
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


def _trained(model: tokenizers.Tokenizer, texts: Iterable[str], trainer: Any) -> tokenizers.Tokenizer:
    model.train_from_iterator((piece for text in texts for piece in _pieces(text)), trainer)
    return model


def _filled(model: tokenizers.Tokenizer, size: int) -> Tokenizer:
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


def _read(path: Path) -> Tokenizer:
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

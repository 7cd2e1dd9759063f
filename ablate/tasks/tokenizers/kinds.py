"""Tokenizers of the `tokenizers` library: `bpe`, `wordpiece` and `saved`; without it: `bytes`, `chars` and `words`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.locations import check_regular, typed_path
from ablate.tasks.tokenizers import FILE, LookupTokenizer, Tokenizer, TokenizerSpec, units
from ablate.tasks.tokenizers.subwords import UNKNOWN, check_size, read_saved, train_on

if TYPE_CHECKING:
    import tokenizers


class BpeSpec(TokenizerSpec):
    """Byte-level byte pair encoding, trained on all training documents with the `tokenizers` library."""

    kind: Literal["bpe"] = "bpe"
    """Byte-level byte pair encoding, trained on the training documents."""
    source = "arXiv:1508.07909, on bytes as in GPT-2; the tokenizers library"
    divides = "between visible characters"
    vocab_size: int = Field(ge=257, le=1_000_000)
    """Number of ids: 256 bytes, merged pairs, and the end of a document."""

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
        return check_size(train_on(model, texts, trainer), self.vocab_size)

    def load(self, folder: Path) -> Tokenizer:
        """Read the merges."""
        return read_saved(folder / FILE)


class WordPieceSpec(TokenizerSpec):
    """WordPiece as in BERT, trained on all training documents with the `tokenizers` library. White space is lost."""

    kind: Literal["wordpiece"] = "wordpiece"
    """WordPiece as in BERT, trained on the training documents."""
    source = "Schuster & Nakajima 2012, as in BERT (arXiv:1810.04805); the tokenizers library"
    divides = "after any line"
    vocab_size: int = Field(ge=3, le=1_000_000)
    """Number of ids: word pieces, the unknown token and the end of a document."""
    lowercase: bool = True
    """Whether to lowercase the text and strip accents."""

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
        # Otherwise the library numbers the pieces within words in the order of a randomly seeded hash table.
        within = [f"##{character}" for character in characters]
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.vocab_size - 1,
            min_frequency=2,
            show_progress=False,
            special_tokens=[UNKNOWN, *within],
            initial_alphabet=characters,
            limit_alphabet=len(characters),
        )

        def model(pieces: dict[str, int] | None = None) -> tokenizers.Tokenizer:
            tokenizer = Model(models.WordPiece(pieces, unk_token=UNKNOWN))
            tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.WordPiece()
            return tokenizer

        # A new model, because the trained one treats the pieces within words as special tokens.
        return check_size(model(train_on(model(), texts, trainer).get_vocab()), self.vocab_size)

    def load(self, folder: Path) -> Tokenizer:
        """Read the pieces."""
        return read_saved(folder / FILE)


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


class WordsSpec(TokenizerSpec):
    """The most frequent words between white space, then the unknown token and the end. White space is lost."""

    kind: Literal["words"] = "words"
    """The most frequent words of the training documents are tokens; all other words are one unknown token."""
    source = "common practice"
    divides = "after any line"
    vocab_size: int = Field(ge=3, le=10_000_000)
    """Maximum number of ids: words, the unknown token and the end of a document."""
    lowercase: bool = False
    """Whether to lowercase the text."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Count the words; ties are broken by Unicode order."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text.lower().split() if self.lowercase else text.split())
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return WordTokenizer(ranked[: self.vocab_size - 2], self.lowercase)

    def load(self, folder: Path) -> Tokenizer:
        """Read the words."""
        return WordTokenizer(units(folder), self.lowercase)


class WordTokenizer(LookupTokenizer):
    """The tokenizer of `WordsSpec`."""

    def __init__(self, words: Sequence[str], lowercase: bool) -> None:
        super().__init__(words, extra_bytes=1)
        self.lowercase = lowercase

    def split(self, text: str) -> Sequence[str]:
        """The words."""
        return text.split()

    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text."""
        return super().encode_all(text.lower() if self.lowercase else text for text in texts)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The words separated by spaces, with U+FFFD for unknown words."""
        return " ".join(self.named(ids))

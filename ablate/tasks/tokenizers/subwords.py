"""`SubwordTokenizer`: adapter to the `tokenizers` library, for `bpe`, `wordpiece` and `saved`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError, first_cause
from ablate.tasks.tokenizers import FILE, LINE_END, Tokenizer

if TYPE_CHECKING:
    import tokenizers

_TEXTS_AT_ONCE = 256
_CHARACTERS_AT_ONCE = 1 << 22
_LONG_TEXT = 1 << 20

_LOCAL_NORMALIZERS = {"NFC", "NFD", "Lowercase"}
"""Normalisers that change a character only by itself or with its combining marks, and make no white space."""
_WORD_NORMALIZERS = {*_LOCAL_NORMALIZERS, "NFKC", "NFKD", "StripAccents", "BertNormalizer"}
"""Normalisers that may make or remove white space, but keep a line end as white space."""
_BY_WHITE_SPACE = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
"""Pre-tokenizers that divide at all white space and remove it."""
_WITHIN_WORDS = {*_BY_WHITE_SPACE, "Digits", "Punctuation", "UnicodeScripts"}
"""Pre-tokenizers that divide further what others have divided."""
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PATTERNS = {
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits in (r"\p{N}", r"\p{N}{1,3}")
}
"""The expressions of `Split` in Llama 3, Qwen 2 and GPT-4. A line end before a visible character ends their matches."""

_BYTE = re.compile("<0x[0-9A-F]{2}>")
"""A token for a single byte of characters that are not in the vocabulary (`byte_fallback`)."""
UNKNOWN = "[UNK]"
"""The token of pieces that are not in the vocabulary."""


class SubwordTokenizer(Tokenizer):
    """Adapter to a model of the library.

    Args:
        model: The model.
        end: A token of the model that ends a document; in a text it is encoded as text. Empty: an id is added, which no
            token of the model has.

    Raises:
        DataError: The model has no such token, or a text that holds it would have its id.
    """

    def __init__(self, model: tokenizers.Tokenizer, end: str = "") -> None:
        self._model = model
        ids = model.get_vocab(with_added_tokens=True)
        if end and end not in ids:
            raise DataError("the tokenizer has no such token", where="tokenizer.end", got=repr(end))
        self._end = ids[end] if end else max(ids.values()) + 1
        self.vocabulary = max(*ids.values(), self._end) + 1
        plain = json.loads(model.to_str())
        self.token_bytes = np.zeros(self.vocabulary, dtype=np.int64)
        size = _sizes(plain)
        for token, index in ids.items():
            self.token_bytes[index] = size(token)
        if end:
            self.token_bytes[self._end] = 0
            model.add_special_tokens([end])  # it has its id; now it is one of those that texts do not have
            model.encode_special_tokens = True
            if self._end in model.encode(end, add_special_tokens=False).ids:
                raise DataError(
                    "a text may hold this token, so that it does not tell where a document ends",
                    where="tokenizer.end",
                    got=repr(end),
                    remedy="Name a special token, or leave `end` out: then an id is added.",
                )

        self._divides = _divides_at_lines(plain)

    @property
    def end_of_document(self) -> int:
        return self._end

    @property
    def divides_at_lines(self) -> bool:
        return self._divides

    def encode_all(self, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
        """The ids of each text."""
        for batch in _batches(texts):
            pieces = [_pieces(text) if self._divides else [text] for text in batch]
            flat = [piece for text in pieces for piece in text]
            encodings = iter(self._model.encode_batch_fast(flat, add_special_tokens=False))
            for text in pieces:
                yield np.concatenate([np.array(next(encodings).ids, dtype=np.int64) for _ in text])

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids."""
        return str(self._model.decode([int(token) for token in ids], skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        """Write the model in the format of the library."""
        (folder / FILE).write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """The model in the format of the library."""
        return str(self._model.to_str())


def train_on(model: tokenizers.Tokenizer, texts: Iterable[str], trainer: Any) -> tokenizers.Tokenizer:
    """Train the model on texts and return it."""
    model.train_from_iterator((piece for text in texts for piece in _pieces(text)), trainer)
    return model


def check_size(model: tokenizers.Tokenizer, size: int) -> Tokenizer:
    """The tokenizer of a trained model, after checking that it has exactly `size` ids.

    Raises:
        DataError: The training documents yield fewer ids, or need more.
    """
    tokenizer = SubwordTokenizer(model)
    if tokenizer.vocabulary < size:
        raise DataError(
            "the training documents are too few for this vocabulary",
            where="tokenizer.vocab_size",
            expected=f"at most {tokenizer.vocabulary:,}",
            got=f"{size:,}",
            remedy="Lower `vocab_size`, use the tokenizer `bytes`, or provide more text.",
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


def read_saved(path: Path, end: str = "") -> Tokenizer:
    """The tokenizer of a `tokenizer.json`.

    Args:
        path: The file.
        end: A token of it that ends a document; empty: an id is added.

    Raises:
        DataError: The file is missing, is not a saved tokenizer, or has no such token.
    """
    from tokenizers import Tokenizer as Model

    try:
        model = Model.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises plain exceptions
        raise DataError(
            f"this is not a saved tokenizer ({first_cause(error, str(path))})",
            where=str(path),
            expected="a `tokenizer.json` of the `tokenizers` library",
        ) from None
    model.no_padding()
    model.no_truncation()
    return SubwordTokenizer(model, end)


def _sizes(plain: dict[str, Any]) -> Callable[[str], int]:
    """The number of bytes of the text that a token stands for, by the token.

    Args:
        plain: The `tokenizer.json`.
    """
    model, decoders = plain["model"], _parts(plain["decoder"], "decoders")
    added = {token["content"] for token in plain["added_tokens"]}
    unknown = model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else model.get("unk_token")
    within = model.get("continuing_subword_prefix") or ""
    written = [(part["replacement"], " ") for part in decoders if part["type"] == "Metaspace"]
    written += [
        (part["pattern"]["String"], part["content"])
        for part in decoders
        if part["type"] == "Replace" and "String" in part["pattern"]
    ]
    written += [(part["suffix"], " ") for part in decoders if part["type"] == "BPEDecoder"]
    of_bytes = any(part["type"] == "ByteLevel" for part in decoders)

    def size(token: str) -> int:
        if token == unknown:
            return 0
        if token in added:
            return len(token.encode())
        if of_bytes:  # such a vocabulary writes one character for each byte
            return len(token)
        if model.get("byte_fallback") and _BYTE.fullmatch(token):
            return 1
        token = token.removeprefix(within)
        for old, new in written:
            token = token.replace(old, new)
        return len(token.encode())

    return size


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == _TEXTS_AT_ONCE or size >= _CHARACTERS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _divides_at_lines(model: dict[str, Any]) -> bool:
    """Whether the ids of a text are those of its parts if it is divided after a `LINE_END`; False if this is not known.

    It is so if no added token reaches across a line end, nothing is added to the beginning or the end of a text, and a
    word never continues behind a line end.

    Args:
        model: The `tokenizer.json`.
    """
    normalizers = {part["type"] for part in _parts(model["normalizer"], "normalizers")}
    line_end = r"\n" if normalizers <= _LOCAL_NORMALIZERS else r"\s"  # or what it is turned into
    for token in model["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or re.search(line_end, token["content"]):
            return False
    if model["model"].get("dropout"):
        return False
    first, *others = _parts(model["pre_tokenizer"], "pretokenizers") or [{"type": "none"}]
    kept = all(part["type"] in _WITHIN_WORDS or _is_plain_bytes(part) for part in others)
    if first["type"] in _BY_WHITE_SPACE:
        return kept and normalizers <= _WORD_NORMALIZERS
    by_expression = (_is_plain_bytes(first) and first["use_regex"]) or (
        first["type"] == "Split"
        and first["pattern"].get("Regex") in _PATTERNS
        and (first["behavior"], first["invert"]) in {("Isolated", False), ("Removed", True)}
    )
    return by_expression and kept and normalizers <= _LOCAL_NORMALIZERS


def _parts(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """The parts of a normaliser or pre-tokenizer, which may be a sequence of sequences."""
    if part is None:
        return []
    return [each for one in part[name] for each in _parts(one, name)] if part["type"] == "Sequence" else [part]


def _is_plain_bytes(part: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer writes bytes as characters and adds no space."""
    return part["type"] == "ByteLevel" and not part["add_prefix_space"]


def _pieces(text: str) -> list[str]:
    """Divide a long text after line ends between visible characters (`Tokenizer.divides_at_lines`).

    The library needs about 100 bytes of memory per token.
    """
    pieces: list[str] = []
    start = 0
    while len(text) - start > _LONG_TEXT:
        cut = LINE_END.search(text, start + _LONG_TEXT)
        if cut is None:
            break
        pieces.append(text[start : cut.end()])
        start = cut.end()
    return [*pieces, text[start:]]

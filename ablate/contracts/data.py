"""The contracts of a data source, and of a tokenizer, tried on source code and on text in several scripts."""

from __future__ import annotations

import functools
import inspect
import itertools
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.errors import DataError
from ablate.locations import temporary_folder
from ablate.tasks.sources import SOURCES, BadRows, Row, Source, parse
from ablate.tasks.tokenizers import LINE_END, TOKENIZERS, Tokenizer, TokenizerSpec

_ROWS = 50
_NO_COLUMN = "no_such_column"


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The columns that are asked for.

    Attributes:
        columns: Those that the source always has; none if that depends on its argument.
    """

    columns: tuple[str, ...]


def _rows(spec: Source, columns: tuple[str, ...]) -> list[Row]:
    rows = spec.rows(columns, BadRows(refuse=True), lambda line: None)
    return list(itertools.islice(rows, _ROWS))


def round_trips_through_address(spec: Source, context: SourceContext) -> Iterator[str]:
    """Its address names it again."""
    if parse(spec.address, with_test=spec.with_test, partial=spec.partial) != spec:
        yield f"`{spec.address}` names another source"


def has_its_columns(spec: Source, context: SourceContext) -> Iterator[str]:
    """It has rows, and each has a text for every column that it says it has, in the order asked for."""
    if not context.columns:
        return
    rows = _rows(spec, context.columns)
    if not rows:
        yield "it has no rows"
    for row in rows:
        if len(row.values) != len(context.columns) or not all(isinstance(value, str) for value in row.values):
            yield f"{row.where} has the values {row.values!r}"
            return
    turned = [row.values[::-1] for row in _rows(spec, context.columns[::-1])]
    if turned != [row.values for row in rows]:
        yield "asked for in another order, columns hold other values"


def rows_are_deterministic(spec: Source, context: SourceContext) -> Iterator[str]:
    """Read twice it gives the same rows in the same order."""
    if context.columns and _rows(spec, context.columns) != _rows(spec, context.columns):
        yield "read again it gives other rows, or another order"


def gives_documents(spec: Source, context: SourceContext) -> Iterator[str]:
    """Each of its columns can be read as documents."""
    for column in context.columns:
        documents = spec.documents(column, BadRows(refuse=True), lambda line: None)
        if not all(isinstance(document.text, str) for document in itertools.islice(documents, _ROWS)):
            yield f"a document of `{column}` is not text"


def refuses_an_unknown_column(spec: Source, context: SourceContext) -> Iterator[str]:
    """A column that it has not is a `DataError` which names the column."""
    try:
        _rows(spec, (_NO_COLUMN,))
    except DataError as error:
        if _NO_COLUMN not in str(error):
            yield f"the refusal of the column `{_NO_COLUMN}` does not name it: {error}"
    else:
        yield f"it gave rows for the column `{_NO_COLUMN}`"


def reports_missing_data(spec: Source, context: SourceContext) -> Iterator[str]:
    """`missing` says nothing of data that is there."""
    if said := spec.missing():
        yield f"it says that something is missing: {said}"


SOURCE: Contract[Source, SourceContext] = Contract(
    family=SOURCES,
    rules=by_name(
        round_trips_through_address,
        has_its_columns,
        rows_are_deterministic,
        gives_documents,
        refuses_an_unknown_column,
        reports_missing_data,
        round_trips_through_json,
    ),
    contexts=lambda spec: [SourceContext(spec.columns)],
    describe=lambda context: f"columns {', '.join(context.columns)}" if context.columns else "no columns known",
)


_PROBES = ("", "a", "Straße, naïve café\n\n\tx = 1", "漢字 и кириллица 🙂 e\N{COMBINING ACUTE ACCENT}", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class TokenizerContext:
    """The texts that a tokenizer learns from.

    Attributes:
        name: What they are.
    """

    name: str
    texts: tuple[str, ...]


@functools.cache
def _contexts() -> list[TokenizerContext]:
    code = tuple(inspect.getsource(textwrap).split("\n\n"))
    return [TokenizerContext("source code", code), TokenizerContext("text in several scripts", (*code, *_PROBES))]


def _same(left: Tokenizer, right: Tokenizer, texts: tuple[str, ...]) -> bool:
    pairs = zip(left.encode_all(texts), right.encode_all(texts), strict=True)
    tables = np.array_equal(left.token_bytes, right.token_bytes)
    return left.vocabulary == right.vocabulary and tables and all(np.array_equal(*pair) for pair in pairs)


def keeps_ids_within_the_vocabulary(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """Ids are integers from 0 to below the vocabulary; no text has the id that ends a document."""
    tokenizer = spec.train(context.texts)
    for text in (*context.texts, *_PROBES):
        ids = tokenizer.encode(text)
        if not np.issubdtype(ids.dtype, np.integer):
            yield f"the ids of {text[:20]!r} are {ids.dtype}"
            return
        if ids.size and not (ids.min() >= 0 and ids.max() < tokenizer.vocabulary):
            yield f"{text[:20]!r} has an id outside 0 to {tokenizer.vocabulary - 1}"
        if tokenizer.end_of_document in ids:
            yield f"{text[:20]!r} has the id that ends a document"


def batch_encoding_equals_single(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """`encode_all` gives, text by text, what `encode` gives."""
    tokenizer, texts = spec.train(context.texts), (*context.texts[:20], *_PROBES)
    together = list(tokenizer.encode_all(iter(texts)))
    if len(together) != len(texts):
        yield f"{len(texts)} texts gave {len(together)} lists of ids"
    elif not all(np.array_equal(tokenizer.encode(text), ids) for text, ids in zip(texts, together, strict=True)):
        yield "a text among others has other ids than alone"


def divides_texts_where_it_says(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """If it says that texts can be divided at line ends, the parts of a text have the ids of the text."""
    tokenizer = spec.train(context.texts)
    if not tokenizer.divides_at_lines:
        return
    text = "\n\n".join((*context.texts[:20], *_PROBES))
    bounds = [0, *(end.end() for end in LINE_END.finditer(text)), len(text)]
    parts = [text[first:last] for first, last in pairwise(bounds)]
    if not np.array_equal(np.concatenate(list(tokenizer.encode_all(parts))), tokenizer.encode(text)):
        yield "a text has other ids than its parts, divided at line ends"


def decodes_training_text(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """Text that it learnt from, encoded, decoded and encoded again, has the same ids."""
    tokenizer = spec.train(context.texts)
    for text in context.texts:
        ids = tokenizer.encode(text)
        if not np.array_equal(tokenizer.encode(tokenizer.decode(ids)), ids):
            yield f"{text[:20]!r} has other ids once it was decoded"
            return


def decodes_any_ids(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """Every id can be decoded: a model may write any of them."""
    tokenizer = spec.train(context.texts)
    for ids in ([], *([token] for token in range(tokenizer.vocabulary - 1))):
        if not isinstance(tokenizer.decode(ids), str):
            yield f"{ids} is decoded to no text"
            return


def training_is_deterministic(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """The same texts in the same order give the same tokenizer."""
    if not _same(spec.train(context.texts), spec.train(context.texts), (*context.texts, *_PROBES)):
        yield "trained twice on the same texts it gives other ids"


def round_trips_through_disk(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """Saved and loaded, it gives the same ids."""
    tokenizer = spec.train(context.texts)
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        tokenizer.save(Path(folder))
        if not _same(tokenizer, spec.load(Path(folder)), (*context.texts, *_PROBES)):
            yield "once loaded it gives other ids"


def counts_bytes(spec: TokenizerSpec, context: TokenizerContext) -> Iterator[str]:
    """`token_bytes` has an entry for each id, none below 0, and 0 for the end of a document."""
    tokenizer = spec.train(context.texts)
    if tokenizer.token_bytes.shape != (tokenizer.vocabulary,):
        yield f"`token_bytes` has shape {tokenizer.token_bytes.shape}, and there are {tokenizer.vocabulary} ids"
    elif tokenizer.token_bytes.min() < 0 or tokenizer.token_bytes[tokenizer.end_of_document] != 0:
        yield "`token_bytes` is below 0 somewhere, or not 0 at the end of a document"


TOKENIZER: Contract[TokenizerSpec, TokenizerContext] = Contract(
    family=TOKENIZERS,
    rules=by_name(
        keeps_ids_within_the_vocabulary,
        batch_encoding_equals_single,
        divides_texts_where_it_says,
        decodes_training_text,
        decodes_any_ids,
        training_is_deterministic,
        round_trips_through_disk,
        counts_bytes,
        round_trips_through_json,
    ),
    contexts=lambda spec: _contexts(),
    describe=lambda context: context.name,
    given={"vocab_size": 400},
)

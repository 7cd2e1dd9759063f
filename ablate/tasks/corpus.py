"""`Corpus`: the documents of a source, each text once, divided into training and validation.

Documents are read anew whenever they are asked for, one at a time, and known by the hash of their text: memory does not
grow with the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from ablate.errors import DataError
from ablate.tasks.base import Say
from ablate.tasks.sources import BadRows, Document, Source, parse


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in the order of their source.

    Attributes:
        fingerprint: Content hash of all texts, in order. Names do not count: a folder may move.
        train_size: Documents to learn from.
        validation_size: Documents held out; none has the text of a training document.
        dropped: Documents left out because they are empty or copies.
        bad_rows: Rows left out because they cannot be read.
    """

    fingerprint: str
    train_size: int
    validation_size: int
    dropped: int
    bad_rows: int
    source: Source = field(repr=False)
    column: str = field(repr=False)
    held_out: frozenset[bytes] = field(repr=False)

    @property
    def train(self) -> Iterator[Document]:
        """The documents to learn from."""
        return (document for document, held_out in self.documents() if not held_out)

    @property
    def validation(self) -> Iterator[Document]:
        """The documents held out."""
        return (document for document, held_out in self.documents() if held_out)

    def documents(self) -> Iterator[tuple[Document, bool]]:
        """Every document once, and whether it is held out.

        Raises:
            DataError: The text is not what it was when the corpus was made.
        """
        seen: dict[bytes, None] = {}
        for document in self.source.documents(self.column, BadRows(refuse=False), lambda line: None):
            if document.text and (digest := _digest(document.text)) not in seen:
                seen[digest] = None
                yield document, digest in self.held_out
        if _fingerprint(seen) != self.fingerprint:
            raise DataError("the text has changed while it was read", remedy="Run the command again.")


def read_corpus(
    address: str, validation_share: float, say: Say, *, column: str = "text", refuse_bad_rows: bool = True
) -> Corpus:
    """Read a source and divide its documents.

    Empty documents and second copies are dropped. The documents whose texts have the smallest hashes are held out, so
    the division is the same on every run and has nothing to do with names or order.

    Args:
        address: As for `sources.parse`.
        validation_share: Share of the documents to hold out; at least one is, and at least one is not.
        say: Receives progress.
        column: The column of a table that holds the text.
        refuse_bad_rows: Whether a bad row of a table is refused, or left out and counted.

    Raises:
        DataError: The source is missing or unfit, or has fewer than two different documents.
    """
    source, bad_rows = parse(address), BadRows(refuse_bad_rows)
    digests: dict[bytes, None] = {}
    read = 0
    for document in source.documents(column, bad_rows, say):
        read += 1
        if document.text:
            digests[_digest(document.text)] = None
    if not digests:
        raise DataError("the source has no text in it", where=address, remedy="Name a source that holds text.")
    if len(digests) == 1:
        raise DataError(
            "one document cannot be divided into training and validation",
            where=address,
            expected="at least two different documents",
            got=f"{read} read, 1 of them with a text of its own",
            remedy="Give a folder of several files, or divide the file into documents by lines that hold only"
            " `<|endoftext|>`.",
        )
    held_out = min(max(1, round(validation_share * len(digests))), len(digests) - 1)
    dropped = read - len(digests)
    say(f"Read {len(digests):,} documents from {address} ({dropped:,} empty or copies left out)")
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    return Corpus(
        fingerprint=_fingerprint(digests),
        train_size=len(digests) - held_out,
        validation_size=held_out,
        dropped=dropped,
        bad_rows=bad_rows.count,
        source=source,
        column=column,
        held_out=frozenset(sorted(digests)[:held_out]),
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _fingerprint(digests: dict[bytes, None]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()

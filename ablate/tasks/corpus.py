"""`Corpus`: the documents of a source, each text once, divided into training, validation and (if asked for) test.

Documents are read anew whenever they are asked for, one at a time, and known by the hash of their text: memory does not
grow with the text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from ablate.errors import DataError
from ablate.tasks.base import Say
from ablate.tasks.sources import BadRows, Document, Source, parse


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in the order of their source.

    Attributes:
        fingerprint: Content hash of all texts, in order. Names do not count: a folder may move.
        sizes: Documents of each part; no two parts share a text.
        dropped: Documents left out because they are empty or copies.
        bad_rows: Rows left out because they cannot be read.
    """

    fingerprint: str
    sizes: dict[str, int]
    dropped: int
    bad_rows: int
    source: Source = field(repr=False)
    column: str = field(repr=False)
    held_out: dict[bytes, str] = field(repr=False)
    """Digest of a document that is not for training to its part."""

    def part(self, name: str) -> Iterator[Document]:
        """The documents of `train`, `validation` or `test`."""
        return (document for document, part in self.documents() if part == name)

    def documents(self) -> Iterator[tuple[Document, str]]:
        """Every document once, and its part.

        Raises:
            DataError: The text is not what it was when the corpus was made.
        """
        seen: dict[bytes, None] = {}
        for document in self.source.documents(self.column, BadRows(refuse=False), lambda line: None):
            if document.text and (digest := _digest(document.text)) not in seen:
                seen[digest] = None
                yield document, self.held_out.get(digest, "train")
        if _fingerprint(seen) != self.fingerprint:
            raise DataError("the text has changed while it was read", remedy="Run the command again.")


def read_corpus(
    address: str,
    validation_share: float,
    say: Say,
    *,
    column: str = "text",
    refuse_bad_rows: bool = True,
    test_share: float = 0.0,
) -> Corpus:
    """Read a source and divide its documents.

    Empty documents and second copies are dropped. The documents whose texts have the smallest hashes are held out, so
    the division is the same on every run and has nothing to do with names or order. Those to validate on come first, so
    that a test takes nothing from them.

    Args:
        address: As for `sources.parse`.
        validation_share: Share of the documents to hold out; at least one is, and at least one is not.
        say: Receives progress.
        column: The column of a table that holds the text.
        refuse_bad_rows: Whether a bad row of a table is refused, or left out and counted.
        test_share: Share of the documents to hold out for the test as well; at least one is, unless it is 0.

    Raises:
        DataError: The source is missing or unfit, or has fewer different documents than parts.
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
    held_out = _held_out(list(digests), {"validation": validation_share, "test": test_share}, address, read)
    dropped = read - len(digests)
    say(f"Read {len(digests):,} documents from {address} ({dropped:,} empty or copies left out)")
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    return Corpus(
        fingerprint=_fingerprint(digests),
        sizes={"train": len(digests) - len(held_out), **Counter(held_out.values())},
        dropped=dropped,
        bad_rows=bad_rows.count,
        source=source,
        column=column,
        held_out=held_out,
    )


def _held_out(digests: list[bytes], shares: dict[str, float], address: str, read: int) -> dict[bytes, str]:
    """The part of each document that is not for training: part after part, in the order of the hashes."""
    wanted = {part: share for part, share in shares.items() if share}
    if len(digests) <= len(wanted):
        count = "one document" if len(digests) == 1 else f"{len(digests)} documents"
        raise DataError(
            f"{count} cannot be divided into training and {' and '.join(wanted)}",
            where=address,
            expected=f"at least {'two' if len(wanted) == 1 else 'three'} different documents",
            got=f"{read} read, {len(digests)} of them with a text of its own",
            remedy="Give a folder of several files, or divide the file into documents by lines that hold only"
            " `<|endoftext|>`.",
        )
    held_out: dict[bytes, str] = {}
    ranked = iter(sorted(digests))
    for part, share in wanted.items():
        still = len(wanted) - len({*held_out.values()})  # parts that need a document each, this one among them
        most = len(digests) - len(held_out) - still
        held_out |= dict.fromkeys(islice(ranked, min(max(1, round(share * len(digests))), most)), part)
    return held_out


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _fingerprint(digests: dict[bytes, None]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()

"""`Corpus`: the documents of a source, each text once, divided into training and validation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ablate.errors import DataError
from ablate.tasks.base import Say
from ablate.tasks.sources import Document, parse


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in the order of their source.

    Attributes:
        train: Documents to learn from.
        validation: Documents held out; none has the text of a training document.
        fingerprint: Content hash of all texts, in order. Names do not count: a folder may move.
    """

    train: tuple[Document, ...]
    validation: tuple[Document, ...]
    fingerprint: str


def read_corpus(address: str, validation_share: float, say: Say) -> Corpus:
    """Read a source and divide its documents.

    Empty documents and second copies are dropped. The documents whose texts have the smallest hashes are held out, so
    the division is the same on every run and has nothing to do with names or order.

    Args:
        address: As for `sources.parse`.
        validation_share: Share of the documents to hold out; at least one is, and at least one is not.

    Raises:
        DataError: The source is missing or unfit, or has fewer than two different documents.
    """
    by_digest: dict[bytes, Document] = {}
    read = 0
    for document in parse(address).documents(say):
        read += 1
        if document.text:
            by_digest.setdefault(hashlib.sha256(document.text.encode()).digest(), document)
    if not by_digest:
        raise DataError("the source has no text in it", where=address, remedy="Name a source that holds text.")
    if len(by_digest) == 1:
        raise DataError(
            "one document cannot be divided into training and validation",
            where=address,
            expected="at least two different documents",
            got=f"{read} read, 1 of them with a text of its own",
            remedy="Give a folder of several files, or divide the file into documents by lines that hold only"
            " `<|endoftext|>`.",
        )
    held_out = min(max(1, round(validation_share * len(by_digest))), len(by_digest) - 1)
    validation = set(sorted(by_digest)[:held_out])
    say(f"Read {len(by_digest):,} documents from {address} ({read - len(by_digest):,} empty or copies left out)")
    return Corpus(
        train=tuple(document for digest, document in by_digest.items() if digest not in validation),
        validation=tuple(document for digest, document in by_digest.items() if digest in validation),
        fingerprint=hashlib.sha256(b"".join(by_digest)).hexdigest(),
    )

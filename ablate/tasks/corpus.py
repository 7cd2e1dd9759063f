"""`Corpus`: the texts of a source, each once, divided into training, validation and (if asked for) test.

Documents are read anew whenever they are asked for, one at a time, and known by the hash of their text: memory does not
grow with the text.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, groupby, islice
from operator import itemgetter

from ablate.errors import DataError
from ablate.tasks.base import Say
from ablate.tasks.sources import BadRows, Document, Piece, Source, parse

_PIECE = 1 << 20
"""Characters of a single text that are held at once."""


class Corpus(ABC):
    """Text divided into parts.

    Attributes:
        fingerprint: Content hash of all texts, in order. Names do not count: a folder may move.
        sizes: Documents of each part; no two parts share a text.
        dropped: Documents left out because they are empty or copies.
        bad_rows: Rows left out because they cannot be read.
        source: Where the text comes from.
        note: What a person is to know of the division; empty for whole documents.
    """

    fingerprint: str
    sizes: dict[str, int]
    dropped: int
    bad_rows: int
    source: Source
    note: str

    def part(self, name: str) -> Iterator[Document]:
        """The documents of `train`, `validation` or `test`."""
        return (document for document, part in self.documents() if part == name)

    @abstractmethod
    def documents(self) -> Iterator[tuple[Document, str]]:
        """Every document once, and its part.

        Raises:
            DataError: The text is not what it was when the corpus was made.
        """


@dataclass(frozen=True, slots=True)
class Documents(Corpus):
    """Documents in the order of their source, each in one part as a whole."""

    fingerprint: str
    sizes: dict[str, int]
    dropped: int
    bad_rows: int
    source: Source = field(repr=False)
    column: str = field(repr=False)
    held_out: dict[bytes, str] = field(repr=False)
    """Digest of a document that is not for training to its part."""
    note: str = ""

    def documents(self) -> Iterator[tuple[Document, str]]:
        """See `Corpus.documents`."""
        seen: dict[bytes, None] = {}
        for document in self.source.documents(self.column, BadRows(refuse=False), lambda line: None):
            if document.text and (digest := _digest(document.text)) not in seen:
                seen[digest] = None
                yield document, self.held_out.get(digest, "train")
        if _fingerprint(seen) != self.fingerprint:
            raise _changed()


@dataclass(frozen=True, slots=True)
class OneText(Corpus):
    """A single text, whose parts follow one another: training, validation, test.

    A part ends with a line, unless the line reaches far into the next part: then it ends within the line.
    """

    fingerprint: str
    sizes: dict[str, int]
    dropped: int
    bad_rows: int
    source: Source = field(repr=False)
    lines: Callable[[], Iterator[str]] = field(repr=False)
    characters: dict[str, int]
    """Part to how many characters it has, but for the rest of the line at its end."""
    note: str

    def documents(self) -> Iterator[tuple[Document, str]]:
        """See `Corpus.documents`; each part in pieces of about a million characters, of which the last one ends it."""
        content = _Content()
        for part, texts in groupby(self._divided(content), key=itemgetter(0)):
            pieces = _joined(text for _, text in texts)
            piece = next(pieces)
            for number, following in enumerate(pieces):
                yield Piece(f"{part}#{number}", piece), part
                piece = following
            yield Document(f"{part}#end", piece), part
        if content.fingerprint() != self.fingerprint:
            raise _changed()

    def _divided(self, content: _Content) -> Iterator[tuple[str, str]]:
        """Every line, or the part of a line at a bound, with the name of its part."""
        slack = min(self.characters.values()) // 10
        names = list(self.characters)
        bounds = list(accumulate(self.characters.values()))[:-1]
        place = 0
        for line in self.lines():
            content.add(line)
            rest = line
            while bounds and place + len(rest) > bounds[0]:
                inside = bounds.pop(0) - place
                cut = len(rest) if inside > 0 and len(rest) - inside <= slack else max(0, inside)
                if cut:
                    yield names[0], rest[:cut]
                del names[0]
                place, rest = place + cut, rest[cut:]
            if rest:
                yield names[0], rest
            place += len(rest)


class _Content:
    """The content hash and the length of a text that is read line by line."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"one text\0")  # no fingerprint of documents is one of a text
        self.characters = 0

    def add(self, line: str) -> None:
        self._hash.update(line.encode())
        self.characters += len(line)

    def fingerprint(self) -> str:
        return self._hash.hexdigest()


def _joined(texts: Iterator[str]) -> Iterator[str]:
    """The same text in pieces of at least `_PIECE` characters, but for the last."""
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= _PIECE:
            yield "".join(held)
            held, size = [], 0
    if held:
        yield "".join(held)


def read_corpus(
    address: str,
    validation_share: float,
    say: Say,
    *,
    column: str = "text",
    refuse_bad_rows: bool = True,
    test_share: float = 0.0,
) -> Corpus:
    """Read a source and divide its documents; a single document is divided into contiguous parts instead.

    Empty documents and second copies are dropped. The documents whose texts have the smallest hashes are held out, so
    the division is the same on every run and has nothing to do with names or order. Those to validate on come first, so
    that a test takes nothing from them.

    Args:
        address: As for `sources.parse`.
        validation_share: Share of the documents (of a single one: of its characters) to hold out; at least one is, and
            at least one is not.
        say: Receives progress.
        column: The column of a table that holds the text.
        refuse_bad_rows: Whether a bad row of a table is refused, or left out and counted.
        test_share: Share of the documents to hold out for the test as well; at least one is, unless it is 0.

    Raises:
        DataError: The source is missing or unfit, has fewer different documents than parts, or is a single text of a
            few characters.
    """
    source, bad_rows = parse(address), BadRows(refuse_bad_rows)
    shares = {"validation": validation_share, **({"test": test_share} if test_share else {})}
    if lines := source.only_text(say):
        return _one_text(source, lines, shares, address, say)
    digests: dict[bytes, None] = {}
    read = 0
    for document in source.documents(column, bad_rows, say):
        read += 1
        if document.text:
            digests[_digest(document.text)] = None
    if not digests:
        raise DataError("the source has no text in it", where=address, remedy="Name a source that holds text.")
    dropped = read - len(digests)
    if len(digests) == 1:
        return _one_text(
            source, lambda: _first(source, column), shares, address, say, dropped=dropped, bad_rows=bad_rows.count
        )
    held_out = _held_out(list(digests), shares, address, read)
    say(f"Read {len(digests):,} documents from {address} ({dropped:,} empty or copies left out)")
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    return Documents(
        fingerprint=_fingerprint(digests),
        sizes={"train": len(digests) - len(held_out), **Counter(held_out.values())},
        dropped=dropped,
        bad_rows=bad_rows.count,
        source=source,
        column=column,
        held_out=held_out,
    )


def _first(source: Source, column: str) -> Iterator[str]:
    """The lines of the first document that is not empty."""
    documents = source.documents(column, BadRows(refuse=False), lambda line: None)
    yield from next(document.text for document in documents if document.text).splitlines(keepends=True)


def _one_text(
    source: Source,
    lines: Callable[[], Iterator[str]],
    shares: dict[str, float],
    address: str,
    say: Say,
    *,
    dropped: int = 0,
    bad_rows: int = 0,
) -> OneText:
    content = _Content()
    for line in lines():
        content.add(line)
    total = content.characters
    if not total:
        raise DataError("the source has no text in it", where=address, remedy="Name a source that holds text.")
    held_out = {part: max(1, round(share * total)) for part, share in shares.items()}
    characters = {"train": total - sum(held_out.values()), **held_out}
    if characters["train"] < 1:
        raise DataError(
            f"a single text of {total:,} characters cannot be divided into training and {' and '.join(shares)}",
            where=address,
            expected="a longer text, or one of several documents",
            remedy="Give a longer text, or hold out less of it: `validation_share`, `test_share`.",
        )
    rest = " and ".join(f"about {size:,} for the {part}" for part, size in held_out.items())
    note = (
        f"a single text of {total:,} characters, divided where lines end: its beginning is for training, "
        f"what follows is held out ({rest})"
    )
    say(f"Read {address}: {note}")
    return OneText(
        fingerprint=content.fingerprint(),
        sizes=dict.fromkeys(characters, 1),
        dropped=dropped,
        bad_rows=bad_rows,
        source=source,
        lines=lines,
        characters=characters,
        note=note,
    )


def _held_out(digests: list[bytes], wanted: dict[str, float], address: str, read: int) -> dict[bytes, str]:
    """The part of each document that is not for training: part after part, in the order of the hashes."""
    if len(digests) <= len(wanted):
        raise DataError(
            f"{len(digests)} documents cannot be divided into training and {' and '.join(wanted)}",
            where=address,
            expected="at least three different documents, or a single one",
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


def _changed() -> DataError:
    return DataError("the text has changed while it was read", remedy="Run the command again.")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _fingerprint(digests: dict[bytes, None]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()

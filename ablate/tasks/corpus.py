"""`Corpus`: the deduplicated texts of a source in a training, a validation and optionally a test split.

Each iteration reads the documents again, one at a time. Only hashes of the texts are kept, so memory use does not grow
with the length of the text.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, groupby, islice
from operator import itemgetter

from ablate.errors import DataError
from ablate.spec.task import Say
from ablate.tasks.sources import BadRows, Piece, Source, SourceDocument, parse
from ablate.tasks.tokenizers import LINE_END

LONG = 1 << 20
"""Approximate number of characters of a single text that are in memory at once."""


class Corpus(ABC):
    """Text in splits.

    Attributes:
        fingerprint: Content hash of all texts, in order. File names are not included, so a folder may be moved.
        sizes: Number of documents in each split. No text is in two splits.
        dropped: Number of documents left out because they are empty or duplicates.
        bad_rows: Number of rows left out because they cannot be read.
        source: Where the text comes from.
        note: How a single text was split; empty if whole documents were.
        longest: Number of characters of the longest document.
    """

    fingerprint: str
    sizes: dict[str, int]
    dropped: int
    bad_rows: int
    source: Source
    note: str
    longest: int

    def documents_in(self, name: str) -> Iterator[SourceDocument]:
        """The documents of `train`, `validation` or `test`."""
        return (document for document, split in self.documents() if split == name)

    @abstractmethod
    def documents(self) -> Iterator[tuple[SourceDocument, str]]:
        """Every document once, with its split.

        Raises:
            DataError: The text has changed since the corpus was first read.
        """


@dataclass(frozen=True, slots=True)
class Documents(Corpus):
    """Documents in the order of their source; each is in one split as a whole."""

    fingerprint: str
    sizes: dict[str, int]
    dropped: int
    bad_rows: int
    source: Source = field(repr=False)
    column: str = field(repr=False)
    held_out: dict[bytes, str] = field(repr=False)
    """Split of each held-out document, by digest."""
    read: int = field(repr=False)
    """Number of documents that were read, duplicates included."""
    longest: int
    note: str = ""

    def documents(self) -> Iterator[tuple[SourceDocument, str]]:
        seen: dict[bytes, None] = {}
        every = self.source.documents(self.column, BadRows(refuse=False), lambda line: None)
        for document in islice(every, self.read):
            if document.text and (digest := _digest(document.text)) not in seen:
                seen[digest] = None
                yield document, self.held_out.get(digest, "train")
        if _fingerprint(seen) != self.fingerprint:
            raise _changed(self.source)


@dataclass(frozen=True, slots=True)
class OneText(Corpus):
    """A single text with contiguous splits: training, validation, test.

    A split ends at the end of a line, unless that line would extend far into the next split.
    """

    fingerprint: str
    sizes: dict[str, int]
    dropped: int
    bad_rows: int
    source: Source = field(repr=False)
    lines: Callable[[], Iterator[str]] = field(repr=False)
    characters: dict[str, int]
    """Number of characters in each split, without the remainder of its last line."""
    note: str
    longest: int

    def documents(self) -> Iterator[tuple[SourceDocument, str]]:
        """As `Corpus.documents`; yields each split in pieces of about a million characters."""
        content = _Content()
        for split, texts in groupby(self._divided(content), key=itemgetter(0)):
            pieces = _join_lines(text for _, text in texts)
            piece = next(pieces)
            for number, following in enumerate(pieces):
                yield Piece(f"{split}#{number}", piece), split
                piece = following
            yield SourceDocument(f"{split}#end", piece), split
        if content.fingerprint() != self.fingerprint:
            raise _changed(self.source)

    def _divided(self, content: _Content) -> Iterator[tuple[str, str]]:
        """Lines with their splits; a line that crosses a boundary may be cut in two."""
        slack = min(self.characters.values()) // 10
        names = list(self.characters)
        bounds = list(accumulate(self.characters.values()))[:-1]
        position = 0
        for line in self.lines():
            content.add(line)
            rest = line
            while bounds and position + len(rest) > bounds[0]:
                inside = bounds.pop(0) - position
                cut = len(rest) if inside > 0 and len(rest) - inside <= slack else max(0, inside)
                if cut:
                    yield names[0], rest[:cut]
                del names[0]
                position, rest = position + cut, rest[cut:]
            if rest:
                yield names[0], rest
            position += len(rest)


class MixedCorpus(Corpus):
    """Several corpora, whose splits are named `train-NAME`, `validation-NAME` and `test-NAME`.

    A document that one of them holds out is in the training text of none. Training documents that two of them have are
    in both, because each is read as often as its weight says.

    Args:
        parts: The corpora by name.
    """

    def __init__(self, parts: Mapping[str, Corpus]) -> None:
        self._parts = parts
        names = "\0".join(f"{name}\0{part.fingerprint}" for name, part in parts.items())
        self.fingerprint = hashlib.sha256(names.encode()).hexdigest()
        self.sizes = {f"{split}-{name}": size for name, part in parts.items() for split, size in part.sizes.items()}
        self.dropped = sum(part.dropped for part in parts.values())
        self.bad_rows = sum(part.bad_rows for part in parts.values())
        self.longest = max(part.longest for part in parts.values())
        self.note = "; ".join(f"{name}: {part.note}" for name, part in parts.items() if part.note)
        self._held_out = {digest for part in parts.values() if isinstance(part, Documents) for digest in part.held_out}

    def documents_in(self, name: str) -> Iterator[SourceDocument]:
        """The documents of a split of one corpus."""
        split, _, part = name.partition("-")
        documents = self._parts[part].documents_in(split)
        if split != "train":
            return documents
        return (document for document in documents if _digest(document.text) not in self._held_out)

    def documents(self) -> Iterator[tuple[SourceDocument, str]]:
        return ((document, split) for split in self.sizes for document in self.documents_in(split))


class _Content:
    """The content hash and the length of a text that is read line by line."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"one text\0")  # differs from the fingerprint of any list of documents
        self.characters = 0

    def add(self, line: str) -> None:
        self._hash.update(line.encode())
        self.characters += len(line)

    def fingerprint(self) -> str:
        return self._hash.hexdigest()


def _join_lines(texts: Iterator[str]) -> Iterator[str]:
    """The same text in pieces of at least `LONG` characters, which end at a `LINE_END`; the last may be shorter."""
    held: list[str] = []
    size = 0
    for text in texts:
        if size >= LONG and LINE_END.search(held[-1][-2:] + text[:1]):
            yield "".join(held)
            held, size = [], 0
        held.append(text)
        size += len(text)
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
    most_bytes: int | None = None,
) -> Corpus:
    """Read a source and assign its documents to splits; a single document is cut into contiguous splits instead.

    Empty documents and duplicates are dropped. The documents with the smallest hashes are held out, so the splits are
    the same in every run and independent of file names and order. The validation split is assigned before the test
    split, so that adding a test split leaves it unchanged.

    Args:
        address: As for `sources.parse`.
        validation_share: Share of the documents to hold out (of the characters of a single document). At least one is
            held out and at least one is not.
        say: Called with progress messages.
        column: The column of a table that holds the text.
        refuse_bad_rows: Whether a bad row of a table raises an error; otherwise it is skipped and counted.
        test_share: Share of the documents to hold out for the test split; at least one, unless the share is 0.
        most_bytes: Reading ends with the document (of a single text, the line) that reaches this number of UTF-8
            bytes; None: all is read. The corpus then is the beginning of the source.

    Raises:
        DataError: The source is missing or unreadable, has fewer distinct documents than splits, or is a single text of
            only a few characters.
    """
    source, bad_rows = parse(address, partial=most_bytes is not None), BadRows(refuse_bad_rows)
    most = math.inf if most_bytes is None else most_bytes
    shares = {"validation": validation_share, **({"test": test_share} if test_share else {})}
    if lines := source.only_text(say):
        whole = lines
        return _one_text(source, lambda: _beginning(whole(), most), shares, address, say)
    digests: dict[bytes, None] = {}
    read = size = longest = 0
    for document in source.documents(column, bad_rows, say):
        read += 1
        longest = max(longest, len(document.text))
        if document.text:
            digests[_digest(document.text)] = None
            size += len(document.text.encode())
        if size >= most:
            break
    if not digests:
        raise DataError("the source contains no text", where=address, remedy="Name a source that contains text.")
    dropped = read - len(digests)
    if len(digests) == 1:
        return _one_text(
            source, lambda: _first(source, column), shares, address, say, dropped=dropped, bad_rows=bad_rows.count
        )
    held_out = _held_out(list(digests), shares, address, read)
    say(f"Read {len(digests):,} documents from {address} ({dropped:,} empty or duplicate ones left out)")
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
        read=read,
        longest=longest,
    )


def _beginning(lines: Iterator[str], most: float) -> Iterator[str]:
    """Lines until their UTF-8 bytes reach a number."""
    size = 0
    for line in lines:
        yield line
        size += len(line.encode())
        if size >= most:
            return


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
        raise DataError("the source contains no text", where=address, remedy="Name a source that contains text.")
    held_out = {split: max(1, round(share * total)) for split, share in shares.items()}
    characters = {"train": total - sum(held_out.values()), **held_out}
    if characters["train"] < 1:
        raise DataError(
            f"a single text of {total:,} characters cannot be split into training and {' and '.join(shares)}",
            where=address,
            expected="a longer text, or several documents",
            remedy="Give a longer text, or hold out less of it: `validation_share`, `test_share`.",
        )
    held_out_sizes = " and ".join(f"about {size:,} for the {split}" for split, size in held_out.items())
    note = (
        f"a single text of {total:,} characters, split at line ends: the beginning is for training, "
        f"the remainder is held out ({held_out_sizes})"
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
        longest=total,
    )


def _held_out(digests: list[bytes], shares: dict[str, float], address: str, read: int) -> dict[bytes, str]:
    """The split of each held-out document. Splits are filled one after another, in the order of the hashes."""
    if len(digests) <= len(shares):
        raise DataError(
            f"{len(digests)} documents cannot be split into training and {' and '.join(shares)}",
            where=address,
            expected="at least three different documents, or a single one",
            got=f"{read} read, {len(digests)} of them distinct",
            remedy="Give a folder of several files, or divide the file into documents by lines that hold only"
            " `<|endoftext|>`.",
        )
    held_out: dict[bytes, str] = {}
    ranked = iter(sorted(digests))
    for split, share in shares.items():
        empty = len(shares) - len({*held_out.values()})  # this split and later ones, which need one document each
        most = len(digests) - len(held_out) - empty
        held_out |= dict.fromkeys(islice(ranked, min(max(1, round(share * len(digests))), most)), split)
    return held_out


def _changed(source: Source) -> DataError:
    return DataError("the text changed while it was read", where=source.address, remedy="Run the command again.")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _fingerprint(digests: dict[bytes, None]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()

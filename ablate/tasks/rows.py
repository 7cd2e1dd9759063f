"""Rows of a source, read once, without copies, and divided into training, validation and (if asked for) test."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.tasks.base import PARTS as SPLITS
from ablate.tasks.base import Say
from ablate.tasks.sources import TEST, BadRows, Row, Source, parse

_RANK = {"train": 0, "": 0, "validation": 1, TEST: 2}
"""A text that is in several splits belongs to the first."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a source, each set of texts once, divided; read anew whenever they are asked for.

    Attributes:
        fingerprint: Content hash of all rows and of the division, in order.
        labels: All labels of the training rows, sorted.
        sizes: Rows of each split.
        left_out: What was left out, and how many.
    """

    fingerprint: str
    labels: tuple[str, ...]
    sizes: dict[str, int]
    left_out: dict[str, int]
    source: Source = field(repr=False)
    columns: tuple[str, ...] = field(repr=False)
    splits: dict[bytes, str] = field(repr=False)
    """Digest of a row's texts to its split; empty for rows that are left out."""
    origins: dict[bytes, str] = field(repr=False)
    """Digest of a row's texts to the split that its source has it in; empty where it has none."""

    def rows(self, split: str) -> Iterator[Row]:
        """The rows of a split, texts first and the label last.

        Raises:
            DataError: The rows are not what they were when the table was made.
        """
        seen: set[bytes] = set()
        for row in self.source.rows(self.columns, BadRows(refuse=False), lambda line: None):
            digest = _digest(row.values[:-1])
            if digest not in seen and self.splits.get(digest) == split and self.origins[digest] == row.split:
                seen.add(digest)
                yield row
        if len(seen) != self.sizes[split]:
            raise DataError("the data has changed while it was read", remedy="Run the command again.")


class _Key(NamedTuple):
    """What is kept of a row while the rows are divided."""

    texts: tuple[bytes, ...]
    label: str
    split: str
    where: str


class TableSpec(Protocol):
    """What the spec of a task says of its rows."""

    @property
    def data(self) -> str:
        """The address of the source."""

    @property
    def bad_rows(self) -> Literal["refuse", "skip"]:
        """Whether a bad row is refused, or left out and counted."""

    @property
    def validation_share(self) -> float:
        """Share to validate on, where the source has no such part."""

    @property
    def test_share(self) -> float:
        """Share for a test, where the source has no such part; 0: no test."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that are texts."""

    @property
    def label_column(self) -> str:
        """The column that is not."""

    @property
    def held_out_by_label(self) -> bool:
        """Whether whole labels are held out, not single rows."""


def read_table(spec: TableSpec, say: Say) -> Table:
    """Read the rows of a source and divide them.

    Rows whose texts were read before are dropped. Where the source has no part to validate on (or for a test, if one is
    asked for), the rows (or labels) with the smallest hashes are held out. Of a text that is in several parts, what is
    to be validated on gives way to training, and what is to be tested on to both.

    Raises:
        DataError: The source is missing or unfit, has no rows in a part, or a label that training has not.
    """
    source = parse(spec.data, with_test=spec.test_share > 0)
    bad_rows = BadRows(spec.bad_rows == "refuse")
    columns = (*spec.text_columns, spec.label_column)
    keys: dict[bytes, _Key] = {}
    given: set[str] = set()
    read = crossing = 0
    for row in source.rows(columns, bad_rows, say):
        read += 1
        given.add(row.split)
        *texts, label = row.values
        digests = tuple(_digest((text,)) for text in texts)
        key = _Key(digests, label, row.split, row.where)
        known = keys.setdefault(_digest(texts), key)
        if known.split != row.split:
            crossing += 1
            keys[_digest(texts)] = min(known, key, key=lambda one: _RANK[one.split])
    if not keys:
        raise DataError("the source has no rows in it", where=spec.data, remedy="Name a source that holds rows.")
    splits = _divided(spec, keys, given)
    in_both: list[bytes] = []
    known_texts: set[bytes] = set()
    parts = [*SPLITS, *([TEST] if spec.test_share else [])]
    for part in parts:
        members = [digest for digest, split in splits.items() if split == part]
        in_both += [digest for digest in members if not known_texts.isdisjoint(keys[digest].texts)]
        known_texts |= {text for digest in members for text in keys[digest].texts}
    splits |= dict.fromkeys(in_both, "")
    crossed, copies = len(in_both) + crossing, read - len(keys) - crossing
    sizes = {split: sum(value == split for value in splits.values()) for split in parts}
    for split, size in sizes.items():
        if not size:
            raise DataError(
                f"no {split} rows are left",
                where=spec.data,
                got=f"{read:,} rows read, {copies:,} copies, {crossed:,} in training and validation",
                remedy="Give more rows with texts of their own.",
            )
    labels = _labels(spec, keys, splits)
    left_out = {"empty_or_copies": copies, "in_both": crossed, "bad_rows": bad_rows.count}
    told = f"{copies:,} copies and {crossed:,} validation rows with a text of a training row left out"
    say(f"Read {len(keys):,} rows from {spec.data} ({told})")
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    plain = [[digest.hex(), key.label, splits[digest]] for digest, key in keys.items()]
    origins = {digest: key.split for digest, key in keys.items()}
    return Table(content_hash(plain), labels, sizes, left_out, source, columns, splits, origins)


def _divided(spec: TableSpec, keys: dict[bytes, _Key], given: set[str]) -> dict[bytes, str]:
    """Digest to split: the source's, and by hash what it does not divide."""
    shares = {"validation": spec.validation_share, TEST: spec.test_share}
    wanted = {part: share for part, share in shares.items() if share and part not in given}
    splits = {digest: key.split or "train" for digest, key in keys.items()}
    if not wanted:
        return splits
    units = {
        digest: _digest((key.label,)) if spec.held_out_by_label else digest
        for digest, key in keys.items()
        if splits[digest] == "train"
    }
    ranked = sorted(set(units.values()))
    if len(ranked) <= len(wanted):
        what = "label" if spec.held_out_by_label else "row"
        raise DataError(
            f"{'one' if len(ranked) == 1 else len(ranked)} {what}{'' if len(ranked) == 1 else 's'} cannot be divided"
            f" into training and {' and '.join(wanted)}",
            where=spec.data,
            expected=f"at least {'two' if len(wanted) == 1 else 'three'} different {what}s",
            remedy="Give more rows.",
        )
    held_out: dict[bytes, str] = {}
    for place, (part, share) in enumerate(wanted.items()):
        room = len(ranked) - len(held_out) - (len(wanted) - place)
        first = len(held_out)
        count = min(max(1, round(share * len(ranked))), room)
        held_out |= dict.fromkeys(ranked[first : first + count], part)
    return splits | {digest: held_out.get(unit, "train") for digest, unit in units.items()}


def _labels(spec: TableSpec, keys: dict[bytes, _Key], splits: dict[bytes, str]) -> tuple[str, ...]:
    found: dict[str, set[str]] = {"train": set(), "validation": set(), TEST: set(), "": set()}
    for digest, key in keys.items():
        found[splits[digest]].add(key.label)
    if spec.held_out_by_label:
        return tuple(sorted(found["train"] | found["validation"] | found[TEST]))
    for part in ("validation", TEST):
        unseen = found[part] - found["train"]
        if not unseen:
            continue
        first = next(key for digest, key in keys.items() if splits[digest] == part and key.label in unseen)
        raise DataError(
            f"the label {first.label!r} is only in {part}",
            where=first.where,
            expected="labels that training rows have too",
            got=f"{len(unseen):,} that they have not",
            remedy="Give more rows of such labels, or take them out.",
        )
    if len(found["train"]) < 2:
        raise DataError(
            "all training rows have one label",
            where=spec.data,
            got=repr(next(iter(found["train"]), "")),
            remedy=f"Check that `{spec.label_column}` is the column of the labels.",
        )
    return tuple(sorted(found["train"], key=_natural))


def _natural(label: str) -> tuple[int, str]:
    return (int(label), "") if label.isascii() and label.isdecimal() and len(label) < 19 else (1 << 62, label)


def _digest(texts: Sequence[str]) -> bytes:
    whole = hashlib.sha256()
    for text in texts:
        data = text.encode()
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.digest()

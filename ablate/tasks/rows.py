"""Deduplicated rows of a source in a training, a validation and optionally a test split."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.spec.task import SPLITS, Say
from ablate.tasks.sources import TEST, BadRows, Row, Source, parse

_RANK = {"train": 0, "": 0, "validation": 1, TEST: 2}
"""Precedence of the source's splits for a row that is in several of them; the lowest number wins."""


Key = tuple[bytes, ...]
"""Digests that identify a row."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a source in splits, with unique texts; each iteration reads the source again.

    Attributes:
        fingerprint: Content hash of all rows and their splits, in order.
        sizes: Number of rows in each split.
        left_out: Number of rows that were left out, by reason.
        labels: All labels of the training rows, sorted; empty without labels.
    """

    fingerprint: str
    sizes: dict[str, int]
    left_out: dict[str, int]
    source: Source = field(repr=False)
    columns: tuple[str, ...] = field(repr=False)
    key: Callable[[Row], Key] = field(repr=False)
    """What identifies a row."""
    splits: Mapping[Key, str] = field(repr=False)
    """Split of each row; empty for rows that are left out."""
    labels: tuple[str, ...] = ()
    origins: Mapping[Key, str] | None = field(default=None, repr=False)
    """Split of each row in the source, which tells apart equal rows in several of them; None if the first counts."""

    def rows(self, split: str) -> Iterator[Row]:
        """The rows of a split, with their values in the order of `columns`.

        Raises:
            DataError: The rows have changed since the table was first read.
        """
        seen: set[Key] = set()
        for row in self.source.rows(self.columns, BadRows(refuse=False), lambda line: None):
            key = self.key(row)
            if key in seen or self.splits.get(key) != split:
                continue
            if self.origins is None or self.origins[key] == row.split:
                seen.add(key)
                yield row
        if len(seen) != self.sizes[split]:
            raise DataError(
                "the data changed while it was read", where=self.source.address, remedy="Run the command again."
            )


def without_shared_texts(
    splits: Mapping[Key, str], order: Iterable[str], texts: Callable[[Key], Iterable[Hashable]]
) -> tuple[dict[Key, str], dict[str, int]]:
    """Leave out rows with a text that a row of another split has.

    Args:
        splits: Split of each row.
        order: The splits, that which keeps a text of several first.
        texts: The texts of a row, by its key.

    Returns:
        The split of each row, empty for those that are left out; the number of rows that each split keeps.
    """
    divided, sizes, known = dict(splits), dict[str, int](), set[Hashable]()
    for name in order:
        members = [key for key, split in splits.items() if split == name]
        shared = [key for key in members if not known.isdisjoint(texts(key))]
        divided |= dict.fromkeys(shared, "")
        sizes[name] = len(members) - len(shared)
        known.update(text for key in members for text in texts(key))
    return divided, sizes


class _Kept(NamedTuple):
    """What is kept of a row in memory until the splits are known."""

    texts: tuple[bytes, ...]
    label: str
    split: str
    where: str


class TableSpec(Protocol):
    """The fields of a task spec that determine how its rows are read and split."""

    @property
    def data(self) -> str:
        """The address of the source."""

    @property
    def bad_rows(self) -> Literal["refuse", "skip"]:
        """Whether a bad row raises an error, or is skipped and counted."""

    @property
    def validation_share(self) -> float:
        """Share of the rows for validation, if the source has no such split."""

    @property
    def test_share(self) -> float:
        """Share of the rows for the test, if the source has no such split; 0: no test."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold text."""

    @property
    def label_column(self) -> str:
        """The column that holds the label."""

    @property
    def held_out_by_label(self) -> bool:
        """Whether all rows of a label are held out together, instead of single rows."""


def read_table(spec: TableSpec, say: Say) -> Table:
    """Read the rows of a source and assign them to splits.

    Rows with texts that were read before are dropped. If the source has no validation split (or no requested test
    split), the rows (or labels) with the smallest hashes are held out. A text in several splits is kept in training
    first, then in validation, then in the test split.

    Raises:
        DataError: The source is missing or unreadable, has no rows in a split, or has a held-out label that does not
            occur in training.
    """
    source = parse(spec.data, with_test=spec.test_share > 0)
    bad_rows = BadRows(spec.bad_rows == "refuse")
    columns = (*spec.text_columns, spec.label_column)
    keys: dict[Key, _Kept] = {}
    source_splits: set[str] = set()
    read = crossing = 0
    for row in source.rows(columns, bad_rows, say):
        read += 1
        source_splits.add(row.split)
        *texts, label = row.values
        kept = _Kept(tuple(_digest((text,)) for text in texts), label, row.split, row.where)
        known = keys.setdefault(_texts_key(row), kept)
        if known.split != row.split:
            crossing += 1
            keys[_texts_key(row)] = min(known, kept, key=lambda candidate: _RANK[candidate.split])
    if not keys:
        raise DataError("the source contains no rows", where=spec.data, remedy="Name a source that contains rows.")
    splits = _divide(spec, keys, source_splits)
    names = [*SPLITS, *([TEST] if spec.test_share else [])]
    splits, sizes = without_shared_texts(splits, names, lambda key: keys[key].texts)
    crossed, duplicates = crossing + len(keys) - sum(sizes.values()), read - len(keys) - crossing
    for split, size in sizes.items():
        if not size:
            raise DataError(
                f"no {split} rows are left",
                where=spec.data,
                got=f"{read:,} rows read, {duplicates:,} duplicates, {crossed:,} in several splits",
                remedy="Provide more rows with distinct texts.",
            )
    labels = _labels(spec, keys, splits)
    left_out = {"empty_or_copies": duplicates, "in_both": crossed, "bad_rows": bad_rows.count}
    counts = f"{duplicates:,} duplicates and {crossed:,} rows with a text of another split left out"
    say(f"Read {len(keys):,} rows from {spec.data} ({counts})")
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    plain = [[digest.hex(), kept.label, splits[digest,]] for (digest,), kept in keys.items()]
    origins = {key: kept.split for key, kept in keys.items()}
    return Table(content_hash(plain), sizes, left_out, source, columns, _texts_key, splits, labels, origins)


def _texts_key(row: Row) -> Key:
    return (_digest(row.values[:-1]),)


def _divide(spec: TableSpec, keys: dict[Key, _Kept], source_splits: set[str]) -> dict[Key, str]:
    """Split of each row by digest: the split in the source if it has one, otherwise by hash."""
    shares = {"validation": spec.validation_share, TEST: spec.test_share}
    missing = {name: share for name, share in shares.items() if share and name not in source_splits}
    splits = {digest: key.split or "train" for digest, key in keys.items()}
    if not missing:
        return splits
    units = {
        digest: (_digest((key.label,)),) if spec.held_out_by_label else digest
        for digest, key in keys.items()
        if splits[digest] == "train"
    }
    ranked = sorted(set(units.values()))
    if len(ranked) <= len(missing):
        what = "label" if spec.held_out_by_label else "row"
        raise DataError(
            f"{'one' if len(ranked) == 1 else len(ranked)} {what}{'' if len(ranked) == 1 else 's'} cannot be split"
            f" into training and {' and '.join(missing)}",
            where=spec.data,
            expected=f"at least {'two' if len(missing) == 1 else 'three'} different {what}s",
            remedy="Provide more rows.",
        )
    held_out: dict[Key, str] = {}
    for position, (name, share) in enumerate(missing.items()):
        room = len(ranked) - len(held_out) - (len(missing) - position)
        first = len(held_out)
        count = min(max(1, round(share * len(ranked))), room)
        held_out |= dict.fromkeys(ranked[first : first + count], name)
    return splits | {digest: held_out.get(unit, "train") for digest, unit in units.items()}


def _labels(spec: TableSpec, keys: dict[Key, _Kept], splits: dict[Key, str]) -> tuple[str, ...]:
    labels: dict[str, set[str]] = {"train": set(), "validation": set(), TEST: set(), "": set()}
    for digest, key in keys.items():
        labels[splits[digest]].add(key.label)
    if spec.held_out_by_label:
        return tuple(sorted(labels["train"] | labels["validation"] | labels[TEST]))
    for name in ("validation", TEST):
        unseen = labels[name] - labels["train"]
        if not unseen:
            continue
        first = next(key for digest, key in keys.items() if splits[digest] == name and key.label in unseen)
        raise DataError(
            f"the label {first.label!r} occurs only in {name}",
            where=first.where,
            expected="labels that also occur in training",
            got=f"{len(unseen):,} labels that do not",
            remedy="Provide more rows with these labels, or leave them out.",
        )
    if len(labels["train"]) < 2:
        raise DataError(
            "all training rows have one label",
            where=spec.data,
            got=repr(next(iter(labels["train"]), "")),
            remedy=f"Check that `{spec.label_column}` is the column of the labels.",
        )
    return tuple(sorted(labels["train"], key=_natural))


def _natural(label: str) -> tuple[int, str]:
    return (int(label), "") if label.isascii() and label.isdecimal() and len(label) < 19 else (1 << 62, label)


def _digest(texts: Sequence[str]) -> bytes:
    whole = hashlib.sha256()
    for text in texts:
        data = text.encode()
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.digest()

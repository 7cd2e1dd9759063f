"""Texts with labels: rows of a source, read, divided, tokenized and kept as arrays; for classification and matching.

Shapes: B batch, T tokens.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ablate.errors import DataError
from ablate.spec.base import OneOf, content_hash
from ablate.tasks import cache as prepared
from ablate.tasks.arrays import GrowingArray, mapped, token_dtype
from ablate.tasks.base import DataShape, Say, Task, TaskSpec
from ablate.tasks.sources import BadRows, Row, Source, check_address, parse
from ablate.tasks.tokenizers import Again, Tokenizer, TokenizerSpec

CODE_VERSION = 1
"""Part of the key of prepared data: raised whenever reading, dividing or tokenizing comes to mean something else."""

SPLITS = ("train", "validation")
LABELS = "labels.json"


class LabelledSpec(TaskSpec):
    """A task on texts with labels."""

    data: str
    """Address of the rows: `builtin:python_stdlib`, `file:PATH` with a table, a glob or a folder, or `hub:NAME`. Where
    files or splits are named `train` and `validation` (`valid`, `val`, `dev`) they are the two parts; else a share of
    the rows is held out."""
    tokenizer: Annotated[TokenizerSpec, OneOf]
    """How text becomes tokens."""
    context: int = Field(ge=1, le=1_000_000)
    """Tokens in one text at most; shorter ones are padded."""
    long_texts: Literal["truncate", "window", "refuse"] = "truncate"
    """What happens to a text with more tokens than the context: its beginning is read; or windows of it, in training
    at random places; or the preparation stops."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row stops the preparation, or is left out and counted."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the rows that is held out for validation, where the source has no division of its own."""
    validation_rows: int = Field(default=1000, ge=1)
    """Rows that an evaluation reads, spread evenly; all if there are fewer."""

    @field_validator("data")
    @classmethod
    def _names_a_source(cls, data: str) -> str:
        return check_address(data)

    @property
    def length(self) -> int:
        """See `TaskSpec.length`: the context."""
        return self.context

    @property
    @abstractmethod
    def text_columns(self) -> tuple[str, ...]:
        """The columns that are texts."""

    @property
    @abstractmethod
    def label_column(self) -> str:
        """The column that is not."""

    @property
    def held_out_by_label(self) -> bool:
        """Whether whole labels are held out, not single rows."""
        return False

    def missing(self) -> str | None:
        """See `TaskSpec.missing`."""
        return parse(self.data).missing()

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, divide and tokenize the rows, unless `cache` holds the result for the very same rows.

        Raises:
            DataError: The rows are missing or unfit.
        """
        table = read_table(self, say)
        revision = table.source.revision()
        key = content_hash(
            {
                "rows": table.fingerprint,
                "tokenizer": self.tokenizer.identity(),
                "validation_share": self.validation_share,
                "by_label": self.held_out_by_label,
                "code": CODE_VERSION,
                **({"revision": revision} if revision else {}),
            }
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(table, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def _build(self, table: Table, folder: Path, say: Say) -> dict[str, Any]:
        say(f"Learning the tokenizer ({self.tokenizer.kind_name()}) from {table.sizes['train']:,} training rows")
        tokenizer = self.tokenizer.train(Again(lambda: (t for row in table.rows("train") for t in row.values[:-1])))
        say("Turning the text into tokens")
        about: dict[str, Any] = {"data": self.data, "tokenizer": self.tokenizer.canonical()}
        for split in SPLITS:
            about[split] = {"rows": table.sizes[split], "tokens": self._write(table, split, tokenizer, folder)}
        (folder / LABELS).write_text(json.dumps(table.labels, ensure_ascii=False), encoding="utf-8")
        tokenizer.save(folder)
        about["left_out"] = table.left_out
        return about

    def _write(self, table: Table, split: str, tokenizer: Tokenizer, folder: Path) -> int:
        """Texts side by side: the columns of a row follow each other, so row r has texts r·columns and on."""
        number = {label: index for index, label in enumerate(table.labels)}
        labels: list[int] = []

        def texts() -> Iterator[str]:
            for row in table.rows(split):
                labels.append(number[row.values[-1]])
                yield from row.values[:-1]

        ends = [0]
        with GrowingArray(folder / f"{split}.tokens.npy", token_dtype(tokenizer.vocabulary)) as tokens:
            for ids in tokenizer.encode_all(texts()):
                tokens.append(ids)
                ends.append(tokens.size)
        np.save(folder / f"{split}.ends.npy", np.array(ends, dtype=np.int64))
        np.save(folder / f"{split}.labels.npy", np.array(labels, dtype=np.int64))
        return tokens.size


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
    divided_by_source: bool = field(repr=False)

    def rows(self, split: str) -> Iterator[Row]:
        """The rows of a split, texts first and the label last.

        Raises:
            DataError: The rows are not what they were when the table was made.
        """
        seen: set[bytes] = set()
        for row in self.source.rows(self.columns, BadRows(refuse=False), lambda line: None):
            if self.divided_by_source and row.split != split:
                continue
            digest = _digest(row.values[:-1])
            if digest not in seen and self.splits.get(digest) == split:
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


def read_table(spec: LabelledSpec, say: Say) -> Table:
    """Read the rows of a source and divide them.

    Rows whose texts were read before are dropped. Where the source has no division of its own, the rows (or labels)
    with the smallest hashes are held out. A validation row with a text that is in a training row is dropped.

    Raises:
        DataError: The source is missing or unfit, has no training or validation rows, or a label only in validation.
    """
    source, bad_rows = parse(spec.data), BadRows(spec.bad_rows == "refuse")
    columns = (*spec.text_columns, spec.label_column)
    keys: dict[bytes, _Key] = {}
    read = crossing = 0
    divided_by_source = False
    for row in source.rows(columns, bad_rows, say):
        read += 1
        *texts, label = row.values
        digests = tuple(_digest((text,)) for text in texts)
        key = _Key(digests, label, row.split, row.where)
        divided_by_source |= row.split == "validation"
        known = keys.setdefault(_digest(texts), key)
        if known.split != row.split:  # a text of both parts belongs to training
            crossing += 1
            keys[_digest(texts)] = key if row.split == "train" else known
    if not keys:
        raise DataError("the source has no rows in it", where=spec.data, remedy="Name a source that holds rows.")
    splits = {digest: key.split for digest, key in keys.items()} if divided_by_source else _divided(spec, keys)
    training_texts = {text for digest, key in keys.items() if splits[digest] == "train" for text in key.texts}
    in_both = [
        digest
        for digest, key in keys.items()
        if splits[digest] == "validation" and not training_texts.isdisjoint(key.texts)
    ]
    splits |= dict.fromkeys(in_both, "")
    crossed, copies = len(in_both) + crossing, read - len(keys) - crossing
    sizes = {split: sum(value == split for value in splits.values()) for split in SPLITS}
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
    return Table(content_hash(plain), labels, sizes, left_out, source, columns, splits, divided_by_source)


def _divided(spec: LabelledSpec, keys: dict[bytes, _Key]) -> dict[bytes, str]:
    """Digest to split, by hash."""
    units = {digest: _digest((key.label,)) if spec.held_out_by_label else digest for digest, key in keys.items()}
    ranked = sorted(set(units.values()))
    if len(ranked) < 2:
        what = "label" if spec.held_out_by_label else "row"
        raise DataError(
            f"one {what} cannot be divided into training and validation",
            where=spec.data,
            expected=f"at least two different {what}s",
            remedy="Give more rows.",
        )
    count = min(max(1, round(spec.validation_share * len(ranked))), len(ranked) - 1)
    held_out = set(ranked[:count])
    return {digest: "validation" if unit in held_out else "train" for digest, unit in units.items()}


def _labels(spec: LabelledSpec, keys: dict[bytes, _Key], splits: dict[bytes, str]) -> tuple[str, ...]:
    found: dict[str, set[str]] = {"train": set(), "validation": set(), "": set()}
    for digest, key in keys.items():
        found[splits[digest]].add(key.label)
    if spec.held_out_by_label:
        return tuple(sorted(found["train"] | found["validation"]))
    unseen = found["validation"] - found["train"]
    if unseen:
        first = next(key for digest, key in keys.items() if splits[digest] == "validation" and key.label in unseen)
        raise DataError(
            f"{len(unseen)} labels are only in validation, the first of them {first.label!r}",
            where=first.where,
            expected="labels that training rows have too",
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


class Split:
    """The prepared texts and labels of one split.

    Attributes:
        tokens: All texts, end to end.
        ends: Where text t begins (ends[t]) and ends (ends[t + 1]).
        labels: Class of every row.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.tokens = mapped(folder / f"{split}.tokens.npy")
        self.ends = mapped(folder / f"{split}.ends.npy")
        self.labels = mapped(folder / f"{split}.labels.npy")

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every text."""
        return np.diff(self.ends)

    def cut(
        self, texts: NDArray[np.int64], offsets: NDArray[np.int64], context: int, padding_id: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Tokens of texts from offsets on, at most `context`, padded: ids and what is real, both [B, T]."""
        starts = self.ends[texts] + offsets
        places = starts[:, None] + np.arange(context)
        real = places < self.ends[texts + 1][:, None]
        ids = np.where(real, self.tokens[np.minimum(places, max(0, self.tokens.size - 1))], padding_id)
        return ids.astype(np.int64), real


class Labelled(Task):
    """Prepared texts with labels.

    Args:
        spec: The task.
        folder: Prepared data, verified.
        fingerprint: Of the prepared data.
        classes: Number of classes; None: as many as there are labels.

    Raises:
        DataError: A text is longer than the context, and the spec refuses that.
    """

    def __init__(self, spec: LabelledSpec, folder: Path, fingerprint: str, classes: int | None = None) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self.train, self.validation = (Split(folder, split) for split in SPLITS)
        self.labels: list[str] = json.loads((folder / LABELS).read_text(encoding="utf-8"))
        self._folder = folder
        self.shape = DataShape(self.tokenizer.vocabulary, spec.context, classes or len(self.labels))
        if spec.long_texts == "refuse":
            longest = max(int(split.lengths.max(initial=0)) for split in (self.train, self.validation))
            too_long = sum(int((split.lengths > spec.context).sum()) for split in (self.train, self.validation))
            if too_long:
                raise DataError(
                    f"{too_long:,} texts are longer than the context",
                    where=spec.data,
                    expected=f"at most {spec.context:,} tokens",
                    got=f"{longest:,} in the longest",
                    remedy="Raise `context`, or set `long_texts` to truncate or window.",
                )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the texts were prepared with."""
        return self.spec.tokenizer.load(self._folder)

    def windows(self, split: Split) -> NDArray[np.int64]:
        """Every window of every text that may be read, as rows (text, offset); one for a text unless it is windowed."""
        counts = np.ones(split.lengths.size, dtype=np.int64)
        if self.spec.long_texts == "window":
            counts = np.maximum(1, split.lengths // self.spec.context)
        texts = np.repeat(np.arange(counts.size), counts)
        offsets = (np.arange(texts.size) - np.repeat(np.cumsum(counts) - counts, counts)) * self.spec.context
        return np.stack([texts, offsets], axis=1)

    def random_offsets(self, texts: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Where a training window of each text begins: 0, or anywhere if texts are windowed."""
        if self.spec.long_texts != "window":
            return np.zeros_like(texts)
        room = np.maximum(0, self.train.lengths[texts] - self.spec.context) + 1
        return np.asarray((uniforms * room).astype(np.int64))

    def text(self, ids: NDArray[np.int64], real: NDArray[np.bool_]) -> str:
        """The text of one padded row."""
        return self.tokenizer.decode(ids[real])

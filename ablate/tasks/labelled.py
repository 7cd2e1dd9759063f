"""Texts with labels: rows of a source, tokenized and kept as arrays; for classification and matching.

Shapes: B batch, T tokens.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.tasks import cache as prepared
from ablate.tasks.arrays import GrowingArray, mapped, token_dtype
from ablate.tasks.base import PARTS, DataShape, Say, Task
from ablate.tasks.rows import Table, read_table
from ablate.tasks.sourced import TokenizedSpec
from ablate.tasks.sources import TEST, Address
from ablate.tasks.tokenizers import Again, Tokenizer

CODE_VERSION = 1
"""Part of the key of prepared data: raised whenever reading, dividing or tokenizing comes to mean something else."""

LABELS = "labels.json"


class LabelledSpec(TokenizedSpec):
    """A task on texts with labels."""

    data: Address
    """Address of the rows: `builtin:python_stdlib`, `file:PATH` with a table, a glob or a folder, or `hub:NAME`. Where
    files or splits are named `train` and `validation` (`valid`, `val`, `dev`) they are the two parts; else a share of
    the rows is held out."""
    context: int = Field(ge=1, le=1_000_000)
    """Tokens in one text at most; shorter ones are padded."""
    long_texts: Literal["truncate", "window", "refuse"] = "truncate"
    """What happens to a text with more tokens than the context: its beginning is read; or windows of it, in training
    at random places; or the preparation stops."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the rows that is held out for validation, where the source has no division of its own."""
    validation_rows: int = Field(default=1000, ge=1)
    """Rows that an evaluation reads, spread evenly; all if there are fewer."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the rows that is held out for a test, where the source has no part named `test`; measured once, at the
    end of a trial, on all of its rows; 0: no test."""

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
                **({"test_share": self.test_share} if self.test_share else {}),
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
        for split in table.sizes:
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
        self.train, self.validation = (Split(folder, split) for split in PARTS)
        self.test = Split(folder, TEST) if spec.test_share else None
        self.splits = {"train": self.train, "validation": self.validation, **({TEST: self.test} if self.test else {})}
        self.labels: list[str] = json.loads((folder / LABELS).read_text(encoding="utf-8"))
        self._folder = folder
        self.shape = DataShape(self.tokenizer.vocabulary, spec.context, classes or len(self.labels))
        if spec.long_texts == "refuse":
            longest = max(int(split.lengths.max(initial=0)) for split in self.splits.values())
            too_long = sum(int((split.lengths > spec.context).sum()) for split in self.splits.values())
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

    def sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Rows and tokens of each part."""
        rows = {part: split.labels.size for part, split in self.splits.items()}
        return rows, {part: split.tokens.size for part, split in self.splits.items()}

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

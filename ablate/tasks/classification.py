"""Texts with labels, tokenized and stored as arrays; and `classification`: predict the label of a text.

Shapes: K pack, B batch, T tokens, C classes, V vocabulary.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.spec.task import SPLITS, DataShape, DataSummary, Say, Task
from ablate.tasks import cache as prepared
from ablate.tasks import scores
from ablate.tasks.cache import GrowingArray, open_array, spread, token_dtype
from ablate.tasks.rows import Table, read_table
from ablate.tasks.sampling import Draws
from ablate.tasks.sources import TEST, Address, TokenizedSpec
from ablate.tasks.text import left_out
from ablate.tasks.tokenizers import ReiterableTexts, Tokenizer

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch

CODE_VERSION = 1
"""Part of the key of prepared data. Increment it when reading, splitting or tokenizing changes."""

LABELS = "labels.json"


class LabelledSpec(TokenizedSpec):
    """A task on texts with labels."""

    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_accuracy", "val_macro_f1"})
    pooled: ClassVar[bool | None] = True

    data: Address
    """Address of the rows: `builtin:python_stdlib`, `file:PATH` with a table, a glob or a folder, or `hub:NAME`. Files
    or splits named `train` and `validation` (`valid`, `val`, `dev`) are used as such; otherwise a share of the rows is
    held out."""
    context: int = Field(ge=1, le=1_000_000)
    """Maximum number of tokens in a text; shorter texts are padded."""
    long_texts: Literal["truncate", "window", "refuse"] = "truncate"
    """What to do with a text of more tokens than the context: `truncate` keeps its beginning; `window` reads windows of
    it, at random positions in training; `refuse` stops the preparation."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the rows that is held out for validation, if the source has no validation split."""
    validation_rows: int = Field(default=1000, ge=1)
    """Number of evenly spaced rows that an evaluation reads; all if there are fewer."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the rows that is held out for a test, if the source has no test split. All test rows are measured once,
    at the end of a trial. 0: no test."""

    @property
    @abstractmethod
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold text."""

    @property
    @abstractmethod
    def label_column(self) -> str:
        """The column that holds the label."""

    @property
    def held_out_by_label(self) -> bool:
        """Whether all rows of a label are held out together, instead of single rows."""
        return False

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, split and tokenize the rows, unless `cache` holds the result for the same rows.

        Raises:
            DataError: The rows are missing or invalid.
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
                **prepared.users_code(self),
                **({"revision": revision} if revision else {}),
                **({"test_share": self.test_share} if self.test_share else {}),
            }
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(table, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def _build(self, table: Table, folder: Path, say: Say) -> dict[str, Any]:
        say(f"Training the tokenizer ({self.tokenizer.kind_name()}) from {table.sizes['train']:,} training rows")
        tokenizer = self.tokenizer.train(
            ReiterableTexts(lambda: (t for row in table.rows("train") for t in row.values[:-1]))
        )
        say("Tokenizing the text")
        about: dict[str, Any] = {"data": self.data, "tokenizer": self.tokenizer.canonical()}
        for split in table.sizes:
            about[split] = {"rows": table.sizes[split], "tokens": self._write(table, split, tokenizer, folder)}
        (folder / LABELS).write_text(json.dumps(table.labels, ensure_ascii=False), encoding="utf-8")
        tokenizer.save(folder)
        about["left_out"] = table.left_out
        return about

    def _write(self, table: Table, split: str, tokenizer: Tokenizer, folder: Path) -> int:
        """Write the texts one after another, row by row: row r has the texts r·columns to (r + 1)·columns - 1."""
        index_of = {label: index for index, label in enumerate(table.labels)}
        labels: list[int] = []

        def texts() -> Iterator[str]:
            for row in table.rows(split):
                labels.append(index_of[row.values[-1]])
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
    """Prepared texts and labels of one split.

    Attributes:
        tokens: The tokens of all texts, concatenated.
        ends: Text t begins at ends[t] and ends at ends[t + 1].
        labels: Class of each row.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.tokens = open_array(folder / f"{split}.tokens.npy")
        self.ends = open_array(folder / f"{split}.ends.npy")
        self.labels = open_array(folder / f"{split}.labels.npy")

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens in each text."""
        return np.diff(self.ends)

    def cut(
        self, texts: NDArray[np.int64], offsets: NDArray[np.int64], context: int, padding_id: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Up to `context` tokens of each text from its offset, padded: ids and the mask of real tokens, [B, T]."""
        starts = self.ends[texts] + offsets
        positions = starts[:, None] + np.arange(context)
        real = positions < self.ends[texts + 1][:, None]
        ids = np.where(real, self.tokens[np.minimum(positions, max(0, self.tokens.size - 1))], padding_id)
        return ids.astype(np.int64), real


class Labelled(Task):
    """Prepared texts with labels.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.
        classes: Number of classes; None: the number of labels.

    Raises:
        DataError: A text is longer than the context and `long_texts` is `refuse`.
    """

    def __init__(self, spec: LabelledSpec, folder: Path, fingerprint: str, classes: int | None = None) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self.train, self.validation = (Split(folder, split) for split in SPLITS)
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

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member in nats: outputs [K, B, C], labels [K, B] -> [K]."""
        return scores.cross_entropy(outputs, batch["labels"]).mean(1)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        return scores.totals(outputs, batch["labels"])

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats), `val_accuracy`, `val_macro_f1`."""
        return scores.scores(sums)

    def summary(self, samples: Iterable[str], notes: Iterable[str] = ()) -> DataSummary:
        """Numbers of rows, tokens and labels; lengths; samples; notes on what was left out, before those given."""
        counts = np.bincount(self.train.labels, minlength=len(self.labels))
        lengths = self.train.lengths[spread(self.train.lengths.size, 1_000_000)]
        return DataSummary(
            rows={name: split.labels.size for name, split in self.splits.items()},
            tokens={name: split.tokens.size for name, split in self.splits.items()},
            lengths=tuple(lengths.tolist()),
            labels=dict(zip(self.labels, counts.tolist(), strict=True)),
            samples=tuple(samples),
            notes=(*left_out(prepared.about(self._folder)), *notes),
        )

    def windows(self, split: Split) -> NDArray[np.int64]:
        """All windows of all texts as rows (text, offset). A text has one window unless `long_texts` is `window`."""
        counts = np.ones(split.lengths.size, dtype=np.int64)
        if self.spec.long_texts == "window":
            counts = np.maximum(1, split.lengths // self.spec.context)
        texts = np.repeat(np.arange(counts.size), counts)
        offsets = (np.arange(texts.size) - np.repeat(np.cumsum(counts) - counts, counts)) * self.spec.context
        return np.stack([texts, offsets], axis=1)

    def random_offsets(self, texts: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Offset of a training window in each text: 0, or uniformly random if `long_texts` is `window`."""
        if self.spec.long_texts != "window":
            return np.zeros_like(texts)
        room = np.maximum(0, self.train.lengths[texts] - self.spec.context) + 1
        return np.asarray((uniforms * room).astype(np.int64))

    def text(self, ids: NDArray[np.int64], real: NDArray[np.bool_]) -> str:
        """The text of one padded row."""
        return self.tokenizer.decode(ids[real])


_COUNTED_ROWS = 100_000
"""Maximum number of training texts, evenly spaced, that the unigram baseline counts."""


class ClassificationSpec(LabelledSpec):
    """Predict the label of a text.

    With `builtin:python_stdlib`, the label is the `package` of a file. A column of numbers can be the label. In a table
    without a header, columns are named by their number, counted from 1.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder"})

    kind: Literal["classification"] = "classification"
    """Predict the label of a text."""
    text: str = "text"
    """The column of the text."""
    label: str = "label"
    """The column of the label."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.text,)

    @property
    def label_column(self) -> str:
        return self.label

    def open(self, cache: Path, fingerprint: str) -> Classification:
        """Memory-map the prepared texts after verifying their checksums.

        Raises:
            DataError: The prepared files are missing or damaged, or a text is too long.
        """
        return Classification(self, prepared.locate(cache, fingerprint), fingerprint)


class Classification(Labelled):
    """The task of `ClassificationSpec`. Classes are the sorted labels of the training rows; numbers sort by value.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.

    Raises:
        DataError: A text is longer than the context and `long_texts` is `refuse`.
    """

    def __init__(self, spec: ClassificationSpec, folder: Path, fingerprint: str) -> None:
        super().__init__(spec, folder, fingerprint)
        windows = self.windows(self.validation)
        self._windows = windows[spread(len(windows), spec.validation_rows)]

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Uniformly sampled rows: `inputs` int64 and `padding` bool (True: real token) [B, T], `labels` int64 [B]."""
        drawn = Draws(f"{self.fingerprint}/{seed}/{step}/{batch_size}")
        texts = drawn.integers(self.train.labels.size, batch_size)
        offsets = self.random_offsets(texts, drawn.uniforms(batch_size))
        return self._batch(*self._cut(self.train, texts, offsets))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same rows, or windows of them, at each call, in the format of `train_batch`."""
        return self._batches(self.validation, self._windows, batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """All rows of the test split, or windows of them, in the format of `train_batch`."""
        return self._batches(self.test, self.windows(self.test), batch_size) if self.test else iter(())

    def _batches(self, split: Split, windows: NDArray[np.int64], batch_size: int) -> Iterator[Batch]:
        for first in range(0, len(windows), batch_size):
            texts, offsets = windows[first : first + batch_size].T
            yield self._batch(*self._cut(split, texts, offsets))

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    def baselines(self) -> dict[str, dict[str, float]]:
        """The majority class, and naive Bayes over single tokens with add-one smoothing.

        Of a training text the tokens count that a model may see: its beginning, or all if it is read in windows.
        """
        classes = self.shape.classes
        texts, offsets = self._windows.T
        truth = self.validation.labels[texts]
        counts = np.ones((classes, self.shape.vocabulary))
        counted = spread(self.train.labels.size, _COUNTED_ROWS)
        for text in counted:
            ids = self.train.tokens[self.train.ends[text] : self.train.ends[text + 1]]
            seen = ids if self.spec.long_texts == "window" else ids[: self.shape.context]
            counts[self.train.labels[text]] += np.bincount(seen, minlength=self.shape.vocabulary)
        logs = np.log(counts / counts.sum(1, keepdims=True))
        prior = np.bincount(self.train.labels, minlength=classes) + 1.0
        joint = np.tile(np.log(prior / prior.sum()), (truth.size, 1))
        for row, (text, offset) in enumerate(zip(texts, offsets, strict=True)):
            ids, real, _ = self._cut(self.validation, np.array([text]), np.array([offset]))
            joint[row] += logs[:, ids[real]].sum(1)
        joint -= np.logaddexp.reduce(joint, axis=1, keepdims=True)
        return {
            "majority class": scores.majority(self.train.labels, truth, classes),
            "unigram": scores.of_log_probabilities(joint, truth),
        }

    def describe(self) -> DataSummary:
        """Rows, tokens, labels, and three evenly spaced training rows."""
        shown = spread(self.train.labels.size, 3)
        ids, real, labels = self._cut(self.train, shown, np.zeros_like(shown))
        longer = float((self.train.lengths > self.spec.context).mean())
        return self.summary(
            (f"{self.labels[labels[i]]}: {self.text(ids[i], real[i])}" for i in range(shown.size)),
            [f"{longer:.0%} of the texts are longer than the context: {self.spec.long_texts}"] if longer else (),
        )

    def _cut(
        self, split: Split, texts: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        ids, real = split.cut(texts, offsets, self.shape.context, self.tokenizer.end_of_document)
        return ids, real, np.asarray(split.labels[texts])

    def _batch(self, ids: NDArray[np.int64], real: NDArray[np.bool_], labels: NDArray[np.int64]) -> Batch:
        import torch

        arrays = {"inputs": ids, "padding": real, "labels": labels}
        return {name: torch.from_numpy(values) for name, values in arrays.items()}

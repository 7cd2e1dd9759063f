"""Text laid end to end: what `language_model` and `masked_language_model` share.

Shapes: B batch, T tokens, W a window's tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ablate.errors import DataError
from ablate.spec.base import OneOf, content_hash
from ablate.tasks import cache as prepared
from ablate.tasks.arrays import GrowingArray, mapped, spread, token_dtype
from ablate.tasks.base import DataShape, DataSummary, Say, Task, TaskSpec
from ablate.tasks.corpus import Corpus, read_corpus
from ablate.tasks.random_stream import Draws
from ablate.tasks.sources import check_address, parse
from ablate.tasks.tokenizers import Again, Tokenizer, TokenizerSpec

CODE_VERSION = 1
"""Part of the key of prepared data: raised whenever reading, dividing or tokenizing comes to mean something else."""

TRAIN, VALIDATION, TOKEN_BYTES = "train.npy", "validation.npy", "token_bytes.npy"

_COUNTED = 1 << 24
"""Training tokens, spread evenly in runs, that the trivial baselines are counted on: memory stays flat."""
_RUN = 1 << 16


class TextSpec(TaskSpec):
    """A task on text.

    The documents are divided into training and validation as a whole, tokenized, and laid end to end, each followed
    by an end-of-document token. A window may reach over the end of a document. A vocabulary is learnt from the
    training documents alone.
    """

    data: str
    """Address of the text: `builtin:python_stdlib`, `file:PATH` with a file, a glob or a folder, or `hub:NAME`."""
    tokenizer: Annotated[TokenizerSpec, OneOf]
    """How text becomes tokens."""
    context: int = Field(ge=2, le=1_000_000)
    """Tokens in one input."""
    text: str = "text"
    """The column of a table that holds the text."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row of a table stops the preparation, or is left out and counted."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the documents that is held out for validation."""
    validation_windows: int = Field(default=128, ge=1)
    """Windows that an evaluation reads, spread evenly over the validation text; fewer if more would overlap."""

    @field_validator("data")
    @classmethod
    def _names_a_source(cls, data: str) -> str:
        return check_address(data)

    @property
    def length(self) -> int:
        """See `TaskSpec.length`: the context."""
        return self.context

    def missing(self) -> str | None:
        """See `TaskSpec.missing`."""
        return parse(self.data).missing()

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, divide and tokenize the text, unless `cache` holds the result for the very same text.

        Raises:
            DataError: The text is missing or unfit, or too short for the context.
        """
        corpus = read_corpus(
            self.data, self.validation_share, say, column=self.text, refuse_bad_rows=self.bad_rows == "refuse"
        )
        revision = corpus.source.revision()
        key = content_hash(
            {
                "text": corpus.fingerprint,
                "tokenizer": self.tokenizer.identity(),
                "validation_share": self.validation_share,
                "code": CODE_VERSION,
                **({"revision": revision} if revision else {}),
            }
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(corpus, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def _build(self, corpus: Corpus, folder: Path, say: Say) -> dict[str, Any]:
        say(f"Learning the tokenizer ({self.tokenizer.kind_name()}) from {corpus.train_size:,} training documents")
        tokenizer = self.tokenizer.train(Again(lambda: (document.text for document in corpus.train)))
        say("Turning the text into tokens")
        dtype = token_dtype(tokenizer.vocabulary)
        end = np.array([tokenizer.end_of_document])
        sizes: list[int] = []
        for name, documents in ((TRAIN, corpus.train), (VALIDATION, corpus.validation)):
            with GrowingArray(folder / name, dtype) as tokens:
                for ids in tokenizer.encode_all(document.text for document in documents):
                    tokens.append(ids)
                    tokens.append(end)
            sizes.append(tokens.size)
        np.save(folder / TOKEN_BYTES, tokenizer.token_bytes)
        tokenizer.save(folder)
        say(f"Prepared {sizes[0]:,} training and {sizes[1]:,} validation tokens")
        return {
            "data": self.data,
            "tokenizer": self.tokenizer.canonical(),
            "train": {"documents": corpus.train_size, "tokens": sizes[0]},
            "validation": {"documents": corpus.validation_size, "tokens": sizes[1]},
            "left_out": {"empty_or_copies": corpus.dropped, "bad_rows": corpus.bad_rows},
        }


class Text(Task):
    """Prepared text, and windows of it.

    Args:
        spec: The task.
        folder: Prepared data, verified.
        fingerprint: Of the prepared data.
        window: Tokens W of one window.
        more_ids: Ids that the task adds to those of the tokenizer.

    Raises:
        DataError: One of the two texts is shorter than a window.
    """

    def __init__(self, spec: TextSpec, folder: Path, fingerprint: str, window: int, more_ids: int = 0) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self.train_tokens = mapped(folder / TRAIN)
        self.validation_tokens = mapped(folder / VALIDATION)
        self.token_bytes: NDArray[np.int64] = np.load(folder / TOKEN_BYTES)
        self.shape = DataShape(vocabulary=self.token_bytes.size + more_ids, context=spec.context)
        self._folder = folder
        self._window = window
        for part, tokens in (("training", self.train_tokens), ("validation", self.validation_tokens)):
            if tokens.size < window:
                why = " (the context and the token after it)" if window > spec.context else ""
                raise DataError(
                    f"the {part} text is shorter than one window",
                    where=spec.data,
                    expected=f"at least {window:,} tokens{why}",
                    got=f"{tokens.size:,}",
                    remedy="Lower `context`, or give more text.",
                )

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the text was prepared with."""
        return self.spec.tokenizer.load(self._folder)

    def codec(self) -> Tokenizer:
        """See `Task.codec`."""
        return self.tokenizer

    def train_windows(self, name: str, batch_size: int) -> NDArray[np.int64]:
        """Windows at uniform random places that `name` decides, [B, W]."""
        starts = Draws(name).integers(self.train_tokens.size - self._window + 1, batch_size)
        return self._cut(self.train_tokens, starts)

    def validation_windows(self, first: int, count: int) -> NDArray[np.int64]:
        """Windows `first` and on, at most `count`, of those that an evaluation reads, [B, W]."""
        return self._cut(self.validation_tokens, self.validation_starts()[first : first + count])

    def validation_starts(self) -> NDArray[np.int64]:
        """Where the windows of an evaluation begin: even, and with no target in two of them."""
        step = self.shape.context
        span = self.validation_tokens.size - self._window
        windows = min(self.spec.validation_windows, 1 + span // step)
        starts: NDArray[np.int64] = np.arange(windows, dtype=np.int64) * (span // max(1, windows - 1))
        return starts

    def unigram(self) -> NDArray[np.float64]:
        """Log probability of every id by its frequency in the training text, one added to each count, [V]."""
        counts = np.ones(self.token_bytes.size)
        for run in self.counted_runs():
            counts += np.bincount(run, minlength=counts.size)
        return np.asarray(np.log(counts / counts.sum()))

    def counted_runs(self) -> list[NDArray[Any]]:
        """The training text, or runs of it spread evenly, for counting."""
        size = self.train_tokens.size
        runs = spread(-(-size // _RUN), _COUNTED // _RUN)
        return [self.train_tokens[run * _RUN : (run + 1) * _RUN] for run in runs]

    def describe(self) -> DataSummary:
        """Documents, tokens, and the beginnings of three windows."""
        train, validation = self._document_lengths(self.train_tokens), self._document_lengths(self.validation_tokens)
        windows = self.validation_windows(0, self.spec.validation_windows)
        samples = windows[spread(len(windows), 3)]
        about = prepared.about(self._folder)
        return DataSummary(
            rows={"train": about["train"]["documents"], "validation": about["validation"]["documents"]},
            tokens={"train": self.train_tokens.size, "validation": self.validation_tokens.size},
            lengths=tuple(int(length) for length in train if length) or tuple(int(length) for length in validation),
            samples=tuple(self.decode(sample) for sample in samples),
            notes=tuple(left_out(about)),
        )

    def decode(self, ids: NDArray[Any]) -> str:
        """A window as text, the ends of documents as lines of their own."""
        end = self.tokenizer.end_of_document
        parts = np.split(ids, np.flatnonzero(ids == end))
        return "\n<|endoftext|>\n".join(self.tokenizer.decode(part[part < end]) for part in parts)

    def _document_lengths(self, tokens: NDArray[Any]) -> NDArray[np.int64]:
        ends: list[NDArray[Any]] = []
        for start in range(0, tokens.size, _COUNTED):
            ends.append(start + np.flatnonzero(tokens[start : start + _COUNTED] == self.token_bytes.size - 1))
        return np.diff(np.concatenate(ends), prepend=-1) - 1

    def _cut(self, tokens: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(tokens[starts[:, None] + np.arange(self._window)].astype(np.int64))

    @abstractmethod
    def baselines(self) -> dict[str, dict[str, float]]:
        """See `Task.baselines`."""


def left_out(about: dict[str, Any]) -> list[str]:
    """Lines that say what the preparation left out."""
    names = {"empty_or_copies": "empty or copies", "in_both": "in training and validation", "bad_rows": "bad rows"}
    counts = about.get("left_out", {})
    told = [f"{counts[key]:,} {name}" for key, name in names.items() if counts.get(key)]
    return [f"left out: {', '.join(told)}"] if told else []

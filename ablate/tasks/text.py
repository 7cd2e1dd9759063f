"""Text laid end to end: what `language_model` and `masked_language_model` share.

Shapes: B batch, T tokens, W a window's tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
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
from ablate.tasks.arrays import GrowingArray, mapped, spread, token_dtype
from ablate.tasks.base import PARTS, DataShape, DataSummary, Say, Task
from ablate.tasks.corpus import Corpus, read_corpus
from ablate.tasks.random_stream import Draws
from ablate.tasks.sourced import TokenizedSpec
from ablate.tasks.sources import TEST, Address, Document
from ablate.tasks.tokenizers import Again, Tokenizer

CODE_VERSION = 1
"""Part of the key of prepared data: raised whenever reading, dividing or tokenizing comes to mean something else."""

TOKEN_BYTES = "token_bytes.npy"

_COUNTED = 1 << 24
"""Training tokens, spread evenly in runs, that the trivial baselines are counted on: memory stays flat."""
_RUN = 1 << 16


class TextSpec(TokenizedSpec):
    """A task on text.

    The documents are divided into training and validation as a whole, tokenized, and laid end to end, each followed
    by an end-of-document token. A single document is divided into contiguous parts. A window may reach over the end of
    a document. A vocabulary is learnt from the training documents alone.
    """

    data: Address
    """Address of the text: `builtin:python_stdlib`, `file:PATH` with a file, a glob or a folder, or `hub:NAME`."""
    text: str = "text"
    """The column of a table that holds the text."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row of a table stops the preparation, or is left out and counted."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the documents that is held out for validation; of a single document, of its characters."""
    validation_windows: int = Field(default=128, ge=1)
    """Windows that an evaluation reads, spread evenly over the validation text; fewer if more would overlap."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the documents that is held out for a test, which is measured once, at the end of a trial, on as many
    windows; 0: no test."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target's probability that is spread over all ids, in training alone (arXiv:1512.00567, §7)."""

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, divide and tokenize the text, unless `cache` holds the result for the very same text.

        Raises:
            DataError: The text is missing or unfit, or too short for the context.
        """
        corpus = read_corpus(
            self.data,
            self.validation_share,
            say,
            column=self.text,
            refuse_bad_rows=self.bad_rows == "refuse",
            test_share=self.test_share,
        )
        revision = corpus.source.revision()
        key = content_hash(
            {
                "text": corpus.fingerprint,
                "tokenizer": self.tokenizer.identity(),
                "validation_share": self.validation_share,
                "code": CODE_VERSION,
                **({"revision": revision} if revision else {}),
                **({"test_share": self.test_share} if self.test_share else {}),
            }
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(corpus, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def _build(self, corpus: Corpus, folder: Path, say: Say) -> dict[str, Any]:
        say(f"Learning the tokenizer ({self.tokenizer.kind_name()}) from {corpus.sizes['train']:,} training documents")
        tokenizer = self.tokenizer.train(Again(lambda: (document.text for document in corpus.part("train"))))
        say("Turning the text into tokens")
        dtype = token_dtype(tokenizer.vocabulary)
        end = np.array([tokenizer.end_of_document])
        parts: dict[str, dict[str, int]] = {}
        for part, documents in corpus.sizes.items():
            with GrowingArray(folder / f"{part}.npy", dtype) as tokens:
                ends: deque[bool] = deque()
                for ids in tokenizer.encode_all(_texts(corpus.part(part), ends)):
                    tokens.append(ids)
                    if ends.popleft():
                        tokens.append(end)
            parts[part] = {"documents": documents, "tokens": tokens.size}
        np.save(folder / TOKEN_BYTES, tokenizer.token_bytes)
        tokenizer.save(folder)
        counted = [f"{sizes['tokens']:,} {part}" for part, sizes in parts.items()]
        say(f"Prepared {', '.join(counted)} tokens")
        return {
            "data": self.data,
            "tokenizer": self.tokenizer.canonical(),
            **parts,
            "division": corpus.note,
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
        DataError: The text of a part is shorter than a window.

    Attributes:
        tokens: Part to its text.
    """

    def __init__(self, spec: TextSpec, folder: Path, fingerprint: str, window: int, more_ids: int = 0) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        parts = [*PARTS, *([TEST] if spec.test_share else [])]
        self.tokens = {part: mapped(folder / f"{part}.npy") for part in parts}
        self.token_bytes: NDArray[np.int64] = np.load(folder / TOKEN_BYTES)
        self.shape = DataShape(vocabulary=self.token_bytes.size + more_ids, context=spec.context)
        self._folder = folder
        self._window = window
        for part, tokens in self.tokens.items():
            if tokens.size < window:
                why = " (the context and the token after it)" if window > spec.context else ""
                raise DataError(
                    f"the {'training' if part == 'train' else part} text is shorter than one window",
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
        starts = Draws(name).integers(self.tokens["train"].size - self._window + 1, batch_size)
        return self._cut("train", starts)

    def windows(self, part: str, rows: slice = slice(None)) -> NDArray[np.int64]:
        """All or some of the windows of a part that an evaluation reads, [N, W]."""
        return self._cut(part, self.starts(part)[rows])

    def starts(self, part: str) -> NDArray[np.int64]:
        """Where these windows begin: even, and with no target in two of them; nowhere if there is no such part."""
        if part not in self.tokens:
            return np.zeros(0, dtype=np.int64)
        step = self.shape.context
        span = self.tokens[part].size - self._window
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
        tokens = self.tokens["train"]
        runs = spread(-(-tokens.size // _RUN), _COUNTED // _RUN)
        return [tokens[run * _RUN : (run + 1) * _RUN] for run in runs]

    def describe(self) -> DataSummary:
        """Documents, tokens, and the beginnings of three windows."""
        train, validation = (self._document_lengths(part) for part in PARTS)
        windows = self.windows("validation")
        samples = windows[spread(len(windows), 3)]
        about = prepared.about(self._folder)
        return DataSummary(
            rows={part: about[part]["documents"] for part in self.tokens},
            tokens={part: tokens.size for part, tokens in self.tokens.items()},
            lengths=tuple(int(length) for length in train if length) or tuple(int(length) for length in validation),
            samples=tuple(self.decode(sample) for sample in samples),
            notes=(*([about["division"]] if about.get("division") else []), *left_out(about)),
        )

    def decode(self, ids: NDArray[Any]) -> str:
        """A window as text, the ends of documents as lines of their own."""
        end = self.tokenizer.end_of_document
        parts = np.split(ids, np.flatnonzero(ids == end))
        return "\n<|endoftext|>\n".join(self.tokenizer.decode(part[part < end]) for part in parts)

    def _document_lengths(self, part: str) -> NDArray[np.int64]:
        ends: list[NDArray[Any]] = []
        for start in range(0, self.tokens[part].size, _COUNTED):
            # Mapped anew each time: what a mapping has read counts as this process's memory as long as it lasts.
            tokens = mapped(self._folder / f"{part}.npy")[start : start + _COUNTED]
            ends.append(start + np.flatnonzero(tokens == self.token_bytes.size - 1))
        return np.diff(np.concatenate(ends), prepend=-1) - 1

    def _cut(self, part: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(self.tokens[part][starts[:, None] + np.arange(self._window)].astype(np.int64))

    @abstractmethod
    def baselines(self) -> dict[str, dict[str, float]]:
        """See `Task.baselines`."""


def _texts(documents: Iterator[Document], ends: deque[bool]) -> Iterator[str]:
    """The texts of documents; whether each ends is noted when it is read."""
    for document in documents:
        ends.append(document.ends)
        yield document.text


def left_out(about: dict[str, Any]) -> list[str]:
    """Lines that say what the preparation left out."""
    names = {"empty_or_copies": "empty or copies", "in_both": "in more than one part", "bad_rows": "bad rows"}
    counts = about.get("left_out", {})
    told = [f"{counts[key]:,} {name}" for key, name in names.items() if counts.get(key)]
    return [f"left out: {', '.join(told)}"] if told else []

"""Concatenated text: base classes of `language_model` and `masked_language_model`.

Shapes: B batch, T tokens, W tokens in a window.
"""

from __future__ import annotations

import json
import math
import os
import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.spec.task import SPLITS, DataShape, DataSummary, Say, Task
from ablate.tasks import cache as prepared
from ablate.tasks.cache import GrowingArray, open_array, spread, token_dtype
from ablate.tasks.corpus import LONG, Corpus, read_corpus
from ablate.tasks.sampling import Draws
from ablate.tasks.sources import TEST, Address, SourceDocument, TokenizedSpec
from ablate.tasks.tokenizers import ReiterableTexts, Tokenizer, TokenizerSpec

if TYPE_CHECKING:
    from ablate.spec.task import Batch

CODE_VERSION = 1
"""Part of the key of prepared data. Increment it when reading, splitting or tokenizing changes."""

TOKEN_BYTES = "token_bytes.npy"

_PROGRESS = "progress-2.json"
_SAVED_TOKENS = 1 << 22
"""Tokens after which the progress of a preparation is saved."""
_BYTES_READ = 8
"""UTF-8 bytes of text that are read for each token of `tokens`; tokens of subwords have about four."""

_COUNTED = 1 << 24
"""Maximum number of training tokens, in evenly spaced runs, that the trivial baselines count."""
_RUN = 1 << 16


class TextSpec(TokenizedSpec):
    """A task on text.

    Whole documents are assigned to training or validation, tokenized, and concatenated, each followed by an
    end-of-document token. A single document is cut into contiguous splits. A window may cross the end of a document. A
    vocabulary is trained on the training documents alone.
    """

    length_field: ClassVar[str] = "context"

    data: Address
    """Address of the text: `builtin:python_stdlib`, `file:PATH` with a file, a glob or a folder, or `hub:NAME`."""
    text: str = "text"
    """The column of a table that holds the text."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row of a table stops the preparation, or is skipped and counted."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the documents that is held out for validation; for a single document, share of its characters."""
    validation_windows: int = Field(default=128, ge=1)
    """Number of evenly spaced validation windows that an evaluation reads; fewer if they would overlap."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the documents that is held out for a test, which is measured once, at the end of a trial, on as many
    windows; 0: no test."""
    tokens: int | None = Field(default=None, ge=1, le=10**13)
    """Number of training tokens that are prepared, from the beginning of the data; unless set, all. For each
    token, 8 bytes of text are read; `validation_share` and `test_share` are held out from these."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target's probability that is spread over all ids, in training alone (arXiv:1512.00567, §7)."""

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, split and tokenize the text, unless `cache` holds the result for the same text.

        Raises:
            DataError: The text is missing, invalid, or too short for the context.
        """
        corpus = read_corpus(
            self.data,
            self.validation_share,
            say,
            column=self.text,
            refuse_bad_rows=self.bad_rows == "refuse",
            test_share=self.test_share,
            most_bytes=bytes_to_read(self.tokens),
        )
        revision = corpus.source.revision()
        key = content_hash(
            {
                "text": corpus.fingerprint,
                "tokenizer": self.tokenizer.identity(),
                "validation_share": self.validation_share,
                "code": CODE_VERSION,
                **prepared.users_code(self),
                **({"revision": revision} if revision else {}),
                **({"test_share": self.test_share} if self.test_share else {}),
                **self.part_of_tokens(),
                **division_of_long_texts(corpus, self.tokenizer),
            }
        )
        build = partial(self.build, corpus, say=say, most=self.most_tokens)
        fingerprint = prepared.prepare(cache, key, build, say, resumes=True)
        self.open(cache, fingerprint)
        return fingerprint

    def build(self, corpus: Corpus, folder: Path, say: Say, most: Callable[[str], int]) -> dict[str, Any]:
        """Write the files of a corpus, in a folder that may hold the beginning of them.

        Args:
            corpus: The text; the names of its training splits begin with `train`.
            folder: Where the files go.
            say: Called with progress messages.
            most: Gives the number of tokens to prepare of a split.

        Returns:
            What the manifest says about them.
        """
        progress = _Progress(folder / _PROGRESS)
        if progress.begun:
            say("Continuing a preparation that was interrupted")
            tokenizer = self.tokenizer.load(folder)
        else:
            for leftover in folder.iterdir():  # of a version that named its progress otherwise
                leftover.unlink()
            train = [split for split in corpus.sizes if split.startswith("train")]
            count = sum(corpus.sizes[split] for split in train)
            say(f"Training the tokenizer ({self.tokenizer.kind_name()}) from {count:,} training documents")
            tokenizer = self.tokenizer.train(
                ReiterableTexts(lambda: (document.text for split in train for document in corpus.documents_in(split)))
            )
            tokenizer.save(folder)
            progress.save()
        say("Tokenizing the text")
        splits = {split: _tokenize(corpus, split, tokenizer, folder, progress, most(split)) for split in corpus.sizes}
        np.save(folder / TOKEN_BYTES, tokenizer.token_bytes)
        progress.remove()
        counted = [f"{sizes['tokens']:,} {split}" for split, sizes in splits.items()]
        say(f"Prepared {', '.join(counted)} tokens")
        return {
            "data": self.data,
            "tokenizer": self.tokenizer.canonical(),
            **splits,
            "division": corpus.note,
            "left_out": {"empty_or_copies": corpus.dropped, "bad_rows": corpus.bad_rows},
        }

    def most_tokens(self, split: str) -> int:
        """Number of tokens of a split that are prepared."""
        if self.tokens is None:
            return sys.maxsize
        return self.tokens if split == "train" else max(self._evaluated, self._share_of_tokens(split))

    @property
    def _evaluated(self) -> int:
        """Tokens that the windows of an evaluation need."""
        return self.validation_windows * (self.context + 1)

    def _share_of_tokens(self, split: str) -> int:
        """The tokens that a held-out split has beside `tokens`, by its share."""
        shares = {"validation": self.validation_share, TEST: self.test_share}
        return math.ceil((self.tokens or 0) * shares[split] / max(1 - sum(shares.values()), 0.01))

    def part_of_tokens(self) -> dict[str, int]:
        """The part of the key of prepared data that says how much of it is prepared.

        The windows of an evaluation count where they need more than the share of a held-out split: data that was
        prepared for few or short windows would leave too few of those that are asked for.
        """
        if self.tokens is None:
            return {}
        held_out = ("validation", *([TEST] if self.test_share else []))
        needs_more = any(self._evaluated > self._share_of_tokens(split) for split in held_out)
        return {"tokens": self.tokens, **({"evaluated": self._evaluated} if needs_more else {})}


def _tokenize(
    corpus: Corpus, split: str, tokenizer: Tokenizer, folder: Path, progress: _Progress, most: int
) -> dict[str, int]:
    """Write the tokens of a split, from where an interrupted preparation was; returns what the manifest says."""
    done = progress.splits.setdefault(split, {"documents": 0, "tokens": 0, "read": 0, "complete": 0})
    if not done["complete"]:
        dtype, end = token_dtype(tokenizer.vocabulary), np.array([tokenizer.end_of_document])
        read = deque[int]()
        documents = islice(corpus.documents_in(split), done["read"], None)
        with GrowingArray(folder / f"{split}.npy", dtype, done["tokens"]) as tokens:
            for ids in tokenizer.encode_all(_texts(documents, read, whole=not tokenizer.divides_at_lines)):
                count = read.popleft()
                ended = count > 0
                ids = np.concatenate([ids, end]) if ended else ids
                tokens.append(ids[: most - tokens.size])
                done["read"], done["documents"] = done["read"] + max(1, count), done["documents"] + ended
                if tokens.size >= most:
                    break
                if tokens.size - done["tokens"] >= _SAVED_TOKENS:
                    tokens.sync()
                    done["tokens"] = tokens.size
                    progress.save()
            tokens.sync()
        done["tokens"], done["complete"] = tokens.size, 1
        progress.save()
    return {"documents": max(1, done["documents"]), "tokens": done["tokens"]}


class _Progress:
    """How far a preparation is, in a file beside the tokens.

    Args:
        file: The file.

    Attributes:
        begun: Whether the file was there: the tokenizer is saved.
        splits: Of each split, the documents and tokens on the disk, the texts read (a long document is several), and
            whether it is complete.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.begun = file.exists()
        self.splits: dict[str, dict[str, int]] = json.loads(file.read_text(encoding="utf-8")) if self.begun else {}

    def save(self) -> None:
        """Replace the file."""
        new = self._file.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(self.splits, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)

    def remove(self) -> None:
        """Remove the file, and what a kill has left of a new one: everything is prepared."""
        self._file.unlink()
        self._file.with_suffix(".new").unlink(missing_ok=True)


class Text(Task):
    """Prepared text and its windows.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.
        window: Number of tokens W in one window.
        more_ids: Number of ids that the task adds to those of the tokenizer.
        part: What the names of its files end with, where a folder holds several texts.

    Raises:
        DataError: The text of a split is shorter than a window.

    Attributes:
        tokens: Token ids of each split.
    """

    def __init__(
        self, spec: TextSpec, folder: Path, fingerprint: str, window: int, more_ids: int = 0, part: str = ""
    ) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        splits = [*SPLITS, *([TEST] if spec.test_share else [])]
        self.tokens = {split: open_array(folder / f"{split}{part}.npy") for split in splits}
        self.token_bytes: NDArray[np.int64] = np.array(open_array(folder / TOKEN_BYTES))
        self.shape = DataShape(vocabulary=self.token_bytes.size + more_ids, context=spec.context)
        self._folder = folder
        self._part = part
        self._window = window
        for split, tokens in self.tokens.items():
            if tokens.size < window:
                reason = " (the context and the token after it)" if window > spec.context else ""
                raise DataError(
                    f"the {'training' if split == 'train' else split} text is shorter than one window",
                    where=spec.data,
                    expected=f"at least {window:,} tokens{reason}",
                    got=f"{tokens.size:,}",
                    remedy="Lower `context`, or provide more text.",
                )

    def at_length(self, value: int) -> Self:
        """The same text in windows of another length."""
        named = {"part": self._part} if self._part else {}
        return type(self)(self.spec.at_length(value), self._folder, self.fingerprint, **named)  # type: ignore[arg-type]

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the text was prepared with."""
        return self.spec.tokenizer.load(self._folder)

    def codec(self) -> Tokenizer:
        return self.tokenizer

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Windows at uniformly random positions, as `as_batch` makes them."""
        return self.shorter_batch(seed, step, batch_size, self.shape.context)

    def shorter_batch(self, seed: int, step: int, batch_size: int, length: int) -> Batch:
        """As `train_batch`, with the beginnings of the same windows: inputs of `length` tokens."""
        name = f"{self.fingerprint}/{seed}/{step}/{batch_size}"
        windows = self.train_windows(name, batch_size)
        return self.as_batch(windows[:, : length + self._window - self.shape.context], name)

    @abstractmethod
    def as_batch(self, windows: NDArray[np.int64], name: str) -> Batch:
        """The batch of windows [B, W] or of their beginnings; what is random is a pure function of `name`."""

    def train_windows(self, name: str, batch_size: int) -> NDArray[np.int64]:
        """Windows at uniformly random positions, which are a pure function of `name`, [B, W]."""
        starts = Draws(name).integers(self.tokens["train"].size - self._window + 1, batch_size)
        return self._cut("train", starts)

    def windows(self, split: str, rows: slice = slice(None)) -> NDArray[np.int64]:
        """The windows of a split that an evaluation reads, or some of them, [N, W]."""
        return self._cut(split, self.starts(split)[rows])

    def starts(self, split: str) -> NDArray[np.int64]:
        """Evenly spaced starts of the evaluation windows, without repeated targets; empty if there is no such split."""
        if split not in self.tokens:
            return np.zeros(0, dtype=np.int64)
        step = self.shape.context
        span = self.tokens[split].size - self._window
        windows = min(self.spec.validation_windows, 1 + span // step)
        starts: NDArray[np.int64] = np.arange(windows, dtype=np.int64) * (span // max(1, windows - 1))
        return starts

    def unigram(self) -> NDArray[np.float64]:
        """Log probability of every id from its frequency in the training text, with add-one smoothing, [V]."""
        counts = np.ones(self.token_bytes.size)
        for run in self.counted_runs():
            counts += np.bincount(run, minlength=counts.size)
        return np.asarray(np.log(counts / counts.sum()))

    def counted_runs(self) -> list[NDArray[Any]]:
        """The training text, or evenly spaced runs of it if it is long, for counting."""
        tokens = self.tokens["train"]
        runs = spread(-(-tokens.size // _RUN), _COUNTED // _RUN)
        return [tokens[run * _RUN : (run + 1) * _RUN] for run in runs]

    def describe(self) -> DataSummary:
        """Number of documents and tokens, and three windows."""
        train, validation = (self._document_lengths(split) for split in SPLITS)
        windows = self.windows("validation")
        samples = windows[spread(len(windows), 3)]
        about = prepared.about(self._folder)
        return DataSummary(
            rows={split: about[split + self._part]["documents"] for split in self.tokens},
            tokens={split: tokens.size for split, tokens in self.tokens.items()},
            lengths=tuple(int(length) for length in train if length) or tuple(int(length) for length in validation),
            samples=tuple(self.decode(sample) for sample in samples),
            notes=(*([about["division"]] if about.get("division") else []), *left_out(about)),
        )

    def decode(self, ids: NDArray[Any]) -> str:
        """The text of a window, with `<|endoftext|>` on separate lines at the ends of documents."""
        end = self.tokenizer.end_of_document
        documents = np.split(ids, np.flatnonzero(ids == end))
        # Other ids that stand for no text, such as that of a mask, are left out too.
        texts = (document[(document != end) & (document < self.tokenizer.vocabulary)] for document in documents)
        return "\n<|endoftext|>\n".join(self.tokenizer.decode(text) for text in texts)

    def _document_lengths(self, split: str) -> NDArray[np.int64]:
        ends: list[NDArray[Any]] = []
        for start in range(0, self.tokens[split].size, _COUNTED):
            # A new mapping each time: pages that a mapping has read count as memory of this process while it exists.
            tokens = open_array(self._folder / f"{split}{self._part}.npy")[start : start + _COUNTED]
            ends.append(start + np.flatnonzero(tokens == self.tokenizer.end_of_document))
        return np.diff(np.concatenate(ends), prepend=-1) - 1

    def _cut(self, split: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(self.tokens[split][starts[:, None] + np.arange(self._window)].astype(np.int64))

    @abstractmethod
    def baselines(self) -> dict[str, dict[str, float]]:
        """As `Task.baselines`."""


def bytes_to_read(tokens: int | None) -> int | None:
    """UTF-8 bytes of text that are read to prepare a number of tokens; None, all, for None."""
    return None if tokens is None else _BYTES_READ * tokens


def _texts(documents: Iterator[SourceDocument], read: deque[int], *, whole: bool) -> Iterator[str]:
    """The texts of documents, of which long ones are in several pieces.

    Args:
        documents: The pieces.
        read: For each text the number of its pieces is appended; 0 if the document goes on.
        whole: Whether the pieces of a document are joined.
    """
    pieces: list[str] = []
    for document in documents:
        pieces.append(document.text)
        if document.ends or not whole:
            read.append(len(pieces) if document.ends else 0)
            yield "".join(pieces)
            pieces = []


def division_of_long_texts(corpus: Corpus, tokenizer: TokenizerSpec) -> dict[str, int]:
    """The part of the key of prepared data that says how texts of more than `LONG` characters are divided.

    Once a long document was divided between visible characters whatever its tokenizer, and a corpus of a single text
    after any line. Where that gave the same ids, the key is as it was.
    """
    divided_well = {"after any line"} if corpus.note else {"after any line", "between visible characters"}
    return {"division": 2} if corpus.longest > LONG and tokenizer.divides not in divided_well else {}


def left_out(about: dict[str, Any]) -> list[str]:
    """Notes on rows that the preparation left out."""
    names = {"empty_or_copies": "empty or duplicates", "in_both": "in more than one split", "bad_rows": "bad rows"}
    counts = about.get("left_out", {})
    listed = [f"{counts[key]:,} {name}" for key, name in names.items() if counts.get(key)]
    return [f"left out: {', '.join(listed)}"] if listed else []

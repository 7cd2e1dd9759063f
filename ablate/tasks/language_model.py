"""`language_model`: predict the next token of text. Windows are cut from documents laid end to end.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ablate.errors import DataError
from ablate.spec.base import OneOf, content_hash, refusal
from ablate.tasks import cache as prepared
from ablate.tasks.base import DataShape, Say, Task, TaskSpec
from ablate.tasks.corpus import Corpus, read_corpus
from ablate.tasks.sources import Document, parse
from ablate.tasks.tokenizers import Tokenizer, TokenizerSpec

if TYPE_CHECKING:
    import torch

    from ablate.tasks.base import Batch

CODE_VERSION = 1
"""Part of the key of prepared data: raised whenever reading, dividing or tokenizing comes to mean something else."""

TRAIN, VALIDATION, TOKEN_BYTES = "train.npy", "validation.npy", "token_bytes.npy"


class LanguageModelSpec(TaskSpec):
    """Predict the next token of text.

    The documents are divided into training and validation as a whole, tokenized, and laid end to end, each followed
    by an end-of-document token. A window may reach over the end of a document. The BPE vocabulary is learnt from the
    training documents alone.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"decoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_perplexity", "val_bits_per_byte"})

    kind: Literal["language_model"] = "language_model"
    """Predict the next token of text."""
    data: str
    """Address of the text: `builtin:python_stdlib`, or `file:PATH` with a text file or a folder of them."""
    tokenizer: Annotated[TokenizerSpec, OneOf]
    """How text becomes tokens."""
    context: int = Field(ge=2, le=1_000_000)
    """Tokens in one input."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the documents that is held out for validation."""
    validation_windows: int = Field(default=128, ge=1)
    """Windows that an evaluation reads, spread evenly over the validation text; fewer if more would overlap."""

    @field_validator("data")
    @classmethod
    def _names_a_source(cls, data: str) -> str:
        try:
            parse(data)
        except DataError as error:
            rule = f"{error.problem}: the address of text is {error.expected}"
            raise refusal((), data, rule, error.remedy or "", kind="no_source") from None
        return data

    @property
    def length(self) -> int:
        """See `TaskSpec.length`: the context."""
        return self.context

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, divide and tokenize the text, unless `cache` holds the result for the very same text.

        Raises:
            DataError: The text is missing or unfit, or too short for the context.
        """
        corpus = read_corpus(self.data, self.validation_share, say)
        key = content_hash(
            {
                "text": corpus.fingerprint,
                "tokenizer": self.tokenizer.canonical(),
                "validation_share": self.validation_share,
                "code": CODE_VERSION,
            }
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(corpus, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def open(self, cache: Path, fingerprint: str) -> LanguageModel:
        """Map the prepared tokens into memory after a look at their checksums.

        Raises:
            DataError: The prepared files are missing or their checksum is off, or the text is too short for the
                context.
        """
        return LanguageModel(self, prepared.locate(cache, fingerprint), fingerprint)

    def _build(self, corpus: Corpus, folder: Path, say: Say) -> dict[str, Any]:
        texts = [document.text for document in corpus.train]
        say(f"Learning the tokenizer ({self.tokenizer.kind_name()}) from {len(texts):,} training documents")
        tokenizer = self.tokenizer.train(texts)
        say("Turning the text into tokens")
        train, validation = _tokens(corpus.train, tokenizer), _tokens(corpus.validation, tokenizer)
        np.save(folder / TRAIN, train)
        np.save(folder / VALIDATION, validation)
        np.save(folder / TOKEN_BYTES, tokenizer.token_bytes)
        tokenizer.save(folder)
        say(f"Prepared {train.size:,} training and {validation.size:,} validation tokens")
        return {
            "data": self.data,
            "tokenizer": self.tokenizer.canonical(),
            "train": {"documents": len(corpus.train), "tokens": train.size},
            "validation": {"documents": len(corpus.validation), "tokens": validation.size},
        }


class LanguageModel(Task):
    """See `LanguageModelSpec`. A window is T + 1 tokens: `inputs` are the first T, `targets` the last T.

    Args:
        spec: The task.
        folder: Prepared data, verified.
        fingerprint: Of the prepared data.

    Raises:
        DataError: One of the two texts is too short for the context.
    """

    def __init__(self, spec: LanguageModelSpec, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._train = np.load(folder / TRAIN, mmap_mode="r").view(np.ndarray)
        self._validation = np.load(folder / VALIDATION, mmap_mode="r").view(np.ndarray)
        self._token_bytes: NDArray[np.int64] = np.load(folder / TOKEN_BYTES)
        self.shape = DataShape(vocabulary=self._token_bytes.size, context=spec.context)
        self._windows = spec.validation_windows
        for part, tokens in (("training", self._train), ("validation", self._validation)):
            if tokens.size <= spec.context:
                raise DataError(
                    f"the {part} text is shorter than one window",
                    where=spec.data,
                    expected=f"at least {spec.context + 1:,} tokens (the context and the token after it)",
                    got=f"{tokens.size:,}",
                    remedy="Lower `context`, or give more text.",
                )

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Windows at uniform random positions: `inputs` and `targets`, int64 [B, T]."""
        name = f"{self.fingerprint}/{seed}/{step}/{batch_size}"
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
        # The raw stream of a bit generator is the same in every version of numpy; its distributions need not be.
        raw = np.random.Philox(key=key).random_raw(batch_size)
        return self._cut(self._train, raw % np.uint64(self._train.size - self.shape.context))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same windows every time, no target twice: as `train_batch`, with `target_bytes`, int64 [B].

        `target_bytes` counts the UTF-8 bytes that the targets stand for.
        """
        import torch

        starts = self._validation_starts()
        for first in range(0, starts.size, batch_size):
            batch = self._cut(self._validation, starts[first : first + batch_size])
            target_bytes = self._token_bytes[batch["targets"].numpy()].sum(axis=1)
            yield {**batch, "target_bytes": torch.from_numpy(target_bytes)}

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member in nats per token: outputs [K, B, T, V], targets [K, B, T] -> [K]."""
        return _nats(outputs, batch["targets"]).mean(1)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `tokens` and `bytes`, float64 [K]."""
        nats = _nats(outputs, batch["targets"]).double().sum(1)
        target_bytes = batch["target_bytes"].double().sum(1)
        return {"nats": nats, "tokens": nats.new_full(nats.shape, batch["targets"][0].numel()), "bytes": target_bytes}

    def metrics(self, sums: dict[str, list[float]]) -> dict[str, list[float]]:
        """`val_loss` (nats per token), `val_perplexity`, `val_bits_per_byte`.

        The end of a document costs bits and has no bytes.
        """
        nats = sums["nats"]
        losses = [total / tokens for total, tokens in zip(nats, sums["tokens"], strict=True)]
        return {
            "val_loss": losses,
            "val_perplexity": [_exp(loss) for loss in losses],
            "val_bits_per_byte": [t / math.log(2) / length for t, length in zip(nats, sums["bytes"], strict=True)],
        }

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    def _validation_starts(self) -> NDArray[np.int64]:
        span = self._validation.size - 1 - self.shape.context
        windows = min(self._windows, 1 + span // self.shape.context)
        starts: NDArray[np.int64] = np.arange(windows, dtype=np.int64) * (span // max(1, windows - 1))
        return starts

    def _cut(self, tokens: NDArray[Any], starts: NDArray[Any]) -> Batch:
        import torch

        offsets = np.arange(self.shape.context + 1)
        windows = torch.from_numpy(tokens[starts.astype(np.int64)[:, None] + offsets].astype(np.int64))
        return {"inputs": windows[:, :-1].contiguous(), "targets": windows[:, 1:].contiguous()}


def _tokens(documents: Sequence[Document], tokenizer: Tokenizer) -> NDArray[np.unsignedinteger[Any]]:
    dtype = np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32
    end = np.array([tokenizer.end_of_document], dtype=dtype)
    parts: list[NDArray[Any]] = []
    for ids in tokenizer.encode_all([document.text for document in documents]):
        parts += [ids.astype(dtype), end]
    return np.concatenate(parts)


def _nats(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of every target: [K, B, T, V] and [K, B, T] -> [K, B·T], in float32 at least."""
    from torch.nn import functional

    pack, vocabulary = outputs.shape[0], outputs.shape[-1]
    flat = outputs.reshape(-1, vocabulary)
    flat = flat.float() if flat.itemsize < 4 else flat
    return functional.cross_entropy(flat, targets.reshape(-1), reduction="none").view(pack, -1)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf

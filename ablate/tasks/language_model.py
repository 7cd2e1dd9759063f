"""`language_model`: predict the next token of text. Windows are cut from documents laid end to end.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ablate.tasks import cache as prepared
from ablate.tasks.text import Text, TextSpec

if TYPE_CHECKING:
    import torch

    from ablate.tasks.base import Batch

_BIGRAM_PRIOR = 50.0
"""Counts of the unigram's opinion in each row of the bigram baseline."""


class LanguageModelSpec(TextSpec):
    """Predict the next token of text.

    The documents are divided into training and validation as a whole, tokenized, and laid end to end, each followed
    by an end-of-document token. A window may reach over the end of a document. The BPE vocabulary is learnt from the
    training documents alone.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"decoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_perplexity", "val_bits_per_byte"})

    kind: Literal["language_model"] = "language_model"
    """Predict the next token of text."""

    def open(self, cache: Path, fingerprint: str) -> LanguageModel:
        """Map the prepared tokens into memory after a look at their checksums.

        Raises:
            DataError: The prepared files are missing or their checksum is off, or the text is too short for the
                context.
        """
        return LanguageModel(self, prepared.locate(cache, fingerprint), fingerprint)


class LanguageModel(Text):
    """See `LanguageModelSpec`. A window is T + 1 tokens: `inputs` are the first T, `targets` the last T.

    Args:
        spec: The task.
        folder: Prepared data, verified.
        fingerprint: Of the prepared data.

    Raises:
        DataError: One of the two texts is too short for the context.
    """

    def __init__(self, spec: LanguageModelSpec, folder: Path, fingerprint: str) -> None:
        super().__init__(spec, folder, fingerprint, window=spec.context + 1)

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Windows at uniform random positions: `inputs` and `targets`, int64 [B, T]."""
        return _shifted(self.train_windows(f"{self.fingerprint}/{seed}/{step}/{batch_size}", batch_size))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same windows every time, no target twice: as `train_batch`, with `target_bytes`, int64 [B].

        `target_bytes` counts the UTF-8 bytes that the targets stand for.
        """
        return self._batches("validation", batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """Windows of the test; as `validation_batches`."""
        return self._batches("test", batch_size)

    def _batches(self, part: str, batch_size: int) -> Iterator[Batch]:
        import torch

        for first in range(0, self.starts(part).size, batch_size):
            batch = _shifted(self.windows(part, slice(first, first + batch_size)))
            target_bytes = self.token_bytes[batch["targets"].numpy()].sum(axis=1)
            yield {**batch, "target_bytes": torch.from_numpy(target_bytes)}

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member in nats per token: outputs [K, B, T, V], targets [K, B, T] -> [K]."""
        return nats(outputs, batch["targets"]).mean(1)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `tokens` and `bytes`, float64 [K]."""
        total = nats(outputs, batch["targets"]).double().sum(1)
        target_bytes = batch["target_bytes"].double().sum(1)
        tokens = total.new_full(total.shape, batch["targets"][0].numel())
        return {"nats": total, "tokens": tokens, "bytes": target_bytes}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats per token), `val_perplexity`, `val_bits_per_byte`.

        The end of a document costs bits and has no bytes.
        """
        losses = [total / tokens for total, tokens in zip(sums["nats"], sums["tokens"], strict=True)]
        return {
            "val_loss": losses,
            "val_perplexity": [perplexity(loss) for loss in losses],
            "val_bits_per_byte": [
                total / math.log(2) / length if length else math.nan
                for total, length in zip(sums["nats"], sums["bytes"], strict=True)
            ],
        }

    def baselines(self) -> dict[str, dict[str, float]]:
        """Unigram and bigram frequencies of the training text, the bigram's drawn towards the unigram's."""
        windows = self.windows("validation")
        before, targets = windows[:, :-1].ravel(), windows[:, 1:].ravel()
        unigram = self.unigram()
        size = unigram.size
        wanted, place = np.unique(before * size + targets, return_inverse=True)
        pairs = np.zeros(wanted.size)
        firsts = np.zeros(size)
        for run in self.counted_runs():
            run = run.astype(np.int64)
            keys = run[:-1] * size + run[1:]
            found = np.searchsorted(wanted, keys)
            found[found == wanted.size] = 0
            pairs += np.bincount(found[wanted[found] == keys], minlength=wanted.size)
            firsts += np.bincount(run[:-1], minlength=size)
        share = (pairs[place] + _BIGRAM_PRIOR * np.exp(unigram[targets])) / (firsts[before] + _BIGRAM_PRIOR)
        costs = {"unigram": -unigram[targets], "bigram": -np.log(share)}
        return {name: self._scores(nats, targets) for name, nats in costs.items()}

    def _scores(self, costs: NDArray[np.float64], targets: NDArray[np.int64]) -> dict[str, float]:
        totals = {"nats": costs.sum(), "tokens": costs.size, "bytes": self.token_bytes[targets].sum()}
        sums: dict[str, list[Any]] = {name: [float(total)] for name, total in totals.items()}
        return {name: value for name, (value,) in self.metrics(sums).items()}


def _shifted(windows: NDArray[np.int64]) -> Batch:
    import torch

    tokens = torch.from_numpy(windows)
    return {"inputs": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}


def nats(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of every target: [K, B, T, V] and [K, B, T] -> [K, B·T], in float32 at least."""
    from torch.nn import functional

    pack, vocabulary = outputs.shape[0], outputs.shape[-1]
    flat = outputs.reshape(-1, vocabulary)
    flat = flat.float() if flat.itemsize < 4 else flat
    return functional.cross_entropy(flat, targets.reshape(-1), reduction="none").view(pack, -1)


def perplexity(loss: float) -> float:
    """The exponential of a loss; infinite where that has no float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf

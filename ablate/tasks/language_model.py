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

_PRIOR = 50.0
"""How many counts the shorter context's distribution is worth beside the counts of a longer context.

Chosen on training text alone, that of `builtin:python_stdlib`: counted on the first 90 % and scored on the last 10 %,
for bytes and for BPE vocabularies of 2,048 and 8,192. No validation text was looked at."""
_DENSE = 1 << 22
"""Keys up to which `_Wanted` keeps a table of all keys, 4 bytes each: faster than searching."""


class LanguageModelSpec(TextSpec):
    """Predict the next token of text.

    The documents are divided into training and validation as a whole, tokenized, and laid end to end, each followed
    by an end-of-document token. A single document is divided into contiguous parts. A window may reach over the end of
    a document. The BPE vocabulary is learnt from the training documents alone.
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
        return nats(outputs, batch["targets"], self.spec.label_smoothing).mean(1)

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
        """Unigram, bigram and trigram frequencies of the training text, each drawn towards the shorter context's.

        A trigram p(c|a,b) = (N(a,b,c) + λ p(c|b)) / (N(a,b) + λ), and likewise a bigram from N(b,c), N(b) and p(c). The
        first target of a window has one token before it, so there the trigram is the bigram. Only the pairs and triples
        that occur in the validation windows are counted.
        """
        windows = self.windows("validation")
        targets = windows[:, 1:]
        unigram = self.unigram()
        size = unigram.size
        pairs = _Wanted(windows[:, :-1] * size + targets, size * size)
        triples = _Wanted(pairs.places[:, :-1] * size + windows[:, 2:], pairs.counts.size * size)
        singles, heads = np.zeros(size), np.zeros(pairs.counts.size)
        for run in self.counted_runs():
            run = run.astype(np.int64)
            singles += np.bincount(run[:-1], minlength=size)
            found = pairs.count(run[:-1] * size + run[1:])
            followed = np.flatnonzero(found[:-1] >= 0)
            firsts = found[followed]
            heads += np.bincount(firsts, minlength=heads.size)
            triples.count(firsts * size + run[followed + 2])
        bigram = (pairs.wanted_counts + _PRIOR * np.exp(unigram[targets])) / (singles[windows[:, :-1]] + _PRIOR)
        trigram = bigram.copy()
        before = heads[pairs.places[:, :-1]]
        trigram[:, 1:] = (triples.wanted_counts + _PRIOR * bigram[:, 1:]) / (before + _PRIOR)
        costs = {"unigram": -unigram[targets], "bigram": -np.log(bigram), "trigram": -np.log(trigram)}
        return {name: self._scores(nats, targets) for name, nats in costs.items()}

    def _scores(self, costs: NDArray[np.float64], targets: NDArray[np.int64]) -> dict[str, float]:
        totals = {"nats": costs.sum(), "tokens": costs.size, "bytes": self.token_bytes[targets].sum()}
        sums: dict[str, list[Any]] = {name: [float(total)] for name, total in totals.items()}
        return {name: value for name, (value,) in self.metrics(sums).items()}


class _Wanted:
    """Counts how often each of some keys occurs; memory grows with these keys, not with the text.

    Args:
        keys: What to count, of any shape, from 0 to `end`; a key may occur several times.
        end: Above all keys that will be counted.

    Attributes:
        places: The place of each key among the distinct ones, in the shape of `keys`.
        counts: How often each distinct key has been counted.
    """

    def __init__(self, keys: NDArray[np.int64], end: int) -> None:
        self._distinct, places = np.unique(keys, return_inverse=True)
        self.places: NDArray[np.int64] = places.reshape(keys.shape)
        self.counts = np.zeros(self._distinct.size)
        self._place_of: NDArray[np.int32] | None = None
        if end <= _DENSE:
            self._place_of = np.full(end, -1, dtype=np.int32)
            self._place_of[self._distinct] = np.arange(self._distinct.size, dtype=np.int32)

    @property
    def wanted_counts(self) -> NDArray[np.float64]:
        """How often each of the keys has been counted, in their shape."""
        return self.counts[self.places]

    def count(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count keys, and give the place of each among the distinct wanted ones; -1 where it is not wanted."""
        if self._place_of is not None:
            found = self._place_of[keys].astype(np.int64)
        else:
            found = np.searchsorted(self._distinct, keys)
            found[found == self._distinct.size] = 0
            found[self._distinct[found] != keys] = -1
        self.counts += np.bincount(found[found >= 0], minlength=self.counts.size)
        return found


def _shifted(windows: NDArray[np.int64]) -> Batch:
    import torch

    tokens = torch.from_numpy(windows)
    return {"inputs": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}


def nats(outputs: torch.Tensor, targets: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """Cross entropy of every target: [K, B, T, V] and [K, B, T] -> [K, B·T], in float32 at least.

    With `smoothing` the target has the probability 1 - smoothing, and each id smoothing/V.
    """
    from torch.nn import functional

    pack, vocabulary = outputs.shape[0], outputs.shape[-1]
    flat = outputs.reshape(-1, vocabulary)
    flat = flat.float() if flat.itemsize < 4 else flat
    found = functional.cross_entropy(flat, targets.reshape(-1), reduction="none", label_smoothing=smoothing)
    return found.view(pack, -1)


def perplexity(loss: float) -> float:
    """The exponential of a loss; infinite where that has no float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf

"""`language_model`: predict the next token of text. Windows are cut from the concatenated documents.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.extras import require
from ablate.spec.task import DownstreamSpec, Say
from ablate.tasks import cache as prepared
from ablate.tasks.scores import nats
from ablate.tasks.text import Text, TextSpec

if TYPE_CHECKING:
    import torch

    from ablate.downstream.harness import NextTokenModel
    from ablate.spec.task import Batch

TOKENS_OF_A_PAIR = 8
"""Training tokens for each distinct pair of neighbours without which no small model is likely to pass a bigram. The
fastest of `python -m benchmarks passing_bigram` needed 14 to 22 with bytes, and 9.6 with a BPE vocabulary of 512."""
_PAIRS_IN_A_TABLE = 1 << 26
"""Possible pairs up to which a table of all of them is kept."""
PRIOR = 50.0
"""Weight λ of the lower-order distribution in the smoothed bigram and trigram, in counts.

Chosen on the training text of `builtin:python_stdlib`, without any validation text: counted on the first 90 % and
scored on the last 10 %, for bytes and for BPE vocabularies of 2,048 and 8,192."""
_DENSE = 1 << 22
"""Number of possible keys up to which `KeyCounts` uses a lookup table, at 4 bytes a key, instead of a search."""


class LanguageModelSpec(TextSpec):
    """Predict the next token of text.

    Whole documents are assigned to training or validation, tokenized, and concatenated, each followed by an
    end-of-document token. A single document is cut into contiguous splits. A window may cross the end of a document. A
    BPE vocabulary is trained on the training documents alone.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"decoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_perplexity", "val_bits_per_byte"})
    shortens: ClassVar[bool] = True

    kind: Literal["language_model"] = "language_model"
    """Predict the next token of text."""
    downstream: DownstreamSpec | None = None
    """Tasks of `lm-eval` on which every trial is measured after its last step; none unless set."""

    separate_documents: bool = False
    """Whether no token sees another document of its window, and positions restart in each document. The
    end-of-document token then begins the next document."""

    @property
    def final_metric_names(self) -> frozenset[str]:
        return frozenset(self.downstream.names() if self.downstream is not None else ())

    def prepare(self, cache: Path, say: Say) -> str:
        """As every text; asks for the package that `downstream` needs before anything is trained.

        Raises:
            DataError: The text is missing, invalid, or too short for the context.
            MissingPackageError: `lm-eval` is not installed.
        """
        if self.downstream is not None:
            require("evaluate", "the metrics of a task of `lm-eval`", where="task.downstream")
        return super().prepare(cache, say)

    @property
    def separates_documents(self) -> bool:
        """As the space says."""
        return self.separate_documents

    def open(self, cache: Path, fingerprint: str) -> LanguageModel:
        """Memory-map the prepared tokens after verifying their checksums.

        Raises:
            DataError: The prepared files are missing or damaged, or the text is too short for the context.
        """
        return LanguageModel(self, prepared.locate(cache, fingerprint), fingerprint)


class LanguageModel(Text):
    """The task of `LanguageModelSpec`. A window is T + 1 tokens: `inputs` are the first T, `targets` the last T.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.
        part: As of `Text`.

    Raises:
        DataError: The text of a split is too short for the context.
    """

    tokenwise = True

    def __init__(self, spec: LanguageModelSpec, folder: Path, fingerprint: str, part: str = "") -> None:
        super().__init__(spec, folder, fingerprint, window=spec.context + 1, part=part)
        self._separate = spec.separate_documents
        self._downstream = spec.downstream

    def as_batch(self, windows: NDArray[np.int64], name: str = "") -> Batch:
        """Windows [B, T + 1] as `inputs` and `targets`, int64 [B, T], and `documents`, int32 [B, T], if separate."""
        import torch

        tokens = torch.from_numpy(windows)
        batch = {"inputs": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}
        if self._separate:
            ends = batch["inputs"] == self.tokenizer.end_of_document
            batch["documents"] = ends.cumsum(1).int()
        return batch

    def outputs(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Logits [K, B, T, V]."""
        outputs: torch.Tensor = model(batch["inputs"], batch.get("documents"))
        return outputs

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same windows at each call, without repeated targets: as `train_batch`, with `target_bytes`, int64 [B].

        `target_bytes` is the number of UTF-8 bytes that the targets encode.
        """
        return self._batches("validation", batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """Windows of the test split, in the format of `validation_batches`."""
        return self._batches("test", batch_size)

    def _batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        import torch

        for first in range(0, self.starts(split).size, batch_size):
            batch = self.as_batch(self.windows(split, slice(first, first + batch_size)))
            target_bytes = self.token_bytes[batch["targets"].numpy()].sum(axis=1)
            yield {**batch, "target_bytes": torch.from_numpy(target_bytes)}

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member in nats per token: outputs [K, B, T, V], targets [K, B, T] -> [K]."""
        return nats(outputs, batch["targets"], self.spec.label_smoothing).mean(1)

    def loss_terms(self, batch: Batch) -> torch.Tensor:
        """The number of targets."""
        targets = batch["targets"]
        return targets.new_full((len(targets),), targets[0].numel())

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `tokens` and `bytes`, float64 [K]."""
        total = nats(outputs, batch["targets"]).double().sum(1)
        target_bytes = batch["target_bytes"].double().sum(1)
        tokens = total.new_full(total.shape, batch["targets"][0].numel())
        return {"nats": total, "tokens": tokens, "bytes": target_bytes}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats per token), `val_perplexity`, `val_bits_per_byte`.

        End-of-document tokens add to the bits but have no bytes.
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

    def final_metrics(self, model: torch.nn.Module, device: torch.device) -> dict[str, list[float]]:
        """The metrics of `downstream`, of every member.

        Raises:
            MissingPackageError: `lm-eval` is not installed.
            DataError: A task is unknown, has not the metric, or its data cannot be read.
        """
        if (asked := self._downstream) is None:
            return {}
        from ablate.downstream.harness import Request, Scored, measure

        was_training = model.training
        model.eval()
        pack = next(model.parameters()).shape[0]
        scored = Scored(cast("NextTokenModel", model), pack, self.spec.context, device)
        request = Request(tuple(asked.tasks), Path(asked.folder) if asked.folder else None, asked.shots, asked.limit)
        where = "task.downstream"
        members = [
            {(score.task, score.metric): score.value for score in member_scores}
            for member_scores in measure(scored, self.tokenizer, request, where)
        ]
        model.train(was_training)
        for name, (task, metric) in asked.names().items():
            if (task, metric) not in members[0]:
                raise DataError(
                    f"the task {task} has no metric `{metric}`",
                    where=f"{where}, {name}",
                    expected=", ".join(known for of, known in members[0] if of == task) or "another task",
                )
        return {name: [member[asked_for] for member in members] for name, asked_for in asked.names().items()}

    def baselines(self) -> dict[str, dict[str, float]]:
        """Unigram, bigram and trigram models of the training text, each smoothed towards the lower order.

        A trigram p(c|a,b) = (N(a,b,c) + λ p(c|b)) / (N(a,b) + λ), and likewise a bigram from N(b,c), N(b) and p(c). The
        first target of a window has only one token before it, so it uses the bigram. Only pairs and triples that occur
        in the validation windows are counted.
        """
        windows = self.windows("validation")
        targets = windows[:, 1:]
        unigram = self.unigram()
        size = unigram.size
        pairs = KeyCounts(windows[:, :-1] * size + targets, size * size)
        triples = KeyCounts(pairs.indices[:, :-1] * size + windows[:, 2:], pairs.counts.size * size)
        singles, heads = np.zeros(size), np.zeros(pairs.counts.size)
        for run in self.counted_runs():
            run = run.astype(np.int64)
            singles += np.bincount(run[:-1], minlength=size)
            pair_indices = pairs.count(run[:-1] * size + run[1:])
            followed_at = np.flatnonzero(pair_indices[:-1] >= 0)
            firsts = pair_indices[followed_at]
            heads += np.bincount(firsts, minlength=heads.size)
            triples.count(firsts * size + run[followed_at + 2])
        bigram = (pairs.key_counts + PRIOR * np.exp(unigram[targets])) / (singles[windows[:, :-1]] + PRIOR)
        trigram = bigram.copy()
        before = heads[pairs.indices[:, :-1]]
        trigram[:, 1:] = (triples.key_counts + PRIOR * bigram[:, 1:]) / (before + PRIOR)
        costs = {"unigram": -unigram[targets], "bigram": -np.log(bigram), "trigram": -np.log(trigram)}
        return {name: self._scores(nats, targets) for name, nats in costs.items()}

    def least_tokens(self) -> tuple[int, str]:
        """`TOKENS_OF_A_PAIR` for each number that a bigram of the training text has."""
        pairs = self.distinct_pairs()
        rule = f"{TOKENS_OF_A_PAIR} for each of the {pairs:,} pairs of neighbouring tokens that a bigram of it knows"
        return TOKENS_OF_A_PAIR * pairs, rule

    def distinct_pairs(self) -> int:
        """Different pairs of neighbouring tokens in the training text: the numbers that a bigram of it has."""
        size = self.shape.vocabulary
        if size**2 > _PAIRS_IN_A_TABLE:
            keys = [np.unique(run[:-1].astype(np.int64) * size + run[1:]) for run in self.counted_runs()]
            return int(np.unique(np.concatenate(keys)).size)
        seen = np.zeros(size * size, dtype=bool)
        for run in self.counted_runs():
            seen[run[:-1].astype(np.int64) * size + run[1:]] = True
        return int(seen.sum())

    def _scores(self, costs: NDArray[np.float64], targets: NDArray[np.int64]) -> dict[str, float]:
        totals = {"nats": costs.sum(), "tokens": costs.size, "bytes": self.token_bytes[targets].sum()}
        sums: dict[str, list[Any]] = {name: [float(total)] for name, total in totals.items()}
        return {name: value for name, (value,) in self.metrics(sums).items()}


class KeyCounts:
    """Counts of given keys; memory use grows with the number of keys, not with the length of the text.

    Args:
        keys: The keys to count, of any shape, from 0 to end - 1; keys may repeat.
        end: Upper bound (exclusive) of all keys.

    Attributes:
        indices: Index of each key among the sorted distinct keys, in the shape of `keys`.
        counts: Count of each distinct key.
    """

    def __init__(self, keys: NDArray[np.int64], end: int) -> None:
        self._distinct, indices = np.unique(keys, return_inverse=True)
        self.indices: NDArray[np.int64] = indices.reshape(keys.shape)
        self.counts = np.zeros(self._distinct.size)
        self._index_of: NDArray[np.int32] | None = None
        if end <= _DENSE:
            self._index_of = np.full(end, -1, dtype=np.int32)
            self._index_of[self._distinct] = np.arange(self._distinct.size, dtype=np.int32)

    @property
    def key_counts(self) -> NDArray[np.float64]:
        """Count of each key, in the shape of `keys`."""
        return self.counts[self.indices]

    def count(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count keys; returns the index of each among the distinct keys, or -1 for keys that are not counted."""
        if self._index_of is not None:
            indices = self._index_of[keys].astype(np.int64)
        else:
            indices = np.searchsorted(self._distinct, keys)
            indices[indices == self._distinct.size] = 0
            indices[self._distinct[indices] != keys] = -1
        self.counts += np.bincount(indices[indices >= 0], minlength=self.counts.size)
        return indices


def perplexity(loss: float) -> float:
    """The exponential of a loss; infinity on overflow."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf

"""`translation`: translate a text from one language to another (arXiv:1706.03762).

Both languages share one vocabulary. The decoder reads the target shifted right by one, starting with the
end-of-document id.

Shapes: K pack, B batch, S source tokens, T target tokens, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.extras import require
from ablate.spec.annotations import OneOf
from ablate.spec.base import content_hash
from ablate.spec.task import SPLITS, DataShape, DataSummary, Say, Task
from ablate.tasks import cache as prepared
from ablate.tasks import scores
from ablate.tasks.cache import spread
from ablate.tasks.language_model import PRIOR
from ablate.tasks.pairs import PairSplit, read_pairs, write_pairs
from ablate.tasks.rows import Table
from ablate.tasks.sampling import Buckets
from ablate.tasks.scores import Translator, nats, translate
from ablate.tasks.sources import TEST, Address, Column, TokenizedSpec
from ablate.tasks.tokenizers import Tokenizer, TokenizerSpec

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch

CODE_VERSION = 1
"""Part of the key of prepared data. Increment it when reading, splitting or tokenizing changes."""

UNSCORED = -100
"""Target of padded positions."""


class TranslationSpec(TokenizedSpec):
    """Translate texts. BLEU and chrF of the generated translations are computed by `sacrebleu` (arXiv:1804.08771)."""

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder_decoder"})
    # BLEU and chrF are measured only after the last step, so they cannot be an objective.
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_token_accuracy"})

    kind: Literal["translation"] = "translation"
    """Translate a text into another language."""
    data: Address
    """Address of the pairs: `builtin:number_words`, `file:PATH` or `hub:NAME`."""
    tokenizer: Annotated[TokenizerSpec, OneOf]
    """Tokenizer of both languages, trained on the training texts of both."""
    context: int = Field(ge=2, le=1_000_000)
    """Maximum number of tokens in a text, including its end; pairs with a longer text are left out and counted."""
    source: Column
    """The column of the source text; in a file without a header its number, counted from 1."""
    target: Column
    """The column of the target text."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Label smoothing of the training loss; the validation loss has none."""
    validation_pairs: int = Field(default=1000, ge=1)
    """Number of held-out pairs, at most half of all. No source or target text is in both splits."""
    beams: int = Field(default=1, ge=1, le=100)
    """Number of beams with which the texts for BLEU and chrF are generated; 1: greedy decoding."""
    length_penalty: float = Field(default=0.6, ge=0)
    """Exponent α of beam search: scores are divided by ((5 + length) / 6)^α (arXiv:1609.08144)."""
    batches_by: Literal["pairs", "tokens"] = "pairs"
    """`tokens`: a training batch has as many pairs of similar length as fit into `training.batch_size` · `context`
    tokens of each language, padding included, so that batches of short texts have more pairs (arXiv:1706.03762, §5.1);
    `pairs`: it has `training.batch_size` pairs."""
    test_pairs: int = Field(default=0, ge=0)
    """Number of test pairs, measured once at the end of a trial and selected like those for validation; 0: no test."""

    @property
    def uneven_batches(self) -> bool:
        return self.batches_by == "tokens"

    @property
    def final_metric_names(self) -> frozenset[str]:
        return frozenset({"val_bleu", "val_chrf"})

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, split and tokenize the pairs, unless `cache` holds the result for the same pairs.

        Raises:
            DataError: The pairs are missing or invalid.
            MissingPackageError: sacrebleu is not installed.
        """
        require("translation", "the task `translation`")
        held_out = {"validation": self.validation_pairs, **({TEST: self.test_pairs} if self.test_pairs else {})}
        columns, refuse = (self.source, self.target), self.bad_rows == "refuse"
        pairs = read_pairs(self.data, columns, held_out, say, refuse_bad_rows=refuse)
        revision = pairs.source.revision()
        key = content_hash(
            {
                "pairs": pairs.fingerprint,
                "tokenizer": self.tokenizer.identity(),
                "context": self.context,
                "code": CODE_VERSION,
                **prepared.users_code(self),
                **({"revision": revision} if revision else {}),
            }
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(pairs, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def open(self, cache: Path, fingerprint: str) -> Translation:
        """Memory-map the pairs after verifying their checksums.

        Raises:
            DataError: The prepared files are missing or damaged.
        """
        return Translation(self, prepared.locate(cache, fingerprint), fingerprint)

    def _build(self, pairs: Table, folder: Path, say: Say) -> dict[str, Any]:
        say(f"Training the tokenizer ({self.tokenizer.kind_name()}) from {pairs.sizes['train']:,} training pairs")
        tokenizer = self.tokenizer.train(text for row in pairs.rows("train") for text in row.values)
        say("Tokenizing the text")
        kept, too_long = {}, 0
        for split in pairs.sizes:
            kept[split], excluded = write_pairs(pairs, split, tokenizer, self.context, folder)
            too_long += excluded
            if split != "train":
                texts = [list(row.values) for row in pairs.rows(split)]
                (folder / f"{split}.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
        tokenizer.save(folder)
        if too_long:
            say(f"Left out {too_long:,} pairs with a text of more than {self.context} tokens")
        return {"data": self.data, "rows": kept, "left_out": {**pairs.left_out, "too_long": too_long}}


class Translation(Task):
    """The task of `TranslationSpec`."""

    tokenwise = True

    def __init__(self, spec: TranslationSpec, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self._folder = folder
        self._splits = {split: PairSplit(folder, split) for split in (*SPLITS, *([TEST] if spec.test_pairs else []))}
        self._buckets = {split: Buckets(fingerprint, rows.lengths) for split, rows in self._splits.items()}
        self.shape = DataShape(vocabulary=self.tokenizer.vocabulary, context=spec.context)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of both languages."""
        return self.spec.tokenizer.load(self._folder)

    def codec(self) -> Tokenizer:
        return self.tokenizer

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Padded pairs of similar length.

        Returns:
            `inputs` and `padding` [B, S], `before` (the target shifted right), `before_padding` and `targets` [B, T].
            The padding masks are True for real tokens.
        """
        return self._batch("train", *self._buckets["train"].draw(seed, step, batch_size, self._capacity(batch_size)))

    @property
    def uneven_batches(self) -> bool:
        return self.spec.uneven_batches

    def _capacity(self, batch_size: int) -> int | None:
        return batch_size * self.spec.context if self.spec.uneven_batches else None

    def mean_rows(self, batch_size: int) -> float:
        capacity = self._capacity(batch_size)
        return float(batch_size) if capacity is None else self._buckets["train"].mean_rows(capacity)

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """All validation pairs, shortest first, in the format of `train_batch`."""
        return self._batches("validation", batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """All test pairs, in the format of `validation_batches`."""
        return self._batches(TEST, batch_size) if TEST in self._splits else iter(())

    def _batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        for rows, widths in self._buckets[split].batches(batch_size):
            yield self._batch(split, rows, widths)

    def outputs(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Logits of every target token given the previous ones, [K, B, T, V]."""
        logits: torch.Tensor = model(batch["inputs"], batch["before"], batch["padding"], batch["before_padding"])
        return logits

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member per target token, with smoothed labels: [K, B, T, V] to [K]."""
        losses = nats(outputs, batch["targets"], self.spec.label_smoothing, UNSCORED)
        return losses.sum(1) / _count(batch["targets"]).clamp(min=1)

    def loss_terms(self, batch: Batch) -> torch.Tensor:
        """The number of target tokens."""
        return _count(batch["targets"])

    def scored(self, batch: Batch) -> torch.Tensor:
        """The outputs at target tokens."""
        return batch["targets"] != UNSCORED

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `right` and `tokens`, float64 [K]."""
        targets = batch["targets"]
        return {
            "nats": nats(outputs, targets, ignored=UNSCORED).double().sum(1),
            "right": (outputs.argmax(-1) == targets).flatten(1).double().sum(1),
            "tokens": _count(targets).double(),
        }

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats per target token, no smoothing) and `val_token_accuracy`."""
        return {
            name: [total / tokens for total, tokens in zip(sums[key], sums["tokens"], strict=True)]
            for name, key in (("val_loss", "nats"), ("val_token_accuracy", "right"))
        }

    def final_metrics(self, model: torch.nn.Module, device: torch.device) -> dict[str, list[float]]:
        """`val_bleu` and `val_chrf`, 0 to 100, of the translations of all validation pairs.

        If there is a test split, also `test_bleu` and `test_chrf` of its pairs.
        """
        was_training = model.training
        model.eval()
        metrics: dict[str, list[float]] = {}
        for split, prefix in (("validation", "val"), (TEST, "test")):
            if split not in self._splits:
                continue
            sources, targets = zip(*self.texts(split), strict=True)
            translations = self.translate(
                model, sources, beams=self.spec.beams, length_penalty=self.spec.length_penalty, device=device
            )
            members = [scores.of_texts(texts, targets) for texts in translations]
            metrics |= {f"{prefix}_{name}": [member[name] for member in members] for name in members[0]}
        model.train(was_training)
        return metrics

    def translate(
        self,
        model: torch.nn.Module,
        texts: Sequence[str],
        *,
        beams: int = 1,
        length_penalty: float = 0.6,
        device: torch.device | None = None,
    ) -> list[list[str]]:
        """Translate texts with every member of a pack; see `translating.translate`.

        Raises:
            DataError: A text is longer than the context.
        """
        return translate(
            cast(Translator, model),
            self.tokenizer,
            texts,
            context=self.spec.context,
            beams=beams,
            length_penalty=length_penalty,
            device=device,
        )

    def input_lengths(self) -> tuple[int, ...]:
        """Padded length of each bucket, the mean of source and target."""
        return self._buckets["train"].lengths

    def tokens_per_batch(self, batch_size: int) -> int:
        """The mean number of pairs times the mean length of source and target together."""
        mean = float(self._splits["train"].lengths.sum(axis=1).mean())
        return round(self.mean_rows(batch_size) * mean) if self.spec.uneven_batches else batch_size * round(mean)

    def baselines(self) -> dict[str, dict[str, float]]:
        """`unigram` and `bigram`: frequencies of target tokens in training; `source`: the untranslated source text.

        The bigram knows the token before, which the decoder sees: p(c|b) = (N(b,c) + λ p(c)) / (N(b) + λ), as of
        `language_model`.
        """
        size = self.shape.vocabulary
        train, validation = (self._splits[split].target_counts(size) for split in SPLITS)
        shares = (train + 1) / (train + 1).sum()
        unigram = {
            "val_loss": float(-(validation * np.log(shares)).sum() / validation.sum()),
            "val_token_accuracy": float(validation[train.argmax()] / validation.sum()),
        }
        sources, targets = zip(*self.texts("validation"), strict=True)
        copied = {f"val_{name}": score for name, score in scores.of_texts(sources, targets).items()}
        return {"unigram": unigram, "bigram": self._bigram(shares), "source": copied}

    def _bigram(self, shares: NDArray[np.float64]) -> dict[str, float]:
        """The metrics of the bigram; `shares` [V] are those of the unigram."""
        size, start = shares.size, self.tokenizer.end_of_document
        (firsts, seconds), (before, targets) = (self._splits[split].target_pairs(start) for split in SPLITS)
        pairs, counts = np.unique(firsts * size + seconds, return_counts=True)
        singles = np.bincount(firsts, minlength=size)
        places = np.searchsorted(pairs, before * size + targets).clip(max=pairs.size - 1)
        known = np.where(pairs[places] == before * size + targets, counts[places], 0)
        weights = counts + PRIOR * shares[pairs % size]
        likeliest = np.full(size, shares.argmax())
        beaten = np.flatnonzero(weights > PRIOR * shares.max())
        ordered = beaten[np.argsort(weights[beaten], kind="stable")]
        likeliest[pairs[ordered] // size] = pairs[ordered] % size  # the last one that is written is the likeliest
        return {
            "val_loss": float(-np.log((known + PRIOR * shares[targets]) / (singles[before] + PRIOR)).mean()),
            "val_token_accuracy": float((likeliest[before] == targets).mean()),
        }

    def describe(self) -> DataSummary:
        """Number of pairs and tokens, lengths of source and target together, and three pairs."""
        pairs = self.texts("validation")
        names = {
            "empty_or_copies": "duplicates",
            "in_both": "pairs with a text of another split",
            "too_long": "too long",
            "bad_rows": "bad rows",
        }
        about = prepared.about(self._folder)
        left_out = [f"{about['left_out'][key]:,} {name}" for key, name in names.items() if about["left_out"][key]]
        return DataSummary(
            rows=about["rows"],
            tokens={split: int(rows.lengths.sum()) for split, rows in self._splits.items()},
            lengths=tuple(self._splits["train"].lengths.sum(axis=1).tolist()),
            samples=tuple(" -> ".join(pairs[index]) for index in spread(len(pairs), 3)),
            notes=(f"left out: {', '.join(left_out)}",) if left_out else (),
        )

    def texts(self, split: str) -> list[tuple[str, str]]:
        """The pairs of a held-out split, as text."""
        texts = json.loads((self._folder / f"{split}.json").read_text(encoding="utf-8"))
        return [(texts[row][0], texts[row][1]) for row in self._splits[split].fits.tolist()]

    def _batch(self, split: str, rows: NDArray[np.int64], widths: tuple[int, ...]) -> Batch:
        import torch

        end = self.tokenizer.end_of_document
        (source, source_real), (target, target_real) = self._splits[split].cut(rows, widths, end)
        before = np.concatenate([np.full((len(rows), 1), end), target[:, :-1]], axis=1)
        arrays = {
            "inputs": source,
            "padding": source_real,
            "before": before,
            "before_padding": target_real,
            "targets": np.where(target_real, target, UNSCORED),
        }
        return {name: torch.from_numpy(values) for name, values in arrays.items()}


def _count(targets: torch.Tensor) -> torch.Tensor:
    """Number of targets that are not padding: [K, B, T] to [K]."""
    return (targets != UNSCORED).flatten(1).sum(1)

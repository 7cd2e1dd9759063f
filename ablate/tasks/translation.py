"""`translation`: read a text in one language and write it in another (arXiv:1706.03762).

One vocabulary serves both languages. The decoder is given the target shifted right by one, beginning with the id that
ends a text.

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
from ablate.tasks import cache as prepared
from ablate.tasks import scores
from ablate.tasks.arrays import spread
from ablate.tasks.base import PARTS, DataShape, DataSummary, Say, Task
from ablate.tasks.buckets import Buckets
from ablate.tasks.pairs import Pairs, Part, read_pairs, write_pairs
from ablate.tasks.sourced import Column, TokenizedSpec
from ablate.tasks.sources import TEST, Address
from ablate.tasks.tokenizers import Tokenizer, TokenizerSpec
from ablate.tasks.translating import Translator, translate

if TYPE_CHECKING:
    import torch

    from ablate.tasks.base import Batch

CODE_VERSION = 1
"""Part of the key of prepared data: raised whenever reading, dividing or tokenizing comes to mean something else."""

UNSCORED = -100
"""The target of a place that is padding."""


class TranslationSpec(TokenizedSpec):
    """Translate. BLEU and chrF are those of `sacrebleu` (arXiv:1804.08771), over texts that the model writes."""

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder_decoder"})
    # BLEU and chrF are of the end alone, so that no objective can follow them.
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_token_accuracy"})

    kind: Literal["translation"] = "translation"
    """Write in another language what a text says."""
    data: Address
    """Address of the pairs: `builtin:number_words`, `file:PATH` or `hub:NAME`."""
    tokenizer: Annotated[TokenizerSpec, OneOf]
    """How text of both languages becomes tokens; learnt from the training texts of both together."""
    context: int = Field(ge=2, le=1_000_000)
    """Tokens in a text at most, its end included; pairs with a longer one are left out and counted."""
    source: Column
    """The column of a table that is read; a number, counted from 1, where a file has no header."""
    target: Column
    """The column that is to be written."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Share of the wanted probability that training spreads over all tokens; validation is without it."""
    validation_pairs: int = Field(default=1000, ge=1)
    """Pairs held out, at most half of them. No source text and no target text is in both parts."""
    beams: int = Field(default=1, ge=1, le=100)
    """Beams of the search that writes the texts for BLEU and chrF; 1 is greedy."""
    length_penalty: float = Field(default=0.6, ge=0)
    """Of a search with several beams: scores are divided by ((5 + length) / 6) to this power (arXiv:1609.08144)."""
    test_pairs: int = Field(default=0, ge=0)
    """Pairs for a test that is measured once, at the end of a trial, taken as those to validate on are; 0: no test."""

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, divide and tokenize the pairs, unless `cache` holds the result for the very same pairs.

        Raises:
            DataError: The pairs are missing or unfit.
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
                **({"revision": revision} if revision else {}),
            }
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(pairs, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def open(self, cache: Path, fingerprint: str) -> Translation:
        """Map the pairs into memory after a look at their checksums.

        Raises:
            DataError: The prepared files are missing or their checksum is off.
        """
        return Translation(self, prepared.locate(cache, fingerprint), fingerprint)

    def _build(self, pairs: Pairs, folder: Path, say: Say) -> dict[str, Any]:
        say(f"Learning the tokenizer ({self.tokenizer.kind_name()}) from {pairs.sizes['train']:,} training pairs")
        tokenizer = self.tokenizer.train(text for pair in pairs.rows("train") for text in pair)
        say("Turning the text into tokens")
        kept, too_long = {}, 0
        for part in pairs.sizes:
            kept[part], more = write_pairs(pairs, part, tokenizer, self.context, folder)
            too_long += more
            if part != "train":
                texts = [list(pair) for pair in pairs.rows(part)]
                (folder / f"{part}.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
        tokenizer.save(folder)
        if too_long:
            say(f"Left out {too_long:,} pairs with a text of more than {self.context} tokens")
        return {"data": self.data, "rows": kept, "left_out": {**pairs.left_out, "too_long": too_long}}


class Translation(Task):
    """See `TranslationSpec`."""

    def __init__(self, spec: TranslationSpec, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self._folder = folder
        self._parts = {part: Part(folder, part) for part in (*PARTS, *([TEST] if spec.test_pairs else []))}
        self._buckets = {part: Buckets(fingerprint, rows.lengths) for part, rows in self._parts.items()}
        self.shape = DataShape(vocabulary=self.tokenizer.vocabulary, context=spec.context)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of both languages."""
        return self.spec.tokenizer.load(self._folder)

    def codec(self) -> Tokenizer:
        """See `Task.codec`."""
        return self.tokenizer

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Pairs of like length, padded.

        Returns:
            `inputs` and `padding` [B, S], `before` (the target shifted right), `before_padding` and `targets` [B, T].
            Padding is True where a token is real.
        """
        return self._batch("train", *self._buckets["train"].draw(seed, step, batch_size))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """Every pair to validate on, from short to long; as `train_batch`."""
        return self._batches("validation", batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """Every pair of the test; as `validation_batches`."""
        return self._batches(TEST, batch_size) if TEST in self._parts else iter(())

    def _batches(self, part: str, batch_size: int) -> Iterator[Batch]:
        for rows, widths in self._buckets[part].batches(batch_size):
            yield self._batch(part, rows, widths)

    def outputs(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Logits [K, B, T, V] of every target token from those before it."""
        logits: torch.Tensor = model(batch["inputs"], batch["before"], batch["padding"], batch["before_padding"])
        return logits

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member per target token, with smoothed labels: [K, B, T, V] to [K]."""
        return _nats(outputs, batch["targets"], self.spec.label_smoothing).sum(1) / _count(batch["targets"])

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `right` and `tokens`, float64 [K]."""
        targets = batch["targets"]
        return {
            "nats": _nats(outputs, targets, 0.0).double().sum(1),
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
        """`val_bleu` and `val_chrf`, 0 to 100, over the texts that the model writes for all pairs to validate on.

        And, with a test, `test_bleu` and `test_chrf` over its pairs.
        """
        was_training = model.training
        model.eval()
        found: dict[str, list[float]] = {}
        for part, prefix in (("validation", "val"), (TEST, "test")):
            if part not in self._parts:
                continue
            sources, targets = zip(*self.texts(part), strict=True)
            written = self.translate(
                model, sources, beams=self.spec.beams, length_penalty=self.spec.length_penalty, device=device
            )
            members = [scores.of_texts(texts, targets) for texts in written]
            found |= {f"{prefix}_{name}": [member[name] for member in members] for name in members[0]}
        model.train(was_training)
        return found

    def translate(
        self,
        model: torch.nn.Module,
        texts: Sequence[str],
        *,
        beams: int = 1,
        length_penalty: float = 0.6,
        device: torch.device | None = None,
    ) -> list[list[str]]:
        """Translations of texts by every member of a pack; see `translating.translate`.

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
        """See `Task.input_lengths`: the mean of source and target."""
        return self._buckets["train"].lengths

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times the mean length of source and target together."""
        return batch_size * round(float(self._parts["train"].lengths.sum(axis=1).mean()))

    def baselines(self) -> dict[str, dict[str, float]]:
        """`unigram`: target tokens by their frequency in training; `source`: the text as it is, not translated."""
        size = self.shape.vocabulary
        train, validation = (self._parts[part].target_counts(size) for part in PARTS)
        logs = np.log((train + 1) / (train + 1).sum())
        unigram = {
            "val_loss": float(-(validation * logs).sum() / validation.sum()),
            "val_token_accuracy": float(validation[train.argmax()] / validation.sum()),
        }
        sources, targets = zip(*self.texts("validation"), strict=True)
        copied = {f"val_{name}": score for name, score in scores.of_texts(sources, targets).items()}
        return {"unigram": unigram, "source": copied}

    def describe(self) -> DataSummary:
        """Pairs, tokens, lengths of sources and targets together, and three pairs."""
        pairs = self.texts("validation")
        names = {
            "empty_or_copies": "copies",
            "in_both": "pairs with a text of another part",
            "too_long": "too long",
            "bad_rows": "bad rows",
        }
        about = prepared.about(self._folder)
        told = [f"{about['left_out'][key]:,} {name}" for key, name in names.items() if about["left_out"][key]]
        return DataSummary(
            rows=about["rows"],
            tokens={part: int(rows.lengths.sum()) for part, rows in self._parts.items()},
            lengths=tuple(self._parts["train"].lengths.sum(axis=1).tolist()),
            samples=tuple(" -> ".join(pairs[place]) for place in spread(len(pairs), 3)),
            notes=(f"left out: {', '.join(told)}",) if told else (),
        )

    def texts(self, part: str) -> list[tuple[str, str]]:
        """The pairs of a part that is not for training, as text."""
        texts = json.loads((self._folder / f"{part}.json").read_text(encoding="utf-8"))
        return [(texts[row][0], texts[row][1]) for row in self._parts[part].fits.tolist()]

    def _batch(self, part: str, rows: NDArray[np.int64], widths: tuple[int, ...]) -> Batch:
        import torch

        end = self.tokenizer.end_of_document
        (source, source_real), (target, target_real) = self._parts[part].cut(rows, widths, end)
        before = np.concatenate([np.full((len(rows), 1), end), target[:, :-1]], axis=1)
        arrays = {
            "inputs": source,
            "padding": source_real,
            "before": before,
            "before_padding": target_real,
            "targets": np.where(target_real, target, UNSCORED),
        }
        return {name: torch.from_numpy(values) for name, values in arrays.items()}


def _nats(outputs: torch.Tensor, targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Cross entropy of every target, 0 for padding: [K, B, T, V] and [K, B, T] to [K, B·T]."""
    from torch.nn import functional

    flat = outputs.flatten(0, 2).float()
    nats = functional.cross_entropy(
        flat, targets.flatten(), reduction="none", ignore_index=UNSCORED, label_smoothing=smoothing
    )
    return nats.view(targets.shape[0], -1)


def _count(targets: torch.Tensor) -> torch.Tensor:
    """Targets that are no padding: [K, B, T] to [K]."""
    return (targets != UNSCORED).flatten(1).sum(1)

"""`translation`: read a text in one language and write it in another (arXiv:1706.03762).

One vocabulary serves both languages. The decoder is given the target shifted right by one, beginning with the id that
ends a text.

Shapes: K pack, B batch, S source tokens, T target tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ablate.errors import DataError
from ablate.spec.base import OneOf, Spelling, content_hash
from ablate.tasks import cache as prepared
from ablate.tasks.arrays import GrowingArray, mapped, spread, token_dtype
from ablate.tasks.base import DataShape, DataSummary, Say, Task, TaskSpec
from ablate.tasks.buckets import Buckets, padded
from ablate.tasks.sources import BadRows, Source, check_address, parse
from ablate.tasks.tokenizers import Tokenizer, TokenizerSpec

if TYPE_CHECKING:
    import torch

    from ablate.tasks.base import Batch

CODE_VERSION = 1
"""Part of the key of prepared data: raised whenever reading, dividing or tokenizing comes to mean something else."""

PARTS = ("train", "validation")
TEXTS = "validation.json"
UNSCORED = -100
"""The target of a place that is padding."""
MORE_THAN_SOURCE = 50
"""Tokens by which a translation may be longer than its source (arXiv:1706.03762, §6.1)."""
_AT_ONCE = 64

Column = Annotated[str, Spelling(r"\S", "a column has a name, or a number counted from 1 in a file without header")]


class TranslationSpec(TaskSpec):
    """Translate. BLEU and chrF are those of `sacrebleu` (arXiv:1804.08771), over texts that the model writes."""

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder_decoder"})
    # BLEU and chrF are of the end alone, so that no objective can follow them.
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_token_accuracy"})

    kind: Literal["translation"] = "translation"
    """Write in another language what a text says."""
    data: str
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
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row stops the preparation, or is left out and counted."""

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
        """Read, divide and tokenize the pairs, unless `cache` holds the result for the very same pairs.

        Raises:
            DataError: The pairs are missing or unfit.
        """
        pairs = self._read(say)
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

    def _read(self, say: Say) -> _Pairs:
        source, bad_rows = parse(self.data), BadRows(self.bad_rows == "refuse")
        columns = (self.source, self.target)
        parts: dict[tuple[bytes, bytes], str] = {}
        read = 0
        for row in source.rows(columns, bad_rows, say):
            read += 1
            parts.setdefault((_digest(row.values[0]), _digest(row.values[1])), row.split)
        if "validation" not in parts.values():
            # Pairs of one source text are held out together: texts in the order of their hashes, as many as wanted.
            counts: dict[bytes, int] = {}
            for text, _ in parts:
                counts[text] = counts.get(text, 0) + 1
            room = min(self.validation_pairs, len(parts) // 2)
            held_out: set[bytes] = set()
            for text in sorted(counts):
                if counts[text] <= room:
                    held_out.add(text)
                    room -= counts[text]
                if not room:
                    break
            parts = {pair: "validation" if pair[0] in held_out else "train" for pair in parts}
        held = [{pair[side] for pair, part in parts.items() if part == "validation"} for side in (0, 1)]
        in_both = [
            pair for pair, part in parts.items() if part == "train" and (pair[0] in held[0] or pair[1] in held[1])
        ]
        parts |= dict.fromkeys(in_both, "")
        sizes = {part: sum(value == part for value in parts.values()) for part in PARTS}
        for part, size in sizes.items():
            if not size:
                raise DataError(
                    f"no pairs are left for {part}",
                    where=self.data,
                    got=f"{read:,} rows, {read - len(parts):,} copies, {len(in_both):,} with a text to validate on",
                    remedy="Give more pairs with texts of their own.",
                )
        left_out = {"empty_or_copies": read - len(parts), "in_both": len(in_both), "bad_rows": bad_rows.count}
        say(
            f"Read {len(parts):,} pairs from {self.data} ({read - len(parts):,} copies and {len(in_both):,} training"
            " pairs with a text to validate on left out)"
        )
        if bad_rows.count:
            say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
        plain = [[first.hex(), second.hex(), part] for (first, second), part in parts.items()]
        return _Pairs(content_hash(plain), sizes, left_out, source, columns, parts)

    def _build(self, pairs: _Pairs, folder: Path, say: Say) -> dict[str, Any]:
        say(f"Learning the tokenizer ({self.tokenizer.kind_name()}) from {pairs.sizes['train']:,} training pairs")
        tokenizer = self.tokenizer.train(text for pair in pairs.rows("train") for text in pair)
        say("Turning the text into tokens")
        kept, too_long = {}, 0
        for part in PARTS:
            lengths = self._write(pairs, part, tokenizer, folder)
            fits = (lengths <= self.context).all(axis=1)
            if not fits.any():
                raise DataError(
                    f"no {part} pair fits the context",
                    where=self.data,
                    expected=f"texts of at most {self.context} tokens",
                    got=f"{int(lengths.max(axis=1).min())} and more",
                    remedy="Raise `context`.",
                )
            np.save(folder / f"{part}.fits.npy", np.flatnonzero(fits))
            kept[part], too_long = int(fits.sum()), too_long + int((~fits).sum())
        texts = [list(pair) for pair in pairs.rows("validation")]
        (folder / TEXTS).write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
        tokenizer.save(folder)
        if too_long:
            say(f"Left out {too_long:,} pairs with a text of more than {self.context} tokens")
        return {"data": self.data, "rows": kept, "left_out": {**pairs.left_out, "too_long": too_long}}

    def _write(self, pairs: _Pairs, part: str, tokenizer: Tokenizer, folder: Path) -> NDArray[np.int64]:
        """Source and target side by side, each with its end; the lengths [N, 2] are given back and written."""
        end = np.array([tokenizer.end_of_document])
        sizes: list[int] = []
        texts = (text for pair in pairs.rows(part) for text in pair)
        with GrowingArray(folder / f"{part}.tokens.npy", token_dtype(tokenizer.vocabulary)) as tokens:
            for ids in tokenizer.encode_all(texts):
                tokens.append(ids)
                tokens.append(end)
                sizes.append(ids.size + 1)
        lengths = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        np.save(folder / f"{part}.lengths.npy", lengths)
        return lengths


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of a source, each once, divided; read anew whenever they are asked for."""

    fingerprint: str
    sizes: dict[str, int]
    left_out: dict[str, int]
    source: Source = field(repr=False)
    columns: tuple[str, str] = field(repr=False)
    parts: dict[tuple[bytes, bytes], str] = field(repr=False)

    def rows(self, part: str) -> Iterator[tuple[str, str]]:
        """The pairs of a part.

        Raises:
            DataError: They are not what they were at the first reading.
        """
        seen: set[tuple[bytes, bytes]] = set()
        for row in self.source.rows(self.columns, BadRows(refuse=False), lambda line: None):
            first, second = row.values
            key = (_digest(first), _digest(second))
            if key not in seen and self.parts.get(key) == part:
                seen.add(key)
                yield first, second
        if len(seen) != self.sizes[part]:
            raise DataError("the data has changed while it was read", remedy="Run the command again.")


class Translator(Protocol):
    """What the task asks of a model that is to write."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Ids [K, B, S] to [K, B, S, D]."""

    def mix(self, x: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
        """The encoder: [K, B, S, D] to the same."""

    def decode(
        self, memory: torch.Tensor, target: torch.Tensor, source_padding: torch.Tensor | None = None
    ) -> torch.Tensor:
        """[K, B, S, D] and ids [K, B, T] to logits [K, B, T, V]."""


class Translation(Task):
    """See `TranslationSpec`."""

    def __init__(self, spec: TranslationSpec, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self._folder = folder
        self._parts = {part: _Part(folder, part) for part in PARTS}
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
        for rows, widths in self._buckets["validation"].batches(batch_size):
            yield self._batch("validation", rows, widths)

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
        """`val_bleu` and `val_chrf`, 0 to 100, over the texts that the model writes for all pairs to validate on."""
        pairs = self.validation_texts
        was_training = model.training
        model.eval()
        written = self.translate(
            model,
            [source for source, _ in pairs],
            beams=self.spec.beams,
            length_penalty=self.spec.length_penalty,
            device=device,
        )
        model.train(was_training)
        scores = [corpus_scores(texts, [target for _, target in pairs]) for texts in written]
        return {name: [score[name] for score in scores] for name in scores[0]}

    def translate(
        self,
        model: torch.nn.Module,
        texts: Sequence[str],
        *,
        beams: int = 1,
        length_penalty: float = 0.6,
        device: torch.device | None = None,
    ) -> list[list[str]]:
        """Translations of texts by every member of a pack.

        Args:
            model: An encoder-decoder in evaluation mode.
            texts: What to translate.
            beams: 1 is greedy.
            length_penalty: Of a search with several beams.
            device: Where the model is; None: the CPU.

        Raises:
            DataError: A text is longer than the context.
        """
        end = self.tokenizer.end_of_document
        sources = [np.append(ids, end) for ids in self.tokenizer.encode_all(texts)]
        for text, ids in zip(texts, sources, strict=True):
            if ids.size > self.spec.context:
                raise DataError(
                    "a text is too long for this model",
                    where=repr(text[:60]),
                    expected=f"at most {self.spec.context} tokens, the end included",
                    got=f"{ids.size}",
                    remedy="Divide it into sentences.",
                )
        order = sorted(range(len(texts)), key=lambda row: sources[row].size)
        found: list[list[str]] = []
        for first in range(0, len(order), _AT_ONCE):
            rows = order[first : first + _AT_ONCE]
            some = [sources[row] for row in rows]
            members = self._search(cast(Translator, model), some, beams, length_penalty, device)
            found = found or [[""] * len(texts) for _ in members]
            for member, written in enumerate(members):
                for row, tokens in zip(rows, written, strict=True):
                    found[member][row] = self.tokenizer.decode(tokens)
        return found

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
        sources, targets = zip(*self.validation_texts, strict=True)
        return {"unigram": unigram, "source": corpus_scores(sources, targets)}

    def describe(self) -> DataSummary:
        """Pairs, tokens, lengths of sources and targets together, and three pairs."""
        pairs = self.validation_texts
        names = {
            "empty_or_copies": "copies",
            "in_both": "training pairs with a text to validate on",
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

    @cached_property
    def validation_texts(self) -> list[tuple[str, str]]:
        """The pairs to validate on, as text."""
        texts = json.loads((self._folder / TEXTS).read_text(encoding="utf-8"))
        return [(texts[row][0], texts[row][1]) for row in self._parts["validation"].fits.tolist()]

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

    def _search(
        self,
        model: Translator,
        sources: list[NDArray[np.int64]],
        beams: int,
        length_penalty: float,
        device: torch.device | None,
    ) -> list[list[list[int]]]:
        import torch

        from ablate.decoding.search import beam, greedy

        device = device or torch.device("cpu")
        end, lengths = self.tokenizer.end_of_document, np.array([ids.size for ids in sources])
        ids, real = padded(np.concatenate(sources), np.cumsum(lengths) - lengths, lengths, int(lengths.max()), end)
        pack = next(cast("torch.nn.Module", model).parameters()).shape[0]
        with torch.no_grad():
            padding = torch.from_numpy(real).to(device).expand(pack, -1, -1)
            memory = model.mix(model.embed(torch.from_numpy(ids).to(device).expand(pack, -1, -1)), padding)

            def step(member: int, rows: torch.Tensor, prefixes: torch.Tensor) -> torch.Tensor:
                logits = model.decode(memory[:, rows], prefixes.expand(pack, -1, -1), padding[:, rows])
                return logits[member, :, -1]

            limits = np.minimum(lengths + MORE_THAN_SOURCE, self.spec.context).tolist()
            found = []
            for member in range(pack):
                one = lambda rows, prefixes, member=member: step(member, rows, prefixes)  # noqa: E731
                if beams == 1:
                    found.append(greedy(one, len(sources), end, end, limits, device))
                else:
                    found.append(beam(one, len(sources), end, end, limits, device, beams, length_penalty))
        return found


class _Part:
    """The pairs of one part that fit the context."""

    def __init__(self, folder: Path, part: str) -> None:
        self.tokens = mapped(folder / f"{part}.tokens.npy")
        self.fits: NDArray[np.int64] = np.load(folder / f"{part}.fits.npy")
        lengths: NDArray[np.int64] = np.load(folder / f"{part}.lengths.npy")
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        self.lengths, self._starts = lengths[self.fits], starts[self.fits]

    def cut(
        self, rows: NDArray[np.int64], widths: tuple[int, ...], filler: int
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.bool_]], ...]:
        """Source and target of pairs, padded, and where they are real."""
        sides = ((self._starts[rows, side], self.lengths[rows, side], widths[side]) for side in (0, 1))
        return tuple(padded(self.tokens, *side, filler) for side in sides)

    def target_counts(self, vocabulary: int) -> NDArray[np.float64]:
        """How often every id is a target."""
        ids, real = padded(self.tokens, self._starts[:, 1], self.lengths[:, 1], int(self.lengths[:, 1].max()), 0)
        return np.bincount(ids[real], minlength=vocabulary).astype(np.float64)


def corpus_scores(written: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF of texts by `sacrebleu`, as it scores unless told otherwise."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {
        "val_bleu": BLEU().corpus_score(list(written), [list(wanted)]).score,
        "val_chrf": CHRF().corpus_score(list(written), [list(wanted)]).score,
    }


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


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

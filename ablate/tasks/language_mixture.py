"""`language_mixture`: predict the next token of text from several sources, each with a weight.

Shapes: K pack, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.spec.annotations import OneOf, Spelling
from ablate.spec.base import Spec, content_hash
from ablate.spec.task import DataShape, DataSummary, Say, Task, TaskSpec
from ablate.tasks import cache as prepared
from ablate.tasks.corpus import MixedCorpus, read_corpus
from ablate.tasks.language_model import LanguageModel, LanguageModelSpec, perplexity
from ablate.tasks.sampling import Draws
from ablate.tasks.scores import nats
from ablate.tasks.sources import Address, parse
from ablate.tasks.text import CODE_VERSION, bytes_to_read, division_of_long_texts
from ablate.tasks.tokenizers import Tokenizer, TokenizerSpec

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio: its multiples modulo 2⁶⁴ are spread as evenly as those of any number (Weyl 1916)."""


class MixtureSource(Spec):
    """A source of a mixture."""

    data: Address
    """Address of the text: `builtin:python_stdlib`, `file:PATH` with a file, a glob or a folder, or `hub:NAME`."""
    weight: float = Field(gt=0)
    """Share of the training windows, relative to the weights of the other sources."""
    text: str = "text"
    """The column of a table that holds the text."""


SourceName = Annotated[str, Spelling(r"^[A-Za-z]\w*$", "a source is named by letters, digits and underscores")]


class LanguageMixtureSpec(TaskSpec):
    """Predict the next token of text from several sources with weights; every source is validated by itself.

    Each source is split as that of `language_model`, and no document that one source holds out is in the training text
    of another. One tokenizer is trained on the training text of all. The source of a training window is drawn evenly:
    after n windows each source has had its share of them but for a few.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"decoder"})
    shortens: ClassVar[bool] = True
    length_field: ClassVar[str] = "context"

    kind: Literal["language_mixture"] = "language_mixture"
    """Predict the next token of text from several sources."""
    sources: dict[SourceName, MixtureSource] = Field(min_length=2)
    """The sources by name."""
    tokenizer: Annotated[TokenizerSpec, OneOf]
    """The tokenizer."""
    context: int = Field(ge=2, le=1_000_000)
    """Number of tokens in one input."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row of a table stops the preparation, or is skipped and counted."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the documents of each source that is held out for validation; for a single document, share of its
    characters."""
    validation_windows: int = Field(default=128, ge=1)
    """Number of evenly spaced windows of each source that an evaluation reads; fewer if they would overlap."""
    tokens: int | None = Field(default=None, ge=1, le=10**13)
    """Number of training tokens that are prepared, of each source its share, from its beginning; unless set, all."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target's probability that is spread over all ids, in training alone (arXiv:1512.00567, §7)."""
    separate_documents: bool = False
    """Whether no token sees another document of its window, as in `language_model`."""

    @property
    def metric_names(self) -> frozenset[str]:  # type: ignore[override]
        """Those of `language_model`, and the loss of each source."""
        return LanguageModelSpec.metric_names | {f"val_loss_{name}" for name in self.sources}

    @property
    def separates_documents(self) -> bool:
        """As the space says."""
        return self.separate_documents

    @property
    def length(self) -> int:
        """The context."""
        return self.context

    @property
    def shares(self) -> dict[str, float]:
        """Share of the training windows of each source."""
        total = math.fsum(source.weight for source in self.sources.values())
        return {name: source.weight / total for name, source in self.sources.items()}

    def missing(self) -> str | None:
        reasons = (parse(source.data).missing() for source in self.sources.values())
        return next((said for said in reasons if said), None)

    def part(self, name: str) -> LanguageModelSpec:
        """The task on one source alone."""
        source = self.sources[name]
        return LanguageModelSpec(
            data=source.data,
            text=source.text,
            tokenizer=self.tokenizer,
            context=self.context,
            bad_rows=self.bad_rows,
            validation_share=self.validation_share,
            validation_windows=self.validation_windows,
            tokens=None if self.tokens is None else math.ceil(self.tokens * self.shares[name]),
            label_smoothing=self.label_smoothing,
            separate_documents=self.separate_documents,
        )

    def prepare(self, cache: Path, say: Say) -> str:
        """Read, split and tokenize the text of all sources, unless `cache` holds the result for the same text.

        Raises:
            DataError: The text of a source is missing, invalid, or too short for the context.
        """
        parts = {name: self.part(name) for name in self.sources}
        corpora = {
            name: read_corpus(
                part.data,
                part.validation_share,
                say,
                column=part.text,
                refuse_bad_rows=part.bad_rows == "refuse",
                most_bytes=bytes_to_read(part.tokens),
            )
            for name, part in parts.items()
        }
        corpus = MixedCorpus(corpora)
        more = {name: part.part_of_tokens() for name, part in parts.items()}
        key = content_hash(
            {
                "texts": corpus.fingerprint,
                "revisions": [one.source.revision() for one in corpora.values()],
                "tokenizer": self.tokenizer.identity(),
                "validation_share": self.validation_share,
                "tokens": [part.tokens for part in parts.values()],
                **{f"evaluated {name}": of["evaluated"] for name, of in more.items() if "evaluated" in of},
                "code": CODE_VERSION,
                **prepared.users_code(self),
                **division_of_long_texts(corpus, self.tokenizer),
            }
        )

        def most(split: str) -> int:
            base, _, name = split.partition("-")
            return parts[name].most_tokens(base)

        first = next(iter(parts.values()))
        build = partial(first.build, corpus, say=say, most=most)
        fingerprint = prepared.prepare(cache, key, build, say, resumes=True)
        self.open(cache, fingerprint)
        return fingerprint

    def open(self, cache: Path, fingerprint: str) -> LanguageMixture:
        """Memory-map the prepared tokens after verifying their checksums.

        Raises:
            DataError: The prepared files are missing or damaged, or the text of a source is too short for the context.
        """
        return LanguageMixture(self, prepared.locate(cache, fingerprint), fingerprint)


class LanguageMixture(Task):
    """The task of `LanguageMixtureSpec`.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.

    Raises:
        DataError: The text of a source is too short for the context.

    Attributes:
        parts: The text of each source.
    """

    tokenwise = True

    def __init__(self, spec: LanguageMixtureSpec, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.spec = spec
        self.shares = spec.shares
        self._folder = folder
        self.parts = {
            name: LanguageModel(spec.part(name), folder, fingerprint, part=f"-{name}") for name in spec.sources
        }
        self._first = next(iter(self.parts.values()))
        self.shape: DataShape = self._first.shape

    def sources_of(self, seed: int, first: int, count: int) -> NDArray[np.int64]:
        """The numbers of the sources of training windows `first` to `first + count - 1` of a seed.

        The points of a Weyl sequence, which begins at random, in the intervals of the shares.
        """
        start = Draws(f"{self.fingerprint}/{seed}/sources").integers(2**62, 1).astype(np.uint64)
        points = start + np.arange(first, first + count, dtype=np.uint64) * _GOLDEN  # modulo 2⁶⁴
        bounds = np.cumsum([*self.shares.values()])[:-1]
        return np.searchsorted(bounds, points / 2.0**64, side="right").astype(np.int64)

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Windows of the sources in turn, at uniform random positions, in the format of `LanguageModel.as_batch`."""
        return self.shorter_batch(seed, step, batch_size, self.shape.context)

    def shorter_batch(self, seed: int, step: int, batch_size: int, length: int) -> Batch:
        """As `train_batch`, with the beginnings of the same windows: inputs of `length` tokens."""
        sources = self.sources_of(seed, step * batch_size, batch_size)
        windows = np.zeros((batch_size, self.shape.context + 1), dtype=np.int64)
        for number, (name, part) in enumerate(self.parts.items()):
            rows = sources == number
            if count := int(rows.sum()):
                windows[rows] = part.train_windows(f"{self.fingerprint}/{seed}/{step}/{batch_size}/{name}", count)
        return self._first.as_batch(windows[:, : length + 1])

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same windows at each call, those of the sources spread evenly.

        As `train_batch`, with `target_bytes` and `source`, the number of the source, int64 [B].
        """
        import torch

        windows = [part.windows("validation") for part in self.parts.values()]
        sources = np.concatenate([np.full(len(window), number) for number, window in enumerate(windows)])
        places = np.concatenate([(np.arange(len(window)) + 0.5) / len(window) for window in windows])
        order = np.argsort(places, kind="stable")
        every, sources = np.concatenate(windows)[order], sources[order]
        for begin in range(0, len(every), batch_size):
            rows = slice(begin, begin + batch_size)
            batch = self._first.as_batch(every[rows])
            target_bytes = self._first.token_bytes[batch["targets"].numpy()].sum(axis=1)
            yield {**batch, "target_bytes": torch.from_numpy(target_bytes), "source": torch.from_numpy(sources[rows])}

    def at_length(self, value: int) -> LanguageMixture:
        """The same texts in windows of another length."""
        return LanguageMixture(self.spec.at_length(value), self._folder, self.fingerprint)

    def outputs(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Logits [K, B, T, V]."""
        return self._first.outputs(model, batch)

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member in nats per token: outputs [K, B, T, V], targets [K, B, T] -> [K]."""
        return self._first.loss(outputs, batch)

    def loss_terms(self, batch: Batch) -> torch.Tensor:
        """The number of targets."""
        return self._first.loss_terms(batch)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `tokens` and `bytes` of each source, float64 [K]."""
        targets = batch["targets"]
        of_rows = nats(outputs, targets).double().view(*targets.shape).sum(2)
        totals: dict[str, torch.Tensor] = {}
        for number, name in enumerate(self.parts):
            own = (batch["source"] == number).double()
            totals |= {
                f"nats/{name}": (of_rows * own).sum(1),
                f"tokens/{name}": own.sum(1) * targets.shape[2],
                f"bytes/{name}": (batch["target_bytes"] * own).sum(1),
            }
        return totals

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss_NAME` of each source, in nats per token; means of the sources by their shares for the others.

        Where a part of the validation has no window of a source, the mean is over the other sources.
        """
        of_sources = {
            name: self._first.metrics({total: sums[f"{total}/{name}"] for total in ("nats", "tokens", "bytes")})
            for name in self.parts
            if all(sums[f"tokens/{name}"])
        }
        overall = {
            metric: self._mean({name: metrics[metric] for name, metrics in of_sources.items()})
            for metric in ("val_loss", "val_bits_per_byte")
        }
        overall["val_perplexity"] = [perplexity(loss) for loss in overall["val_loss"]]
        return overall | {f"val_loss_{name}": metrics["val_loss"] for name, metrics in of_sources.items()}

    def _mean(self, values: Mapping[str, list[float]]) -> list[float]:
        """The mean over sources by their shares, for each member."""
        weights = np.array([self.shares[name] for name in values])
        mean: list[float] = (weights @ np.array([*values.values()]) / weights.sum()).tolist()
        return mean

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    def codec(self) -> Tokenizer:
        return self._first.tokenizer

    def least_tokens(self) -> tuple[int, str]:
        """Those of the source with the most pairs: the bigram of each source is one of its own."""
        return max(part.least_tokens() for part in self.parts.values())

    def baselines(self) -> dict[str, dict[str, float]]:
        """Those of each source by itself, which know the source of a window, in the mean by the shares."""
        of_sources = {name: part.baselines() for name, part in self.parts.items()}
        baselines = {}
        for baseline in next(iter(of_sources.values())):
            losses = {name: own[baseline]["val_loss"] for name, own in of_sources.items()}
            (loss,) = self._mean({name: [value] for name, value in losses.items()})
            (bits,) = self._mean({name: [own[baseline]["val_bits_per_byte"]] for name, own in of_sources.items()})
            baselines[baseline] = {"val_loss": loss, "val_perplexity": perplexity(loss), "val_bits_per_byte": bits}
            baselines[baseline] |= {f"val_loss_{name}": value for name, value in losses.items()}
        return baselines

    def describe(self) -> DataSummary:
        """Documents and tokens of each source, its share, and a window of each."""
        of_sources = {name: part.describe() for name, part in self.parts.items()}
        return DataSummary(
            rows={f"{split} {name}": n for name, own in of_sources.items() for split, n in own.rows.items()},
            tokens={f"{split} {name}": n for name, own in of_sources.items() for split, n in own.tokens.items()},
            lengths=tuple(length for own in of_sources.values() for length in own.lengths),
            samples=tuple(own.samples[0] for own in of_sources.values()),
            notes=tuple(f"{name}: {share:.1%} of the training windows" for name, share in self.shares.items()),
        )

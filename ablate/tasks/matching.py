"""`matching`: classify pairs of texts. Shapes: K pack, B batch, T tokens, C classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.errors import DataError
from ablate.spec.task import DataSummary
from ablate.tasks import cache as prepared
from ablate.tasks import scores
from ablate.tasks.cache import spread
from ablate.tasks.classification import Labelled, LabelledSpec, Split
from ablate.tasks.sampling import Draws
from ablate.tasks.sources import TEST

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch

SAME = ("different", "same")
"""The classes of sampled pairs."""

_COUNTED_PAIRS = 4096
_BINS = 20


class MatchingSpec(LabelledSpec):
    """Classify pairs of texts.

    Without `same`, every row holds two texts and a label. With `same`, every row holds one text, and pairs are sampled,
    half of them with equal values in the column `same`: `builtin:python_stdlib` with `same: file` asks whether two
    windows are from one file. Held-out rows then are all rows of some values of that column.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"dual_encoder"})

    kind: Literal["matching"] = "matching"
    """Classify pairs of texts."""
    first: str = "a"
    """The column of the first text."""
    second: str = "b"
    """The column of the second text."""
    label: str = "label"
    """The column of the label of a pair."""
    text: str = "text"
    """With `same`: the column of the text."""
    same: str | None = Field(default=None, min_length=1)
    """Sample pairs from rows with one text each; two texts are `same` if they have equal values in this column."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.text,) if self.same else (self.first, self.second)

    @property
    def label_column(self) -> str:
        return self.same or self.label

    @property
    def held_out_by_label(self) -> bool:
        return self.same is not None

    def open(self, cache: Path, fingerprint: str) -> Matching:
        """Memory-map the prepared texts after verifying their checksums.

        Raises:
            DataError: The prepared files are missing or damaged, a text is too long, or no pairs can be sampled.
        """
        return Matching(self, prepared.locate(cache, fingerprint), fingerprint)


class MatchingPairs(NamedTuple):
    """Pairs of windows: indices of two texts, offsets of the windows in them, and the class. All int64 [B]."""

    first: NDArray[np.int64]
    first_offset: NDArray[np.int64]
    second: NDArray[np.int64]
    second_offset: NDArray[np.int64]
    labels: NDArray[np.int64]


class Matching(Labelled):
    """The task of `MatchingSpec`.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.

    Raises:
        DataError: A text is longer than the context and `long_texts` is `refuse`, or no pairs can be sampled.
    """

    def __init__(self, spec: MatchingSpec, folder: Path, fingerprint: str) -> None:
        super().__init__(spec, folder, fingerprint, classes=len(SAME) if spec.same else None)
        self._samplers = (
            {name: PairSampler(self.windows(split), split.labels, spec.data) for name, split in self.splits.items()}
            if spec.same
            else {}
        )
        self._classes = SAME if spec.same else tuple(self.labels)
        self._validation = self._evaluation_pairs("validation", spec.validation_rows)

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Uniformly sampled pairs: `inputs` and `other` int64, `padding` and `other_padding` bool (True: real token),
        all [B, T], and `labels` int64 [B]."""
        draws = Draws(f"{self.fingerprint}/{seed}/{step}/{batch_size}")
        return self._batch(self.train, self._train_pairs(draws, batch_size))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same pairs at each call, in the format of `train_batch`."""
        return self._batches(self.validation, self._validation, batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """All pairs of the test split; if pairs are sampled, as many as it has rows."""
        if self.test is None:
            return iter(())
        return self._batches(self.test, self._evaluation_pairs(TEST, self.test.labels.size), batch_size)

    def _batches(self, split: Split, pairs: MatchingPairs, batch_size: int) -> Iterator[Batch]:
        for first in range(0, pairs.labels.size, batch_size):
            yield self._batch(split, MatchingPairs(*(values[first : first + batch_size] for values in pairs)))

    def _evaluation_pairs(self, name: str, rows: int) -> MatchingPairs:
        """The pairs of a split that an evaluation reads, the same at each call."""
        if self._samplers:
            return self._samplers[name].pairs(Draws(f"{self.fingerprint}/{name}/{rows}"), rows)
        split = self.splits[name]
        chosen = spread(split.labels.size, rows)
        return self._pairs_of_rows(split, chosen, np.zeros((2, chosen.size), dtype=np.int64))

    def outputs(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Logits of pairs of texts, [K, B, C]."""
        logits: torch.Tensor = model(batch["inputs"], batch["other"], batch["padding"], batch["other_padding"])
        return logits

    def tokens_per_batch(self, batch_size: int) -> int:
        """2 times B times T."""
        return 2 * batch_size * self.shape.context

    def baselines(self) -> dict[str, dict[str, float]]:
        """The majority class, and class frequencies given the binned share of tokens that two texts have in common."""
        train = self._train_pairs(Draws(f"{self.fingerprint}/baselines"), _COUNTED_PAIRS)
        counts = np.ones((_BINS, self.shape.classes))
        np.add.at(counts, (self._overlap(self.train, train), train.labels), 1)
        logs = np.log(counts / counts.sum(1, keepdims=True))
        truth = self._validation.labels
        return {
            "majority class": scores.majority(train.labels, truth, self.shape.classes),
            "unigram overlap": scores.of_log_probabilities(
                logs[self._overlap(self.validation, self._validation)], truth
            ),
        }

    def describe(self) -> DataSummary:
        """Rows, tokens, labels, and three validation pairs."""
        shown = spread(self._validation.labels.size, 3)
        some = self._batch(self.validation, MatchingPairs(*(values[shown] for values in self._validation)))
        texts = [
            [self.text(ids.numpy(), real.numpy()) for ids, real in zip(some[ids], some[real], strict=True)]
            for ids, real in (("inputs", "padding"), ("other", "other_padding"))
        ]
        labels = [self._classes[label] for label in some["labels"]]
        return self.summary(f"{label}: {a}\n--- and ---\n{b}" for label, a, b in zip(labels, *texts, strict=True))

    def _train_pairs(self, draws: Draws, count: int) -> MatchingPairs:
        if self._samplers:
            return self._samplers["train"].pairs(draws, count)
        rows = draws.integers(self.train.labels.size, count)
        uniforms = draws.uniforms((2, count))
        offsets = np.stack([self.random_offsets(2 * rows + side, uniforms[side]) for side in (0, 1)])
        return self._pairs_of_rows(self.train, rows, offsets)

    def _pairs_of_rows(self, split: Split, rows: NDArray[np.int64], offsets: NDArray[np.int64]) -> MatchingPairs:
        return MatchingPairs(2 * rows, offsets[0], 2 * rows + 1, offsets[1], np.asarray(split.labels[rows]))

    def _batch(self, split: Split, pairs: MatchingPairs) -> Batch:
        import torch

        padding_id, context = self.tokenizer.end_of_document, self.shape.context
        inputs, padding = split.cut(pairs.first, pairs.first_offset, context, padding_id)
        other, other_padding = split.cut(pairs.second, pairs.second_offset, context, padding_id)
        arrays = {"inputs": inputs, "padding": padding, "other": other, "other_padding": other_padding}
        return {name: torch.from_numpy(values) for name, values in {**arrays, "labels": pairs.labels}.items()}

    def _overlap(self, split: Split, pairs: MatchingPairs) -> NDArray[np.int64]:
        """Bin of the Jaccard similarity of the token sets of the two texts, [B]."""
        context, padding_id = self.shape.context, self.tokenizer.end_of_document
        bins = np.zeros(pairs.labels.size, dtype=np.int64)
        for row in range(bins.size):
            sides = []
            for text, offset in ((pairs.first, pairs.first_offset), (pairs.second, pairs.second_offset)):
                ids, real = split.cut(text[row : row + 1], offset[row : row + 1], context, padding_id)
                sides.append(set(ids[real].tolist()))
            share = len(sides[0] & sides[1]) / max(1, len(sides[0] | sides[1]))
            bins[row] = min(_BINS - 1, int(share * _BINS))
        return bins


class PairSampler:
    """Samples pairs of windows, half of them from one group.

    Args:
        windows: (text, offset) of every window, [N, 2].
        groups: The group of every text.
        where: Name of the data for error messages.

    Raises:
        DataError: No group has two windows, or there is only one group.
    """

    def __init__(self, windows: NDArray[np.int64], groups: NDArray[np.int64], where: str) -> None:
        of_window = groups[windows[:, 0]]
        order = np.argsort(of_window, kind="stable")
        self._windows = windows[order]
        _, starts, inverse, counts = np.unique(
            of_window[order], return_index=True, return_inverse=True, return_counts=True
        )
        self._starts, self._counts = starts[inverse], counts[inverse]
        self._anchors = np.flatnonzero(self._counts > 1)
        if not self._anchors.size or starts.size < 2:
            raise DataError(
                "no pairs can be sampled",
                where=where,
                expected="at least two groups in each split, one of them with at least two windows",
                remedy="Name another column in `same`, or set `long_texts: window`.",
            )

    def pairs(self, draws: Draws, count: int) -> MatchingPairs:
        """Sample `count` pairs: a window, and another window of the same group or one of another group."""
        anchors = self._anchors[draws.integers(self._anchors.size, count)]
        labels = draws.integers(len(SAME), count)
        uniforms = draws.uniforms(count)
        starts, sizes = self._starts[anchors], self._counts[anchors]
        within = starts + (anchors - starts + 1 + (uniforms * (sizes - 1)).astype(np.int64)) % sizes
        outside = (uniforms * (len(self._windows) - sizes)).astype(np.int64)
        outside += np.where(outside >= starts, sizes, 0)
        partners = np.where(labels == SAME.index("same"), within, outside)
        first, second = self._windows[anchors], self._windows[partners]
        return MatchingPairs(first[:, 0], first[:, 1], second[:, 0], second[:, 1], labels)

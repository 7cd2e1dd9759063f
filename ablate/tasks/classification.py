"""`classification`: predict the label of a text. Shapes: K pack, B batch, T tokens, C classes, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ablate.spec.task import DataSummary
from ablate.tasks import cache as prepared
from ablate.tasks import scores
from ablate.tasks.cache import spread
from ablate.tasks.labelled import Labelled, LabelledSpec, Split
from ablate.tasks.sampling import Draws

if TYPE_CHECKING:
    from ablate.spec.task import Batch

_COUNTED_ROWS = 100_000
"""Maximum number of training texts, evenly spaced, that the unigram baseline counts."""


class ClassificationSpec(LabelledSpec):
    """Predict the label of a text.

    With `builtin:python_stdlib`, the label is the `package` of a file. A column of numbers can be the label. In a table
    without a header, columns are named by their number, counted from 1.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder"})

    kind: Literal["classification"] = "classification"
    """Predict the label of a text."""
    text: str = "text"
    """The column of the text."""
    label: str = "label"
    """The column of the label."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.text,)

    @property
    def label_column(self) -> str:
        return self.label

    def open(self, cache: Path, fingerprint: str) -> Classification:
        """Memory-map the prepared texts after verifying their checksums.

        Raises:
            DataError: The prepared files are missing or damaged, or a text is too long.
        """
        return Classification(self, prepared.locate(cache, fingerprint), fingerprint)


class Classification(Labelled):
    """The task of `ClassificationSpec`. Classes are the sorted labels of the training rows; numbers sort by value.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.

    Raises:
        DataError: A text is longer than the context and `long_texts` is `refuse`.
    """

    def __init__(self, spec: ClassificationSpec, folder: Path, fingerprint: str) -> None:
        super().__init__(spec, folder, fingerprint)
        windows = self.windows(self.validation)
        self._windows = windows[spread(len(windows), spec.validation_rows)]

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Uniformly sampled rows: `inputs` int64 and `padding` bool (True: real token) [B, T], `labels` int64 [B]."""
        drawn = Draws(f"{self.fingerprint}/{seed}/{step}/{batch_size}")
        texts = drawn.integers(self.train.labels.size, batch_size)
        offsets = self.random_offsets(texts, drawn.uniforms(batch_size))
        return self._batch(*self._cut(self.train, texts, offsets))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same rows, or windows of them, at each call, in the format of `train_batch`."""
        return self._batches(self.validation, self._windows, batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """All rows of the test split, or windows of them, in the format of `train_batch`."""
        return self._batches(self.test, self.windows(self.test), batch_size) if self.test else iter(())

    def _batches(self, split: Split, windows: NDArray[np.int64], batch_size: int) -> Iterator[Batch]:
        for first in range(0, len(windows), batch_size):
            texts, offsets = windows[first : first + batch_size].T
            yield self._batch(*self._cut(split, texts, offsets))

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times T."""
        return batch_size * self.shape.context

    def baselines(self) -> dict[str, dict[str, float]]:
        """The majority class, and naive Bayes over single tokens with add-one smoothing.

        Of a training text the tokens count that a model may see: its beginning, or all if it is read in windows.
        """
        classes = self.shape.classes
        texts, offsets = self._windows.T
        truth = self.validation.labels[texts]
        counts = np.ones((classes, self.shape.vocabulary))
        counted = spread(self.train.labels.size, _COUNTED_ROWS)
        for text in counted:
            ids = self.train.tokens[self.train.ends[text] : self.train.ends[text + 1]]
            seen = ids if self.spec.long_texts == "window" else ids[: self.shape.context]
            counts[self.train.labels[text]] += np.bincount(seen, minlength=self.shape.vocabulary)
        logs = np.log(counts / counts.sum(1, keepdims=True))
        prior = np.bincount(self.train.labels, minlength=classes) + 1.0
        joint = np.tile(np.log(prior / prior.sum()), (truth.size, 1))
        for row, (text, offset) in enumerate(zip(texts, offsets, strict=True)):
            ids, real, _ = self._cut(self.validation, np.array([text]), np.array([offset]))
            joint[row] += logs[:, ids[real]].sum(1)
        joint -= np.logaddexp.reduce(joint, axis=1, keepdims=True)
        return {
            "majority class": scores.majority(self.train.labels, truth, classes),
            "unigram": scores.of_log_probabilities(joint, truth),
        }

    def describe(self) -> DataSummary:
        """Rows, tokens, labels, and three evenly spaced training rows."""
        shown = spread(self.train.labels.size, 3)
        ids, real, labels = self._cut(self.train, shown, np.zeros_like(shown))
        longer = float((self.train.lengths > self.spec.context).mean())
        return self.summary(
            (f"{self.labels[labels[i]]}: {self.text(ids[i], real[i])}" for i in range(shown.size)),
            [f"{longer:.0%} of the texts are longer than the context: {self.spec.long_texts}"] if longer else (),
        )

    def _cut(
        self, split: Split, texts: NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        ids, real = split.cut(texts, offsets, self.shape.context, self.tokenizer.end_of_document)
        return ids, real, np.asarray(split.labels[texts])

    def _batch(self, ids: NDArray[np.int64], real: NDArray[np.bool_], labels: NDArray[np.int64]) -> Batch:
        import torch

        arrays = {"inputs": ids, "padding": real, "labels": labels}
        return {name: torch.from_numpy(values) for name, values in arrays.items()}

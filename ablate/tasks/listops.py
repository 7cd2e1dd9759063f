"""`listops`: classify the value, 0 to 9, of a nested list operation (arXiv:1804.06028; long: arXiv:2011.04006).

Published scores at the lengths of Long Range Arena are close to those of two trivial rules: the most frequent value,
and the most frequent value given the root operator. `baselines` measures both.

Shapes: K pack, B batch, T tokens, C = 10 classes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.errors import DataError
from ablate.spec.base import content_hash, refusal
from ablate.spec.task import SPLITS, DataShape, DataSummary, Say, Task
from ablate.tasks import cache as prepared
from ablate.tasks import scores
from ablate.tasks.cache import open_array
from ablate.tasks.sampling import Buckets, pad_rows
from ablate.tasks.sources import TEST, Address, BadRows, Column, SourcedSpec, parse
from ablate.tasks.sources.listops import LENGTHS, OPERATORS, WORDS, ListOps, Tree, expression, parse_expression, trees

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch

CODE_VERSION = 1
"""Part of the key of prepared data. Increment it when generating, reading or splitting changes."""

CLASSES = 10
PADDING = 0
_ROOTS = (*OPERATORS, "a digit")


class ListOpsSpec(SourcedSpec):
    """Evaluate a nested list operation of MIN, MAX, MED (median) and SM (sum modulo 10) over digits."""

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_accuracy"})
    pooled: ClassVar[bool | None] = True

    kind: Literal["listops"] = "listops"
    """The value of a nested list operation."""
    data: Address = "builtin:listops"
    """`builtin:listops` generates expressions as in Long Range Arena; `file:PATH` and `hub:NAME` read existing ones."""
    shortest: int = Field(default=LENGTHS[0], ge=0)
    """Expressions have more tokens than this; parentheses are not counted."""
    longest: int = Field(default=LENGTHS[1], ge=2)
    """Expressions have fewer tokens than this."""
    train_rows: int = Field(default=96_000, ge=1)
    """Number of expressions to train on; fewer if a file has fewer."""
    validation_rows: int = Field(default=2_000, ge=1)
    """Number of expressions to validate on; at most half of those in a file that has no validation split."""
    test_rows: int = Field(default=0, ge=0)
    """Number of test expressions, measured once at the end of a trial and selected like those for validation; 0: no
    test. Long Range Arena has 2,000."""
    expression: Column = "Source"
    """The column of a table that holds the expression."""
    label: Column = "Target"
    """The column of a table that holds its value."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a row with a malformed expression or a wrong value stops the preparation, or is skipped and counted."""

    @model_validator(mode="after")
    def _has_lengths(self) -> Self:
        if self.longest - self.shortest < 2:
            rule = f"`longest` must exceed `shortest`, which is {self.shortest}, by at least 2"
            raise refusal(("longest",), self.longest, rule, "Raise `longest`, or lower `shortest`.")
        return self

    @property
    def length(self) -> int:
        return self.longest - 1

    def prepare(self, cache: Path, say: Say) -> str:
        """Generate or read the expressions, unless `cache` holds the result.

        Raises:
            DataError: The file is missing, or has too few expressions of these lengths.
        """
        given = None if isinstance(parse(self.data), ListOps) else self._read(say)
        identity = self.data if given is None else {"rows": given.digest}
        sizes = {name: getattr(self, name) for name in ("shortest", "longest", "train_rows", "validation_rows")}
        sizes |= {"test_rows": self.test_rows} if self.test_rows else {}
        key = content_hash(
            {"task": "listops", "data": identity, "code": CODE_VERSION, **prepared.users_code(self), **sizes}
        )
        fingerprint = prepared.prepare(cache, key, lambda folder: self._build(given, folder, say), say)
        self.open(cache, fingerprint)
        return fingerprint

    def open(self, cache: Path, fingerprint: str) -> ListOpsTask:
        """Memory-map the expressions after verifying their checksums.

        Raises:
            DataError: The prepared files are missing or damaged.
        """
        return ListOpsTask(self, prepared.locate(cache, fingerprint), fingerprint)

    @property
    def _held_out(self) -> dict[str, int]:
        """Number of rows in each held-out split."""
        return {"validation": self.validation_rows, **({TEST: self.test_rows} if self.test_rows else {})}

    def _build(self, given: _GivenRows | None, folder: Path, say: Say) -> dict[str, Any]:
        if given is None:
            say(f"Generating {self.train_rows + sum(self._held_out.values()):,} expressions")
            stream = trees(self.shortest, self.longest)
            # The held-out splits come first, so that they do not depend on the number of training rows.
            sizes = self._held_out | {"train": self.train_rows}
            splits: dict[str, Iterator[Tree]] = {split: islice(stream, size) for split, size in sizes.items()}
            notes = []
        else:
            splits, notes = {split: iter(trees) for split, trees in given.splits.items()}, given.notes
        counts = {split: _save(folder, split, trees) for split, trees in splits.items()}
        return {"data": self.data, "rows": counts, "notes": notes}

    def _read(self, say: Say) -> _GivenRows:
        """Deduplicated expressions of a file in its own splits, or else split by the hashes of the expressions."""
        bad_rows = BadRows(self.bad_rows == "refuse")
        digest = hashlib.sha256()
        given: dict[str, dict[bytes, Tree]] = {"": {}, "train": {}, "validation": {}, TEST: {}}
        wrong_length = duplicates = 0
        for row in parse(self.data, with_test=self.test_rows > 0).rows((self.expression, self.label), bad_rows, say):
            tree = parse_expression(row.values, row.where, bad_rows)
            if tree is None:
                continue
            if not self.shortest < tree.tokens.size < self.longest:
                wrong_length += 1
                continue
            key = hashlib.sha256(tree.tokens.tobytes()).digest()
            if any(key in trees for trees in given.values()):
                duplicates += 1
                continue
            given[row.split][key] = tree
            digest.update(key + row.split.encode())
        train = {**given["train"], **given[""]}
        splits: dict[str, list[Tree]] = {}
        ranked = sorted(train)
        for split, rows in self._held_out.items():
            if not given[split]:
                keys, ranked = ranked[: min(rows, len(train) // 2)], ranked[min(rows, len(train) // 2) :]
                given[split] = {key: train.pop(key) for key in keys}
            splits[split] = list(given[split].values())[:rows]
        splits["train"] = list(train.values())[: self.train_rows]
        for split, kept in splits.items():
            if not kept:
                raise DataError(
                    f"there are too few expressions: none for {split}",
                    where=self.data,
                    expected=f"at least two different expressions of {self.shortest + 1} to {self.longest - 1} tokens",
                    got=f"{sum(map(len, given.values())):,}, and {wrong_length:,} of other lengths",
                    remedy="Change `shortest` and `longest`, or name other data.",
                )
        skipped = [(wrong_length, "of other lengths"), (duplicates, "duplicates"), (bad_rows.count, "bad rows")]
        notes = [f"left out: {count:,} {what}" for count, what in skipped if count]
        for note in notes:
            say(note[0].upper() + note[1:])
        return _GivenRows(digest.hexdigest(), splits, notes)


@dataclass(frozen=True, slots=True)
class _GivenRows:
    """The expressions of a file."""

    digest: str
    splits: dict[str, list[Tree]]
    notes: list[str] = field(default_factory=list)


class ListOpsTask(Task):
    """The task of `ListOpsSpec`. Id 0 is padding; ids from 1 are the words of `sources.listops.WORDS`."""

    def __init__(self, spec: ListOpsSpec, folder: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.shape = DataShape(vocabulary=1 + len(WORDS), context=spec.length, classes=CLASSES)
        self._about = prepared.about(folder)
        self._rows = {split: _Rows(folder, split) for split in (*SPLITS, *([TEST] if spec.test_rows else []))}
        self._buckets = {split: Buckets(fingerprint, rows.lengths) for split, rows in self._rows.items()}

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Expressions of similar length: `inputs` int64 [B, T], `padding` bool (True: real), `labels` int64 [B]."""
        return self._rows["train"].batch(*self._buckets["train"].draw(seed, step, batch_size))

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """All validation expressions, shortest first, in the format of `train_batch`."""
        return self._batches("validation", batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """All test expressions, in the format of `validation_batches`."""
        return self._batches(TEST, batch_size) if TEST in self._rows else iter(())

    def _batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        for rows, widths in self._buckets[split].batches(batch_size):
            yield self._rows[split].batch(rows, widths)

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of each member in nats: outputs [K, B, C], labels [K, B] -> [K]."""
        return scores.cross_entropy(outputs, batch["labels"]).mean(1)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `right` and `rows`, float64 [K]."""
        labels = batch["labels"]
        right = (outputs.argmax(-1) == labels).double().sum(1)
        nats = scores.cross_entropy(outputs, labels).double().sum(1)
        return {"nats": nats, "right": right, "rows": right.new_full(right.shape, labels.shape[1])}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats) and `val_accuracy`."""
        return {
            name: [total / rows for total, rows in zip(sums[key], sums["rows"], strict=True)]
            for name, key in (("val_loss", "nats"), ("val_accuracy", "right"))
        }

    def tokens_per_batch(self, batch_size: int) -> int:
        """B times the mean length."""
        return batch_size * round(float(self._rows["train"].lengths.mean()))

    def input_lengths(self) -> tuple[int, ...]:
        return self._buckets["train"].lengths

    def baselines(self) -> dict[str, dict[str, float]]:
        """`majority`: the most frequent value; `root_operator`: the most frequent value given the root operator.

        Frequencies are those of the training expressions, with add-one smoothing.
        """
        train, validation = self._rows["train"], self._rows["validation"]
        counts = np.ones((len(_ROOTS), CLASSES))
        np.add.at(counts, (train.roots(), train.labels), 1)
        whole = np.broadcast_to(counts.sum(axis=0), counts.shape)
        return {
            "majority": _rule(whole, validation.roots(), validation.labels),
            "root_operator": _rule(counts, validation.roots(), validation.labels),
        }

    def describe(self) -> DataSummary:
        """Rows, tokens, lengths, values and three expressions."""
        train, validation = self._rows["train"], self._rows["validation"]
        labels = Counter(train.labels.tolist())
        roots = Counter(_ROOTS[root] for root in train.roots().tolist())
        shares = ", ".join(f"{name} {roots[name] / train.labels.size:.1%}" for name in _ROOTS if roots[name])
        return DataSummary(
            rows={split: rows.labels.size for split, rows in self._rows.items()},
            tokens={split: int(rows.lengths.sum()) for split, rows in self._rows.items()},
            lengths=tuple(train.lengths.tolist()),
            labels={str(value): labels[value] for value in range(CLASSES)},
            samples=tuple(validation.text(row) for row in range(min(3, validation.labels.size))),
            notes=(f"operators at the root: {shares}", *self._about["notes"]),
        )


class _Rows:
    """The expressions of one split, concatenated."""

    def __init__(self, folder: Path, split: str) -> None:
        self.tokens = open_array(folder / f"{split}_tokens.npy")
        self.lengths: NDArray[np.int64] = np.array(open_array(folder / f"{split}_lengths.npy"))
        self.labels: NDArray[np.int64] = np.array(open_array(folder / f"{split}_labels.npy"))
        self.starts = np.cumsum(self.lengths) - self.lengths

    def batch(self, rows: NDArray[np.int64], widths: tuple[int, ...]) -> Batch:
        import torch

        inputs, real = pad_rows(self.tokens, self.starts[rows], self.lengths[rows], widths[0], PADDING)
        return {
            "inputs": torch.from_numpy(inputs),
            "padding": torch.from_numpy(real),
            "labels": torch.from_numpy(self.labels[rows]),
        }

    def roots(self) -> NDArray[np.int64]:
        """Index in `_ROOTS` of the root of each expression."""
        roots: NDArray[np.int64] = np.minimum(self.tokens[self.starts].astype(np.int64) - 1, len(OPERATORS))
        return roots

    def text(self, row: int) -> str:
        words = self.tokens[self.starts[row] : self.starts[row] + self.lengths[row]] - 1
        return f"{expression(words)} = {self.labels[row]}"


def _save(folder: Path, split: str, expressions: Iterator[Tree]) -> int:
    kept = list(expressions)
    np.save(folder / f"{split}_tokens.npy", np.concatenate([tree.tokens for tree in kept]) + np.uint8(1))
    np.save(folder / f"{split}_lengths.npy", np.array([tree.tokens.size for tree in kept], dtype=np.int64))
    np.save(folder / f"{split}_labels.npy", np.array([tree.value for tree in kept], dtype=np.int64))
    return len(kept)


def _rule(counts: NDArray[np.float64], roots: NDArray[np.int64], labels: NDArray[np.int64]) -> dict[str, float]:
    """Metrics of the classifier with the frequencies `counts` [root, value]."""
    logs = np.log(counts / counts.sum(axis=1, keepdims=True))
    right = counts.argmax(axis=1)[roots] == labels
    return {"val_loss": float(-logs[roots, labels].mean()), "val_accuracy": float(right.mean())}

"""Pairs of texts for translation: read from a source, deduplicated, split, tokenized and stored as arrays.

Shapes: B batch, S source tokens, T target tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.tasks.arrays import GrowingArray, mapped, token_dtype
from ablate.tasks.base import Say
from ablate.tasks.buckets import padded
from ablate.tasks.sources import TEST, BadRows, Source, parse
from ablate.tasks.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Pairs:
    """Deduplicated pairs of a source in splits; each iteration reads the source again.

    Attributes:
        fingerprint: Content hash of all pairs and their splits, in order.
        sizes: Number of pairs in each split.
        left_out: Number of rows that were left out, by reason.
    """

    fingerprint: str
    sizes: dict[str, int]
    left_out: dict[str, int]
    source: Source = field(repr=False)
    columns: tuple[str, str] = field(repr=False)
    splits: dict[tuple[bytes, bytes], str] = field(repr=False)

    def rows(self, split: str) -> Iterator[tuple[str, str]]:
        """The pairs of a split.

        Raises:
            DataError: The data has changed since it was first read.
        """
        seen: set[tuple[bytes, bytes]] = set()
        for row in self.source.rows(self.columns, BadRows(refuse=False), lambda line: None):
            first, second = row.values
            key = (_digest(first), _digest(second))
            if key not in seen and self.splits.get(key) == split:
                seen.add(key)
                yield first, second
        if len(seen) != self.sizes[split]:
            raise DataError("the data changed while it was read", remedy="Run the command again.")


def read_pairs(
    address: str, columns: tuple[str, str], held_out: dict[str, int], say: Say, *, refuse_bad_rows: bool = True
) -> Pairs:
    """Read a source and split its pairs so that no source text and no target text is in two splits.

    All pairs of one source text are held out together. Source texts are chosen in the order of their hashes.

    Args:
        address: As for `sources.parse`.
        columns: Columns of the source text and of the target text.
        held_out: Number of pairs of each split that the source itself does not have; at most half of the pairs.
        say: Called with progress messages.
        refuse_bad_rows: Whether a bad row raises an error; otherwise it is skipped and counted.

    Raises:
        DataError: The source is missing or unreadable, or has no pairs for a split.
    """
    source, bad_rows = parse(address, with_test=TEST in held_out), BadRows(refuse_bad_rows)
    splits: dict[tuple[bytes, bytes], str] = {}
    read = 0
    for row in source.rows(columns, bad_rows, say):
        read += 1
        splits.setdefault((_digest(row.values[0]), _digest(row.values[1])), row.split)
    splits = _divided(splits, held_out)
    in_both: list[tuple[bytes, bytes]] = []
    known: tuple[set[bytes], set[bytes]] = (set(), set())
    # A text in several splits is kept in the test split first, then in validation, then in training.
    for split in (*reversed(held_out), "train"):
        members = [pair for pair, name in splits.items() if name == split]
        in_both += [pair for pair in members if pair[0] in known[0] or pair[1] in known[1]]
        for pair in members:
            known[0].add(pair[0])
            known[1].add(pair[1])
    splits |= dict.fromkeys(in_both, "")
    sizes = {split: sum(value == split for value in splits.values()) for split in ("train", *held_out)}
    for split, size in sizes.items():
        if not size:
            raise DataError(
                f"no pairs are left for {split}",
                where=address,
                got=f"{read:,} rows, {read - len(splits):,} duplicates, {len(in_both):,} with a text of another split",
                remedy="Provide more pairs with distinct texts.",
            )
    left_out = {"empty_or_copies": read - len(splits), "in_both": len(in_both), "bad_rows": bad_rows.count}
    say(
        f"Read {len(splits):,} pairs from {address} ({read - len(splits):,} duplicates and {len(in_both):,} pairs with"
        " a text of another split left out)"
    )
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    plain = [[first.hex(), second.hex(), split] for (first, second), split in splits.items()]
    return Pairs(content_hash(plain), sizes, left_out, source, columns, splits)


def _divided(splits: dict[tuple[bytes, bytes], str], held_out: dict[str, int]) -> dict[tuple[bytes, bytes], str]:
    existing = {*splits.values()}
    counts: dict[bytes, int] = {}
    for (text, _), split in splits.items():
        if split not in held_out:
            counts[text] = counts.get(text, 0) + 1
    chosen: dict[bytes, str] = {}
    total = sum(counts.values())
    for split, pairs in held_out.items():
        if split in existing:
            continue
        room = min(pairs, (total - sum(counts[text] for text in chosen)) // 2)
        for text in sorted(counts.keys() - chosen.keys()):
            if counts[text] <= room:
                chosen[text] = split
                room -= counts[text]
            if not room:
                break
    return {pair: split if split in held_out else chosen.get(pair[0], "train") for pair, split in splits.items()}


def write_pairs(pairs: Pairs, split: str, tokenizer: Tokenizer, context: int, folder: Path) -> tuple[int, int]:
    """Write the tokens of a split: source and target of each pair, each followed by the end-of-document id.

    Returns:
        Number of pairs that fit the context, and number of those that do not.

    Raises:
        DataError: No pair fits the context.
    """
    end = np.array([tokenizer.end_of_document])
    sizes: list[int] = []
    texts = (text for pair in pairs.rows(split) for text in pair)
    with GrowingArray(folder / f"{split}.tokens.npy", token_dtype(tokenizer.vocabulary)) as tokens:
        for ids in tokenizer.encode_all(texts):
            tokens.append(ids)
            tokens.append(end)
            sizes.append(ids.size + 1)
    lengths = np.array(sizes, dtype=np.int64).reshape(-1, 2)
    np.save(folder / f"{split}.lengths.npy", lengths)
    fits = (lengths <= context).all(axis=1)
    if not fits.any():
        raise DataError(
            f"no {split} pair fits the context",
            where=pairs.source.address,
            expected=f"texts of at most {context} tokens",
            got=f"{int(lengths.max(axis=1).min())} and more",
            remedy="Raise `context`.",
        )
    np.save(folder / f"{split}.fits.npy", np.flatnonzero(fits))
    return int(fits.sum()), int((~fits).sum())


class PairSplit:
    """The pairs of one split that fit the context.

    Attributes:
        fits: Indices of these pairs among all written pairs.
        lengths: Number of tokens of source and target, [N, 2].
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.tokens = mapped(folder / f"{split}.tokens.npy")
        self.fits: NDArray[np.int64] = np.load(folder / f"{split}.fits.npy")
        lengths: NDArray[np.int64] = np.load(folder / f"{split}.lengths.npy")
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        self.lengths, self._starts = lengths[self.fits], starts[self.fits]

    def cut(
        self, rows: NDArray[np.int64], widths: tuple[int, ...], padding_id: int
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.bool_]], ...]:
        """Padded source and target of pairs, each with the mask of real tokens."""
        sides = ((self._starts[rows, side], self.lengths[rows, side], widths[side]) for side in (0, 1))
        return tuple(padded(self.tokens, *side, padding_id) for side in sides)

    def target_counts(self, vocabulary: int) -> NDArray[np.float64]:
        """How often each id occurs in the targets."""
        ids, real = padded(self.tokens, self._starts[:, 1], self.lengths[:, 1], int(self.lengths[:, 1].max()), 0)
        return np.bincount(ids[real], minlength=vocabulary).astype(np.float64)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

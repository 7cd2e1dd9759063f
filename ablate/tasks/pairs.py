"""Pairs of texts for translation: read from a source, deduplicated, split, tokenized and stored as arrays.

Shapes: B batch, S source tokens, T target tokens.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.spec.base import content_hash
from ablate.spec.task import Say
from ablate.tasks.cache import GrowingArray, open_array, token_dtype
from ablate.tasks.rows import Key, Table, without_shared_texts
from ablate.tasks.sampling import pad_rows
from ablate.tasks.sources import TEST, BadRows, Row, parse
from ablate.tasks.tokenizers import Tokenizer


def read_pairs(
    address: str, columns: tuple[str, str], held_out: dict[str, int], say: Say, *, refuse_bad_rows: bool = True
) -> Table:
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
    splits: dict[Key, str] = {}
    read = 0
    for row in source.rows(columns, bad_rows, say):
        read += 1
        splits.setdefault(_pair_key(row), row.split)
    splits = _divide(splits, held_out)
    # A text in several splits is kept in the test split first, then in validation, then in training.
    splits, kept = without_shared_texts(splits, (*reversed(held_out), "train"), enumerate)
    sizes = {split: kept[split] for split in ("train", *held_out)}
    duplicates, shared = read - len(splits), len(splits) - sum(sizes.values())
    for split, size in sizes.items():
        if not size:
            raise DataError(
                f"no pairs are left for {split}",
                where=address,
                got=f"{read:,} rows, {duplicates:,} duplicates, {shared:,} with a text of another split",
                remedy="Provide more pairs with distinct texts.",
            )
    left_out = {"empty_or_copies": duplicates, "in_both": shared, "bad_rows": bad_rows.count}
    say(
        f"Read {len(splits):,} pairs from {address} ({duplicates:,} duplicates and {shared:,} pairs with"
        " a text of another split left out)"
    )
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    plain = [[first.hex(), second.hex(), split] for (first, second), split in splits.items()]
    return Table(content_hash(plain), sizes, left_out, source, columns, _pair_key, splits)


def _pair_key(row: Row) -> Key:
    return tuple(hashlib.sha256(text.encode()).digest() for text in row.values)


def _divide(splits: dict[Key, str], held_out: dict[str, int]) -> dict[Key, str]:
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


def write_pairs(pairs: Table, split: str, tokenizer: Tokenizer, context: int, folder: Path) -> tuple[int, int]:
    """Write the tokens of a split: source and target of each pair, each followed by the end-of-document id.

    Returns:
        Number of pairs that fit the context, and number of those that do not.

    Raises:
        DataError: No pair fits the context.
    """
    end = np.array([tokenizer.end_of_document])
    sizes: list[int] = []
    texts = (text for row in pairs.rows(split) for text in row.values)
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
        self.tokens = open_array(folder / f"{split}.tokens.npy")
        self.fits: NDArray[np.int64] = np.array(open_array(folder / f"{split}.fits.npy"))
        lengths: NDArray[np.int64] = np.array(open_array(folder / f"{split}.lengths.npy"))
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        self.lengths, self._starts = lengths[self.fits], starts[self.fits]

    def cut(
        self, rows: NDArray[np.int64], widths: tuple[int, ...], padding_id: int
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.bool_]], ...]:
        """Padded source and target of pairs, each with the mask of real tokens."""
        sides = ((self._starts[rows, side], self.lengths[rows, side], widths[side]) for side in (0, 1))
        return tuple(pad_rows(self.tokens, *side, padding_id) for side in sides)

    def target_counts(self, vocabulary: int) -> NDArray[np.float64]:
        """How often each id occurs in the targets."""
        return np.bincount(self.target_pairs(0)[1], minlength=vocabulary).astype(np.float64)

    def target_pairs(self, start: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The id before each target token, of the first ones `start`, and that of the token itself, [tokens] each."""
        ids, real = pad_rows(self.tokens, self._starts[:, 1], self.lengths[:, 1], int(self.lengths[:, 1].max()), 0)
        before = np.concatenate([np.full((len(ids), 1), start), ids[:, :-1]], axis=1)
        return before[real], ids[real]

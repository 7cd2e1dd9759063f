"""Pairs of texts: read from a source, each once, divided, tokenized and kept as arrays; for translation.

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
    """Pairs of a source, each once, divided; read anew whenever they are asked for.

    Attributes:
        fingerprint: Content hash of all pairs and of the division, in order.
        sizes: Pairs of each part.
        left_out: What was left out, and how many.
    """

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


def read_pairs(
    address: str, columns: tuple[str, str], held_out: dict[str, int], say: Say, *, refuse_bad_rows: bool = True
) -> Pairs:
    """Read a source and divide its pairs: no source text and no target text is in two parts.

    Pairs of one source text are held out together: texts in the order of their hashes, as many as wanted.

    Args:
        address: As for `sources.parse`.
        columns: Of the source text and of the target text.
        held_out: Part to the pairs it is to have, at most half of them, where the source has no such part of its own.
        say: Receives progress.
        refuse_bad_rows: Whether a bad row is refused, or left out and counted.

    Raises:
        DataError: The source is missing or unfit, or has no pairs for a part.
    """
    source, bad_rows = parse(address, with_test=TEST in held_out), BadRows(refuse_bad_rows)
    parts: dict[tuple[bytes, bytes], str] = {}
    read = 0
    for row in source.rows(columns, bad_rows, say):
        read += 1
        parts.setdefault((_digest(row.values[0]), _digest(row.values[1])), row.split)
    parts = _divided(parts, held_out)
    in_both: list[tuple[bytes, bytes]] = []
    known: tuple[set[bytes], set[bytes]] = (set(), set())
    # A text of two parts belongs to the one that is measured, the test before all.
    for part in (*reversed(held_out), "train"):
        members = [pair for pair, name in parts.items() if name == part]
        in_both += [pair for pair in members if pair[0] in known[0] or pair[1] in known[1]]
        for pair in members:
            known[0].add(pair[0])
            known[1].add(pair[1])
    parts |= dict.fromkeys(in_both, "")
    sizes = {part: sum(value == part for value in parts.values()) for part in ("train", *held_out)}
    for part, size in sizes.items():
        if not size:
            raise DataError(
                f"no pairs are left for {part}",
                where=address,
                got=f"{read:,} rows, {read - len(parts):,} copies, {len(in_both):,} with a text of another part",
                remedy="Give more pairs with texts of their own.",
            )
    left_out = {"empty_or_copies": read - len(parts), "in_both": len(in_both), "bad_rows": bad_rows.count}
    say(
        f"Read {len(parts):,} pairs from {address} ({read - len(parts):,} copies and {len(in_both):,} pairs with a text"
        " of another part left out)"
    )
    if bad_rows.count:
        say(f"Left out {bad_rows.count:,} bad rows, the first at {bad_rows.first}")
    plain = [[first.hex(), second.hex(), part] for (first, second), part in parts.items()]
    return Pairs(content_hash(plain), sizes, left_out, source, columns, parts)


def _divided(parts: dict[tuple[bytes, bytes], str], held_out: dict[str, int]) -> dict[tuple[bytes, bytes], str]:
    given = {*parts.values()}
    counts: dict[bytes, int] = {}
    for (text, _), part in parts.items():
        if part not in held_out:
            counts[text] = counts.get(text, 0) + 1
    chosen: dict[bytes, str] = {}
    whole = sum(counts.values())
    for part, pairs in held_out.items():
        if part in given:
            continue
        room = min(pairs, (whole - sum(counts[text] for text in chosen)) // 2)
        for text in sorted(counts.keys() - chosen.keys()):
            if counts[text] <= room:
                chosen[text] = part
                room -= counts[text]
            if not room:
                break
    return {pair: part if part in held_out else chosen.get(pair[0], "train") for pair, part in parts.items()}


def write_pairs(pairs: Pairs, part: str, tokenizer: Tokenizer, context: int, folder: Path) -> tuple[int, int]:
    """Write a part: source and target side by side, each with its end.

    Returns:
        How many pairs fit the context, and how many do not.

    Raises:
        DataError: No pair fits.
    """
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
    fits = (lengths <= context).all(axis=1)
    if not fits.any():
        raise DataError(
            f"no {part} pair fits the context",
            where=pairs.source.address,
            expected=f"texts of at most {context} tokens",
            got=f"{int(lengths.max(axis=1).min())} and more",
            remedy="Raise `context`.",
        )
    np.save(folder / f"{part}.fits.npy", np.flatnonzero(fits))
    return int(fits.sum()), int((~fits).sum())


class Part:
    """The pairs of one part that fit the context.

    Attributes:
        fits: Which of the pairs that were written these are.
        lengths: Tokens of source and target, [N, 2].
    """

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


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

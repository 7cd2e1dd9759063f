"""Buckets: every row as likely as any other, little padding; random numbers by name."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from ablate.tasks.sampling import Buckets, Draws, pad_rows

LENGTHS = np.random.default_rng(0).integers(1, 200, size=(1024, 2))


def test_every_row_is_as_likely_as_any_other() -> None:
    buckets = Buckets("data", LENGTHS)
    drawn = np.concatenate([buckets.draw(seed, step, 64)[0] for seed in range(2) for step in range(1600)])
    # Steps choose whole buckets, so rows are compared within their bucket and buckets by their steps.
    chosen = np.argsort(buckets.order)[drawn] // 64
    steps = np.bincount(chosen, minlength=16) / 128
    assert chisquare(steps).pvalue > 1e-3
    counts = np.bincount(drawn, minlength=1024)[buckets.order].reshape(16, 64)
    assert all(chisquare(bucket).pvalue > 1e-4 for bucket in counts)


def test_the_width_is_that_of_the_step_and_holds_every_row() -> None:
    buckets = Buckets("data", LENGTHS)
    for step in range(50):
        (rows, widths), (others, same) = (buckets.draw(seed, step, 8) for seed in (0, 1))
        assert widths == same
        assert not np.array_equal(rows, others)
        assert (LENGTHS[rows] <= widths).all()


def test_batches_hold_every_row_once_and_less_padding_than_in_any_order() -> None:
    buckets = Buckets("data", LENGTHS.sum(axis=1))
    seen: list[int] = []
    cells = 0
    for rows, (width,) in buckets.batches(50):
        seen += rows.tolist()
        assert width == LENGTHS[rows].sum(axis=1).max()
        cells += width * rows.size
    assert sorted(seen) == list(range(1024))
    assert cells < 1.1 * LENGTHS.sum()


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (127, 1), (128, 2), (2047, 31), (2048, 32), (9001, 32)])
def test_there_are_as_many_buckets_as_have_64_rows_and_at_most_32(rows: int, count: int) -> None:
    lengths = (np.arange(rows) * 7 % rows) + 1
    widths = Buckets("data", lengths).lengths
    assert list(widths) == [int(part.max()) for part in np.array_split(np.arange(1, rows + 1), count)]


def test_rows_are_padded_where_they_end() -> None:
    rows, real = pad_rows(np.array([5, 6, 7, 8, 9]), np.array([0, 3]), np.array([3, 2]), 4, 99)
    assert rows.tolist() == [[5, 6, 7, 99], [8, 9, 99, 99]]
    assert real.tolist() == [[True, True, True, False], [True, True, False, False]]


def test_batches_of_a_capacity_hold_as_many_rows_as_fit_and_every_row_as_often() -> None:
    """Rows are as likely as one another though short ones come in larger batches; their mean number is known."""
    buckets, capacity, steps = Buckets("data", LENGTHS), 1000, 8000
    drawn = np.zeros(1024)
    sizes = []
    for step in range(steps):
        (rows, widths), (others, same) = (buckets.draw(seed, step, 8, capacity) for seed in (0, 1))
        assert widths == same
        assert rows.size == others.size == capacity // max(widths)
        assert (LENGTHS[rows] <= widths).all()
        np.add.at(drawn, rows, 1)
        sizes.append(rows.size)
    assert np.std(sizes) > 1
    error = np.std(sizes) / np.sqrt(steps)
    assert abs(np.mean(sizes) - buckets.mean_rows(capacity)) < 4 * error
    by_bucket = drawn[buckets.order].reshape(16, 64).sum(1)
    assert by_bucket.std() / by_bucket.mean() < 0.15, "buckets of 5 to 50 rows a batch, each drawn some 500 times"
    assert buckets.draw(0, 3, 8, 1)[0].size == 1


def test_a_name_gives_the_same_numbers_again_and_another_name_others() -> None:
    first, again, other = (Draws(name).integers(1000, (3, 5)) for name in ("a", "a", "b"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_numbers_are_uniform() -> None:
    draws = Draws("uniform")
    assert chisquare(np.bincount(draws.integers(7, 70_000))).pvalue > 1e-3
    numbers = draws.uniforms(70_000)
    assert kstest(numbers, "uniform").pvalue > 1e-3
    assert numbers.min() > 0
    assert numbers.max() < 1


def test_subsets_are_drawn_by_weight_without_replacement() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    drawn = Draws("subsets").subsets(3, 2, 60_000, weights)
    pairs = list(permutations(range(3), 2))
    # First a with w_a / 8, then b with w_b / (8 - w_a).
    expected = [weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b in pairs]
    counts = [int((drawn == pair).all(axis=1).sum()) for pair in pairs]
    assert sum(counts) == 60_000
    assert chisquare(counts, np.array(expected) * 60_000).pvalue > 1e-3

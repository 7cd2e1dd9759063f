"""The sign-flip test against scipy, against counting by hand, and at the truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablate.stats import sign_flip
from ablate.stats.paired import MOST_EXACT


@pytest.mark.parametrize("n", [2, 3, 6, 11])
def test_agrees_with_scipy(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.03, 0.03, n)
    reference = stats.permutation_test(
        (differences - 0.01,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    ours = sign_flip(differences.tolist(), 0.01)
    assert ours.p == pytest.approx(reference.pvalue)


@given(st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=8))
def test_counts_every_pattern(differences: list[float]) -> None:
    observed = abs(sum(differences))
    sums = [sum(s * x for s, x in zip(signs, differences, strict=True))
            for signs in itertools.product((1, -1), repeat=len(differences))]  # fmt: skip
    ours = sign_flip(differences)
    assert ours.p == pytest.approx(np.mean([abs(total) >= observed for total in sums]))
    assert ours.p >= ours.floor == 2 / 2 ** len(differences)


def test_the_floor_is_reached_when_all_seeds_agree() -> None:
    assert sign_flip([0.1, 0.2, 0.3]).p == sign_flip([0.1, 0.2, 0.3]).floor == 0.25
    assert sign_flip([0.1, 0.2, 0.3], tested=0.2).p == 1.0
    all_patterns, drawn = (sign_flip([0.1] * n).floor for n in (MOST_EXACT, MOST_EXACT + 1))
    assert (all_patterns, drawn) == (2 / 2**MOST_EXACT, 1e-5)
    with pytest.raises(ValueError, match="1 difference"):
        sign_flip([])


def test_many_seeds_are_drawn_and_agree_with_all_patterns() -> None:
    differences = np.random.default_rng(3).normal(0.4, 1.0, 22)
    sums = differences[:1]
    for value in differences[1:]:
        sums = np.concatenate([sums + value, sums - value])
    exact = float((np.abs(sums) >= abs(differences.sum())).mean())
    assert sign_flip(differences.tolist()).p == pytest.approx(exact, abs=4 * np.sqrt(exact / 99_999))


def test_error_rate_without_a_normal_distribution() -> None:
    rng = np.random.default_rng(8)
    rejected = sum(sign_flip(rng.standard_cauchy(7).tolist()).p <= 0.05 for _ in range(2000))
    assert stats.binomtest(rejected, 2000, 6 / 128).pvalue > 0.001  # 6 of 128 patterns are the most below 5 %

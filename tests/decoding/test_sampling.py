"""The distribution of the next token, against sums worked out by hand."""

from __future__ import annotations

import pytest
import torch

from ablate.decoding import Sampling, choose, probabilities

LOGITS = torch.tensor([0.1, 0.4, 0.05, 0.25, 0.2], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.1, 0.4, 0.05, 0.25, 0.2]),
        (Sampling(temperature=0), [0, 1, 0, 0, 0]),
        (Sampling(top_k=1), [0, 1, 0, 0, 0]),
        (Sampling(top_k=2), [0, 40 / 65, 0, 25 / 65, 0]),
        (Sampling(top_k=9), [0.1, 0.4, 0.05, 0.25, 0.2]),
        (Sampling(top_p=0.3), [0, 1, 0, 0, 0]),
        (Sampling(top_p=0.6), [0, 40 / 65, 0, 25 / 65, 0]),  # 0.40 is too little, 0.65 is enough
        (Sampling(top_p=0.66), [0, 40 / 85, 0, 25 / 85, 20 / 85]),
        (Sampling(top_p=1e-9), [0, 1, 0, 0, 0]),
        # The square of the shares: .01 .16 .0025 .0625 .04, in all .275.
        (Sampling(temperature=0.5), [0.01 / 0.275, 0.16 / 0.275, 0.0025 / 0.275, 0.0625 / 0.275, 0.04 / 0.275]),
        # Sharpened first (.16 of .275 is 0.58), cut afterwards.
        (Sampling(temperature=0.5, top_p=0.6), [0, 0.16 / 0.2225, 0, 0.0625 / 0.2225, 0]),
        # top_p counts within what top_k leaves: 0.40 of 0.65 is 0.615.
        (Sampling(top_k=2, top_p=0.61), [0, 1, 0, 0, 0]),
    ],
)
def test_probabilities(sampling: Sampling, expected: list[float]) -> None:
    assert probabilities(LOGITS, sampling).tolist() == pytest.approx(expected)


def test_equal_logits_leave_exactly_k() -> None:
    assert (probabilities(torch.zeros(6), Sampling(top_k=3)) > 0).sum() == 3


def test_draws_follow_the_distribution_and_the_generator() -> None:
    sampling = Sampling(top_k=2)
    runs = [
        [choose(LOGITS, sampling, generator) for _ in range(4000)]
        for generator in (torch.Generator().manual_seed(3), torch.Generator().manual_seed(3))
    ]
    assert runs[0] == runs[1]
    assert set(runs[0]) == {1, 3}
    assert runs[0].count(1) / 4000 == pytest.approx(40 / 65, abs=0.03)

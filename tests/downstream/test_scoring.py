"""Likelihoods of continuations against sums written out for a table of bigrams."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ablate.downstream.harness import Pair, Scored, States, windows

V, K, CONTEXT = 7, 2, 5


class Bigrams:
    """Two models that see one token each: logits [K, V, V], by the last token."""

    def __init__(self) -> None:
        self.table = torch.randn(K, V, V, generator=torch.Generator().manual_seed(3))

    def __call__(self, tokens: Tensor) -> Tensor:
        assert tokens.shape[-1] <= CONTEXT
        return torch.stack([self.table[member][tokens[member]] for member in range(K)])

    def step(self, tokens: Tensor, place: int, states: States) -> tuple[Tensor, States]:
        assert place < CONTEXT
        return self(tokens), states


@pytest.fixture
def bigrams() -> Bigrams:
    return Bigrams()


@pytest.fixture
def scored(bigrams: Bigrams) -> Scored:
    return Scored(bigrams, K, CONTEXT, torch.device("cpu"))


def test_likelihoods_are_sums_of_logs(scored: Scored, bigrams: Bigrams) -> None:
    pairs = [Pair((1,), (2, 3)), Pair((0, 1, 2, 3, 4, 5, 6), (1,)), Pair((4,), ()), Pair((1, 1), (6, 0, 2, 2))]
    for pair, found in zip(pairs, scored.likelihoods(pairs), strict=True):
        for member, likelihood in enumerate(found):
            nats, greedy, last = 0.0, True, pair.given[-1]
            for token in pair.scored:
                weights = [math.exp(weight) for weight in bigrams.table[member, last].tolist()]
                nats += math.log(weights[token] / sum(weights))
                greedy &= weights[token] == max(weights)
                last = token
            assert likelihood.nats == pytest.approx(nats, abs=1e-5), "float32 logits"
            assert likelihood.greedy == greedy


def test_the_most_likely_continuation_is_greedy(scored: Scored, bigrams: Bigrams) -> None:
    """Each member writes by its own table, and stops by itself."""
    written = scored.greedy([2, 6], 3, lambda ids: ids[-1] == 0)
    for member, ids in enumerate(written):
        expected, last = [], 6
        while len(expected) < 3 and (not expected or expected[-1] != 0):
            last = int(bigrams.table[member, last].argmax())
            expected.append(last)
        assert ids == expected
    likelihoods = scored.likelihoods([Pair((6,), (*ids,)) for ids in written])
    assert all(likelihoods[member][member].greedy for member in range(K))


@pytest.mark.parametrize("pair", [Pair((), (1,)), Pair((1,), (0,) * (CONTEXT + 1))])
def test_what_cannot_be_scored_is_refused(scored: Scored, pair: Pair) -> None:
    with pytest.raises(ValueError, match="1 id or more"):
        scored.likelihoods([pair])


@pytest.mark.parametrize("length", [0, 1, CONTEXT, CONTEXT + 1, 2 * CONTEXT, 13])
def test_windows_are_those_of_the_harness(length: int) -> None:
    """Each token once, and as much before it as the context holds, as `lm-eval` cuts long texts."""
    utils = pytest.importorskip("lm_eval.utils")
    ids = list(range(10, 10 + length))
    theirs = utils.get_rolling_token_windows(ids, prefix_token=0, max_seq_len=CONTEXT, context_len=1)
    expected = [utils.make_disjoint_window(pair) for pair in theirs]
    assert [(list(pair.given), list(pair.scored)) for pair in windows(ids, 0, CONTEXT)] == expected

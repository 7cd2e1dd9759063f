"""Greedy and beam search against every text that a small table of probabilities can give."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from ablate.decoding import beam, greedy

CPU = torch.device("cpu")
START, END, VOCABULARY, LIMIT = 3, 2, 4, 4


class Table:
    """Next-token logits by text and prefix, drawn once each."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rows = 0

    def logits(self, text: int, prefix: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, text, *prefix)) % 2**31)
        return torch.randn(VOCABULARY, generator=generator) * 2

    def __call__(self, texts: Tensor, prefixes: Tensor) -> Tensor:
        self.rows = max(self.rows, len(texts))
        pairs = zip(texts.tolist(), prefixes.tolist(), strict=True)
        return torch.stack([self.logits(text, tuple(prefix)) for text, prefix in pairs])

    def log_probability(self, text: int, tokens: tuple[int, ...]) -> float:
        prefixes = [(START, *tokens[:i]) for i in range(len(tokens))]
        logs = [self.logits(text, p).double().log_softmax(0)[t] for p, t in zip(prefixes, tokens, strict=True)]
        return float(sum(logs))


def exhaustive(table: Table, text: int, penalty: float) -> list[int]:
    """The best of all texts that end within the limit."""
    best: tuple[float, list[int]] = (-float("inf"), [])
    for length in range(LIMIT):
        for tokens in product([0, 1, 3], repeat=length):
            score = table.log_probability(text, (*tokens, END)) / ((5 + length + 1) / 6) ** penalty
            best = max(best, (score, list(tokens)))
    return best[1]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_a_beam_without_bounds_finds_the_best_of_all_texts(penalty: float) -> None:
    lengths = set()
    for seed in range(12):
        table = Table(seed)
        texts = beam(table, 3, START, END, [LIMIT] * 3, CPU, width=100, length_penalty=penalty)
        assert texts == [exhaustive(table, text, penalty) for text in range(3)]
        lengths |= {len(text) for text in texts}
    assert len(lengths) > 1, "texts of several lengths must win for this to say anything"


def test_greedy_takes_the_likeliest_token_at_every_step() -> None:
    ends = set()
    for seed in range(20):
        table = Table(seed)
        limits = [LIMIT, 2, 0]
        for text, tokens in enumerate(greedy(table, 3, START, END, limits, CPU)):
            expected: list[int] = []
            while len(expected) < limits[text]:
                token = int(table.logits(text, (START, *expected)).argmax())
                if token == END:
                    break
                expected.append(token)
            assert tokens == expected
            ends.add(len(tokens))
    assert {0, 2, LIMIT} <= ends


def test_a_beam_holds_no_more_prefixes_than_it_may() -> None:
    table = Table(0)
    beam(table, 5, START, END, [6] * 5, CPU, width=3)
    assert 3 * 3 <= table.rows <= 5 * 3


def test_scores_that_are_not_numbers_give_empty_texts() -> None:
    nothing = lambda texts, prefixes: torch.full((len(texts), VOCABULARY), float("nan"))  # noqa: E731
    assert greedy(nothing, 2, START, END, [3, 3], CPU) == [[], []]

"""Searches against every text of a small table, with cached states too; the distribution of the next token."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from ablate.decoding import Remembering, Sampling, States, beam, choose, greedy, probabilities

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


TOKENS, STOP = 5, 4


class Recurrent:
    """A small recurrent network: its state after a prefix depends on every token of it, in order."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.start = torch.randn(3, 6, generator=generator)  # of each text
        self.turn = torch.randn(6, 6, generator=generator)
        self.tokens = torch.randn(TOKENS, 6, generator=generator)
        self.read = torch.randn(6, TOKENS, generator=generator) * 3
        self.counted = 0

    def advance(self, rows: Tensor, tokens: Tensor, place: int, states: States) -> tuple[Tensor, States]:
        self.counted += len(rows)
        before = states[0][0][0] if place else self.start[rows]
        state = torch.tanh(before @ self.turn + self.tokens[tokens])
        return state @ self.read, ((state[None],),)

    def anew(self, rows: Tensor, prefixes: Tensor) -> Tensor:
        logits, states = torch.empty(0), ()
        for place in range(prefixes.shape[1]):
            logits, states = self.advance(rows, prefixes[:, place], place, states)
        return logits


@pytest.mark.parametrize("width", [1, 2, 4])
def test_it_finds_the_same(width: int) -> None:
    lengths = set()
    for seed in range(8):
        network, other = Recurrent(seed), Recurrent(seed)
        arguments = (3, 0, STOP, [7, 3, 9], CPU, width, 0.6)
        texts = beam(Remembering(network.advance), *arguments)
        assert texts == beam(other.anew, *arguments)
        assert network.counted < other.counted
        lengths |= {len(text) for text in texts}
    assert len(lengths) > 2


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

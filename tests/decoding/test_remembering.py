"""A search with cached states finds the same texts as one that reads every prefix again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ablate.decoding import Remembering, States, beam

VOCABULARY, END = 5, 4
CPU = torch.device("cpu")


class Recurrent:
    """A small recurrent network: its state after a prefix depends on every token of it, in order."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.start = torch.randn(3, 6, generator=generator)  # of each text
        self.turn = torch.randn(6, 6, generator=generator)
        self.tokens = torch.randn(VOCABULARY, 6, generator=generator)
        self.read = torch.randn(6, VOCABULARY, generator=generator) * 3
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
        arguments = (3, 0, END, [7, 3, 9], CPU, width, 0.6)
        texts = beam(Remembering(network.advance), *arguments)
        assert texts == beam(other.anew, *arguments)
        assert network.counted < other.counted
        lengths |= {len(text) for text in texts}
    assert len(lengths) > 2

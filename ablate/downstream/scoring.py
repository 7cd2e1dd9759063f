"""Log-likelihoods of token sequences under a language model.

Shapes: K pack, B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

States = tuple[tuple[Tensor, ...], ...]
"""What a model keeps of the tokens that it has read; empty before the first."""
_TOKENS_AT_ONCE = 8192
"""Tokens of a forward pass, over all members of the pack."""


class NextTokenModel(Protocol):
    """The methods that a causal language model needs to be measured."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """Ids [K, B, T] to logits of the next token [K, B, T, V]."""

    def step(self, tokens: Tensor, place: int, states: States) -> tuple[Tensor, States]:
        """One token more: ids [K, B, 1] at position `place` to logits [K, B, 1, V] and the new states."""


class Likelihood(NamedTuple):
    """How likely a model finds a continuation.

    Attributes:
        nats: Its log-probability, natural logarithm.
        greedy: Whether each of its tokens is the most likely one.
    """

    nats: float
    greedy: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """Ids that are given, at least one, and the ids that are scored after them."""

    given: tuple[int, ...]
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A pack of language models in evaluation mode.

    Attributes:
        model: The models.
        pack: Their number K.
        context: The most tokens that they read.
        device: Where they are.
    """

    model: NextTokenModel
    pack: int
    context: int
    device: torch.device

    @torch.no_grad()
    def likelihoods(self, pairs: Sequence[Pair]) -> list[list[Likelihood]]:
        """The likelihoods of each pair under every member.

        What is given is cut from the left to what the context holds. Rows of a batch are padded on the right, which a
        causal model does not see.

        Returns:
            For each pair, one likelihood a member.

        Raises:
            ValueError: A pair has nothing given, or more scored tokens than the context holds.
        """
        rows = []
        for pair in pairs:
            if not pair.given or len(pair.scored) > self.context:
                raise ValueError(f"1 id or more is given and at most {self.context} are scored")
            rows.append((*pair.given, *pair.scored)[-self.context - 1 :])
        likelihoods: list[list[Likelihood]] = [[] for _ in pairs]
        order = sorted(range(len(pairs)), key=lambda place: len(rows[place]))
        while order:
            length = len(rows[order[-1]]) - 1
            size = max(1, _TOKENS_AT_ONCE // (max(length, 1) * self.pack))
            batch, order = order[-size:], order[:-size]
            self._score(
                [rows[place] for place in batch], [len(pairs[place].scored) for place in batch], batch, likelihoods
            )
        return likelihoods

    def _score(
        self, rows: list[tuple[int, ...]], counts: list[int], places: list[int], likelihoods: list[list[Likelihood]]
    ) -> None:
        if not any(counts):
            for place in places:
                likelihoods[place] = [Likelihood(0.0, True)] * self.pack
            return
        tokens = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self.device)
        logits = self.model(tokens[:, :-1].expand(self.pack, -1, -1)).float()
        targets = tokens[:, 1:].expand(self.pack, -1, -1)
        nats = -nn.functional.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none")
        nats = nats.view(targets.shape).double()
        right = logits.argmax(-1) == targets
        for row, (place, count) in enumerate(zip(places, counts, strict=True)):
            last = len(rows[row]) - 1
            part = slice(last - count, last)
            sums, whole = nats[:, row, part].sum(-1).tolist(), right[:, row, part].all(-1).tolist()
            likelihoods[place] = [Likelihood(*pair) for pair in zip(sums, whole, strict=True)]

    def of_text(self, ids: Sequence[int], first: int) -> list[list[Likelihood]]:
        """The likelihoods of a text of any length, in windows of the context.

        The last window may overlap the one before it. Each token is predicted
        once. The first window has the id `first` before it; a later one the token before it.

        Args:
            first: An id that stands before the text, such as the end of a document.

        Returns:
            For each window, one likelihood a member.
        """
        return self.likelihoods(windows(ids, first, self.context))

    @torch.no_grad()
    def greedy(self, given: Sequence[int], most: int, stop: StopRule) -> list[list[int]]:
        """Continue a text with the most likely tokens.

        Args:
            given: Ids to continue, at least one; the last that leave room for `most` tokens in the context are read.
            most: The most tokens that are written, below the context.
            stop: Called with a member and its tokens so far; ends that member.

        Returns:
            The tokens that each member wrote.
        """
        given = list(given)[-max(1, self.context - most) :]
        written: list[list[int]] = [[] for _ in range(self.pack)]
        states: States = ()
        for place, token in enumerate(given):
            tokens = torch.full((self.pack, 1, 1), token, device=self.device)
            logits, states = self.model.step(tokens, place, states)
        running = set(range(self.pack))
        for place in range(len(given), len(given) + most):
            chosen = logits[:, 0, -1].argmax(-1)
            for member, token in enumerate(chosen.tolist()):
                if member in running:
                    written[member].append(token)
                    if stop(written[member]):
                        running.discard(member)
            if not running or place >= self.context:
                break
            logits, states = self.model.step(chosen.view(-1, 1, 1), place, states)
        return written


class StopRule(Protocol):
    """Says when a text is complete."""

    def __call__(self, written: list[int]) -> bool:
        """Whether nothing is to be written after these ids."""


def windows(ids: Sequence[int], first: int, context: int) -> list[Pair]:
    """Cut a text into pairs that predict each token once, each with `context` inputs where the text has as many."""
    text = (first, *ids)
    pairs = []
    for begin in range(1, len(text), context):
        end = min(begin + context, len(text))
        start = max(0, end - context - 1)
        pairs.append(Pair(text[start:begin], text[begin:end]))
    return pairs

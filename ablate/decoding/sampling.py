"""One token out of next-token logits: the likeliest, or a draw from a distribution that is sharpened and cut."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: Logits are divided by it; 0 takes the likeliest token.
        top_k: Only so many of the likeliest tokens may come; 0 for all.
        top_p: Of these, only the fewest of the likeliest whose probabilities sum to this or more (arXiv:1904.09751).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """What the next token is drawn from: logits [V] to probabilities [V]."""
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(), logits.numel()).to(torch.float64)
    # Equal logits keep their order, so that exactly `top_k` remain.
    ordered, tokens = (logits.double() / sampling.temperature).sort(descending=True, stable=True)
    if sampling.top_k:
        ordered, tokens = ordered[: sampling.top_k], tokens[: sampling.top_k]
    shares = ordered.softmax(0)
    # A token stays if those before it do not yet reach top_p; the first one always stays.
    kept = shares.cumsum(0) - shares < sampling.top_p
    kept[0] = True
    shares = torch.where(kept, shares, 0.0)
    return torch.zeros(logits.numel(), dtype=torch.float64).scatter(0, tokens, shares / shares.sum())


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """The next token's id, from logits [V]."""
    return int(torch.multinomial(probabilities(logits.cpu(), sampling), 1, generator=generator))

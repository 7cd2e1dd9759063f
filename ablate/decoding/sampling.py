"""Choose the next token from its logits: greedy, or sampled with a temperature, top-k and top-p."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: Divides the logits; 0 takes the most likely token.
        top_k: Keeps this many of the most likely tokens; 0 keeps all.
        top_p: Keeps the smallest set of the most likely tokens whose probabilities sum to at least this
            (nucleus sampling, arXiv:1904.09751).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Map logits [V] to the probabilities [V] from which the next token is drawn."""
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(), logits.numel()).to(torch.float64)
    # A stable sort keeps exactly `top_k` tokens also among equal logits.
    ordered, tokens = (logits.double() / sampling.temperature).sort(descending=True, stable=True)
    if sampling.top_k:
        ordered, tokens = ordered[: sampling.top_k], tokens[: sampling.top_k]
    shares = ordered.softmax(0)
    # A token stays if the more likely tokens sum to less than top_p; the first always stays.
    kept = shares.cumsum(0) - shares < sampling.top_p
    kept[0] = True
    shares = torch.where(kept, shares, 0.0)
    return torch.zeros(logits.numel(), dtype=torch.float64).scatter(0, tokens, shares / shares.sum())


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Draw the id of the next token from logits [V]."""
    return int(torch.multinomial(probabilities(logits.cpu(), sampling), 1, generator=generator))

"""Writing token by token: sampling, greedy and beam search, and a model that remembers the states of its beams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


NextLogits = Callable[[Tensor, Tensor], Tensor]
"""The forward pass of a model: maps (rows [N]: the text that each prefix belongs to; prefixes [N, T]) to the logits
[N, V] of the next token."""


def greedy(
    step: NextLogits, texts: int, start: int, end: int, limits: Sequence[int], device: torch.device
) -> list[list[int]]:
    """Append the most likely token until `end` or a limit: `beam` of width 1."""
    return beam(step, texts, start, end, limits, device, width=1, length_penalty=0)


@torch.no_grad()
def beam(
    step: NextLogits,
    texts: int,
    start: int,
    end: int,
    limits: Sequence[int],
    device: torch.device,
    width: int = 4,
    length_penalty: float = 0.6,
) -> list[list[int]]:
    """Beam search that ranks texts by log probability / ((5 + length) / 6)^penalty (arXiv:1609.08144, eq. 14).

    The length includes the token that ends the text. The search of a text ends when no open beam can score higher than
    the best finished one, or at the limit; if no beam has finished by then, the open ones are ranked.

    Args:
        step: Gives the logits of the next token.
        texts: The number B of texts.
        start: The id that every prefix begins with.
        end: The id that ends a text.
        limits: The most tokens of each text.
        device: Holds the prefixes.
        width: Beams of each text; 1 is greedy decoding.
        length_penalty: 0 ranks by probability alone; a larger value favours long texts.

    Returns:
        The tokens of the best beam of each text, without `start` and `end`.
    """
    best: list[tuple[float, list[int]]] = [(-float("inf"), []) for _ in range(texts)]
    open_texts = [text for text in range(texts) if limits[text] > 0]
    prefixes = torch.full((len(open_texts), 1, 1), start, dtype=torch.int64, device=device)
    scores = torch.zeros((len(open_texts), 1), dtype=torch.float64, device=device)
    length = 0
    while open_texts:
        length += 1
        beams = prefixes.shape[1]
        rows = torch.tensor(open_texts, device=device).repeat_interleave(beams)
        logs = step(rows, prefixes.flatten(0, 1)).double().log_softmax(-1).view(len(open_texts), beams, -1)
        totals = scores.unsqueeze(-1) + logs
        ended = totals[..., end]
        # The W best extensions of all beams are the new beams; `end` is not an extension.
        going = totals.clone()
        going[..., end] = -float("inf")
        vocabulary = going.shape[-1]
        scores, flat = going.flatten(1).topk(min(width, beams * (vocabulary - 1)), dim=1)
        parents, tokens = flat // vocabulary, flat % vocabulary
        grown = torch.cat([prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, length)), tokens.unsqueeze(-1)], -1)
        kept: list[int] = []
        for row, text in enumerate(open_texts):
            # A text that ends here counts only if its score is among the W best; so W = 1 is greedy decoding.
            worst = scores[row, -1].item() if scores.shape[1] == width else -float("inf")
            for index, total in enumerate(ended[row].tolist()):
                if total >= worst:
                    _better(best, text, total, length, prefixes[row, index, 1:], length_penalty)
            if length >= limits[text]:
                if best[text][0] == -float("inf"):
                    for index, total in enumerate(scores[row].tolist()):
                        _better(best, text, total, length, grown[row, index, 1:], length_penalty)
            elif scores[row, 0].item() / _penalty(limits[text] + 1, length_penalty) > best[text][0]:
                # Log probabilities only fall and the penalty is mildest at the limit: this beam may still win.
                kept.append(row)
        prefixes, scores = grown[kept], scores[kept]
        open_texts = [open_texts[row] for row in kept]
    return [tokens for _, tokens in best]


def _better(
    best: list[tuple[float, list[int]]], text: int, total: float, length: int, tokens: Tensor, penalty: float
) -> None:
    score = total / _penalty(length, penalty)
    if score > best[text][0]:
        best[text] = (score, tokens.tolist())


def _penalty(length: int, power: float) -> float:
    return float(((5 + length) / 6) ** power)


States = tuple[tuple[Tensor, ...], ...]
"""The cached tensors of each layer, [K, N, ...] each; empty before the first token."""

Advance = Callable[[Tensor, Tensor, int, States], tuple[Tensor, States]]
"""Maps (rows [N]: the text that each prefix belongs to; last tokens [N]; number of tokens before them; cached states of
these tokens) to the logits of the next token [N, V] and the new states."""


class Remembering:
    """Reads only the last token of each prefix. Serves one search, in which all prefixes grow by one token a call.

    Args:
        advance: The forward pass of the model for one more token.
    """

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._states: States = ()
        self._rows: dict[tuple[int, ...], int] = {}

    def __call__(self, rows: Tensor, prefixes: Tensor) -> Tensor:
        """The logits of the next token; the signature is that of `NextLogits`."""
        before = prefixes.shape[1] - 1
        names = [(row, *prefix) for row, prefix in zip(rows.tolist(), prefixes.tolist(), strict=True)]
        states = self._states
        if before:
            parents = torch.tensor([self._rows[name[:-1]] for name in names], device=prefixes.device)
            states = tuple(tuple(kept[:, parents] for kept in layer) for layer in states)
        logits, self._states = self._advance(rows, prefixes[:, -1], before, states)
        self._rows = {name: row for row, name in enumerate(names)}
        return logits

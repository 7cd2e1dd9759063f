"""Greedy decoding, and beam search with a length penalty.

Shapes: B texts, W beams, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

NextLogits = Callable[[Tensor, Tensor], Tensor]
"""The forward pass of a model: maps (rows [N]: the text that each prefix belongs to; prefixes [N, T]) to the logits
[N, V] of the next token."""


def greedy(
    step: NextLogits, texts: int, start: int, end: int, limits: Sequence[int], device: torch.device
) -> list[list[int]]:
    """Append the most likely token until `end` or a limit.

    Args:
        step: Gives the logits of the next token.
        texts: The number B of texts.
        start: The id that every prefix begins with.
        end: The id that ends a text.
        limits: The most tokens of each text.
        device: Holds the prefixes.

    Returns:
        The tokens of each text, without `start` and `end`.
    """
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
        for place, text in enumerate(open_texts):
            # A text that ends here counts only if its score is among the W best; so W = 1 is greedy decoding.
            worst = scores[place, -1].item() if scores.shape[1] == width else -float("inf")
            for index, total in enumerate(ended[place].tolist()):
                if total >= worst:
                    _better(best, text, total, length, prefixes[place, index, 1:], length_penalty)
            if length >= limits[text]:
                if best[text][0] == -float("inf"):
                    for index, total in enumerate(scores[place].tolist()):
                        _better(best, text, total, length, grown[place, index, 1:], length_penalty)
            elif scores[place, 0].item() / _penalty(limits[text] + 1, length_penalty) > best[text][0]:
                # Log probabilities only fall and the penalty is mildest at the limit: this beam may still win.
                kept.append(place)
        prefixes, scores = grown[kept], scores[kept]
        open_texts = [open_texts[place] for place in kept]
    return [tokens for _, tokens in best]


def _better(
    best: list[tuple[float, list[int]]], text: int, total: float, length: int, tokens: Tensor, penalty: float
) -> None:
    score = total / _penalty(length, penalty)
    if score > best[text][0]:
        best[text] = (score, tokens.tolist())


def _penalty(length: int, power: float) -> float:
    return float(((5 + length) / 6) ** power)

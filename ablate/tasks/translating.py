"""Translations that an encoder-decoder writes, of many texts at once. Shapes: K pack, B texts, S source tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.tasks.buckets import padded
from ablate.tasks.tokenizers import Tokenizer

if TYPE_CHECKING:
    import torch

    from ablate.decoding.remembering import States

MORE_THAN_SOURCE = 50
"""Tokens by which a translation may be longer than its source (arXiv:1706.03762, §6.1)."""
_AT_ONCE = 64


class Translator(Protocol):
    """What is asked of a model that is to translate."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Ids [K, B, S] to [K, B, S, D]."""

    def mix(self, x: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
        """The encoder: [K, B, S, D] to the same."""

    def decode_step(
        self,
        memory: torch.Tensor,
        target: torch.Tensor,
        place: int,
        states: States,
        source_padding: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, States]:
        """The encoder's output [K, B, S, D], ids [K, B, 1] at `place` and what is kept of those before it.

        Returns:
            Logits [K, B, 1, V], and what is kept now.
        """


def translate(
    model: Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    context: int,
    beams: int,
    length_penalty: float,
    device: torch.device | None,
) -> list[list[str]]:
    """Translations of texts by every member of a pack.

    Args:
        model: An encoder-decoder in evaluation mode.
        tokenizer: Of both languages.
        texts: What to translate.
        context: Tokens in a text at most, its end included.
        beams: 1 is greedy.
        length_penalty: Of a search with several beams.
        device: Where the model is; None: the CPU.

    Raises:
        DataError: A text is longer than the context.
    """
    end = tokenizer.end_of_document
    sources = [np.append(ids, end) for ids in tokenizer.encode_all(texts)]
    for text, ids in zip(texts, sources, strict=True):
        if ids.size > context:
            raise DataError(
                "a text is too long for this model",
                where=repr(text[:60]),
                expected=f"at most {context} tokens, the end included",
                got=f"{ids.size}",
                remedy="Divide it into sentences.",
            )
    order = sorted(range(len(texts)), key=lambda row: sources[row].size)
    found: list[list[str]] = []
    for first in range(0, len(order), _AT_ONCE):
        rows = order[first : first + _AT_ONCE]
        members = _search(model, [sources[row] for row in rows], end, context, beams, length_penalty, device)
        found = found or [[""] * len(texts) for _ in members]
        for member, written in enumerate(members):
            for row, tokens in zip(rows, written, strict=True):
                found[member][row] = tokenizer.decode(tokens)
    return found


def _search(
    model: Translator,
    sources: list[NDArray[np.int64]],
    end: int,
    context: int,
    beams: int,
    length_penalty: float,
    device: torch.device | None,
) -> list[list[list[int]]]:
    import torch

    from ablate.decoding.remembering import Remembering
    from ablate.decoding.search import beam, greedy

    device = device or torch.device("cpu")
    lengths = np.array([ids.size for ids in sources])
    ids, real = padded(np.concatenate(sources), np.cumsum(lengths) - lengths, lengths, int(lengths.max()), end)
    pack = next(cast("torch.nn.Module", model).parameters()).shape[0]
    with torch.no_grad():
        padding = torch.from_numpy(real).to(device).expand(pack, -1, -1)
        memory = model.mix(model.embed(torch.from_numpy(ids).to(device).expand(pack, -1, -1)), padding)

        def search(member: int) -> list[list[int]]:
            def advance(
                rows: torch.Tensor, tokens: torch.Tensor, place: int, states: States
            ) -> tuple[torch.Tensor, States]:
                ids = tokens[:, None].expand(pack, -1, -1)
                logits, states = model.decode_step(memory[:, rows], ids, place, states, padding[:, rows])
                return logits[member, :, -1], states

            step = Remembering(advance)
            if beams == 1:
                return greedy(step, len(sources), end, end, limits, device)
            return beam(step, len(sources), end, end, limits, device, beams, length_penalty)

        limits = np.minimum(lengths + MORE_THAN_SOURCE, context).tolist()
        return [search(member) for member in range(pack)]

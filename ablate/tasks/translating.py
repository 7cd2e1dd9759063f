"""Batched translation of texts with an encoder-decoder. Shapes: K pack, B texts, S source tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.tasks.sampling import pad_rows
from ablate.tasks.tokenizers import Tokenizer

if TYPE_CHECKING:
    import torch

    from ablate.decoding import States

MORE_THAN_SOURCE = 50
"""Maximum number of tokens by which a translation is longer than its source (arXiv:1706.03762, §6.1)."""
_AT_ONCE = 64


class Translator(Protocol):
    """The methods that a model needs for translation."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embed ids: [K, B, S] -> [K, B, S, D]."""

    def mix(self, x: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
        """Run the encoder: [K, B, S, D] -> [K, B, S, D]."""

    def decode_step(
        self,
        memory: torch.Tensor,
        target: torch.Tensor,
        place: int,
        states: States,
        source_padding: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, States]:
        """Decode one token from the encoder output [K, B, S, D], the ids [K, B, 1] at position `place`, and the states.

        Returns:
        Logits [K, B, 1, V] and the new states.
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
    """Translate texts with every member of a pack.

    Args:
        model: An encoder-decoder in evaluation mode.
        tokenizer: Tokenizer of both languages.
        texts: Texts to translate.
        context: Maximum number of tokens in a text, including the end-of-document token.
        beams: Number of beams; 1: greedy decoding.
        length_penalty: Length penalty of beam search.
        device: Device of the model; None: the CPU.

        Returns:
        For each member, the translations in the order of `texts`.

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
                expected=f"at most {context} tokens, including the end of the text",
                got=f"{ids.size}",
                remedy="Divide it into sentences.",
            )
    order = sorted(range(len(texts)), key=lambda row: sources[row].size)
    translations: list[list[str]] = []
    for first in range(0, len(order), _AT_ONCE):
        rows = order[first : first + _AT_ONCE]
        members = _search(model, [sources[row] for row in rows], end, context, beams, length_penalty, device)
        translations = translations or [[""] * len(texts) for _ in members]
        for member, written in enumerate(members):
            for row, tokens in zip(rows, written, strict=True):
                translations[member][row] = tokenizer.decode(tokens)
    return translations


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

    from ablate.decoding import Remembering, beam, greedy

    device = device or torch.device("cpu")
    lengths = np.array([ids.size for ids in sources])
    ids, real = pad_rows(np.concatenate(sources), np.cumsum(lengths) - lengths, lengths, int(lengths.max()), end)
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

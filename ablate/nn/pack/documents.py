"""Several documents in one window: which tokens share a document, and where in its document a token stands.

Documents are given by integers [K, B, T] in place of the booleans of a padding mask. The tokens of a document are
adjacent. Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def numbers_documents(padding: Tensor | None) -> bool:
    """Whether a padding argument holds numbers of documents, not booleans."""
    return padding is not None and padding.dtype != torch.bool


def same_document(numbers: Tensor) -> Tensor:
    """Which tokens share a document: numbers [K, B, T] to booleans [K, B, 1, T, T]."""
    return numbers[:, :, None, :, None] == numbers[:, :, None, None, :]


def places_in_documents(numbers: Tensor) -> Tensor:
    """The position of each token in its document, from 0: numbers [K, B, T] to int64 [K, B, T].

    A document that began before the window counts from the first token of the window.
    """
    places = torch.arange(numbers.shape[-1], device=numbers.device).expand(numbers.shape)
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[..., 1:] = numbers[..., 1:] != numbers[..., :-1]
    return places - (places * begins).cummax(-1).values


def add_positions_of_documents(positions: nn.Module, x: Tensor, numbers: Tensor) -> Tensor:
    """Add positions to embeddings, starting at 0 in each document: x [K, B, T, D] to the same.

    Args:
        positions: Adds a row to each token, by its position in the window.
        x: The embedding.
        numbers: Of the documents, [K, B, T].
    """
    rows = positions(x.new_zeros(x.shape[0], 1, *x.shape[2:]))
    return x + torch.take_along_dim(rows, places_in_documents(numbers)[..., None], 2)

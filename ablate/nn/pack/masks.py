"""Which tokens of a window belong together, and which of them count.

Documents that share a window are given by integers [K, B, T] instead of the booleans of a padding mask. The tokens of
a document are adjacent. In the losses that parts of a model add, and in statistics such as the load of experts, padding
does not count in the blocks, and outputs that the loss of the task ignores do not count at the head. So the results for
some texts do not depend on how far they are padded.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def numbers_documents(padding: Tensor | None) -> bool:
    """Whether a padding argument holds numbers of documents, not booleans."""
    return padding is not None and padding.dtype != torch.bool


def same_document(numbers: Tensor) -> Tensor:
    """Which tokens share a document: numbers [K, B, T] to booleans [K, B, 1, T, T]."""
    return numbers[:, :, None, :, None] == numbers[:, :, None, None, :]


def positions_in_documents(numbers: Tensor) -> Tensor:
    """The position of each token in its document, from 0: numbers [K, B, T] to int64 [K, B, T].

    A document that began before the window counts from the first token of the window.
    """
    positions = torch.arange(numbers.shape[-1], device=numbers.device).expand(numbers.shape)
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[..., 1:] = numbers[..., 1:] != numbers[..., :-1]
    return positions - (positions * begins).cummax(-1).values


def add_positions_of_documents(positions: nn.Module, x: Tensor, numbers: Tensor) -> Tensor:
    """Add positions to embeddings, starting at 0 in each document: x [K, B, T, D] to the same.

    Args:
        positions: Adds a row to each token, by its position in the window.
        numbers: Of the documents, [K, B, T].
    """
    rows = positions(x.new_zeros(x.shape[0], 1, *x.shape[2:]))
    return x + torch.take_along_dim(rows, positions_in_documents(numbers)[..., None], 2)


@dataclass(frozen=True, slots=True)
class ScoredOutputs:
    """The outputs of a model that the loss of its task reads.

    Attributes:
        mask: In this part of a batch, [K, B, T].
        whole: In the whole batch, of which this is a part.
        share: The share of the batch's rows that this part has.
    """

    mask: Tensor
    whole: Tensor
    share: float = 1.0

    @property
    def count(self) -> Tensor:
        """By what a sum over this part is divided, [K]: the number in the whole batch times the share.

        The means of the parts, weighted by their shares, then give the mean of the batch.
        """
        return self.whole.flatten(1).sum(1).clamp(min=1) * self.share

    def slice(self, first: int) -> ScoredOutputs:
        """The outputs from position `first` on."""
        return ScoredOutputs(self.mask[:, :, first:], self.whole[:, :, first:], self.share)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the scored outputs, [K], of values in the shape of the mask; in a part, see `count`."""
        return torch.where(self.mask, values, 0).flatten(1).sum(1) / self.count


_real: ContextVar[Tensor | None] = ContextVar("real", default=None)
_scored: ContextVar[tuple[ScoredOutputs | None, ScoredOutputs | None]] = ContextVar("scored", default=(None, None))


@contextmanager
def counting(padding: Tensor | None) -> Iterator[None]:
    """Context manager: only real tokens count in the body.

    Args:
        padding: [K, B, T], True where a token is real. If it is None or numbers documents, all tokens count.
    """
    token = _real.set(None if numbers_documents(padding) else padding)
    try:
        yield
    finally:
        _real.reset(token)


def real_mask() -> Tensor | None:
    """Which tokens are real, [K, B, T]; None if all are."""
    return _real.get()


@contextmanager
def scoring(scored: ScoredOutputs | None, followed: ScoredOutputs | None = None) -> Iterator[None]:
    """Context manager: only these outputs of a model count in the body; None: those of real tokens.

    Args:
        scored: The outputs that the loss of the task reads.
        followed: Those of them, [K, B, T - 1], whose next token is a real one of the same input. Only models that
            predict tokens after the next one need it.
    """
    token = _scored.set((scored, followed))
    try:
        yield
    finally:
        _scored.reset(token)


def scored_outputs() -> ScoredOutputs | None:
    """The outputs that the loss of the task reads; those of real tokens if it does not say; None for all."""
    (scored, _), real = _scored.get(), _real.get()
    return ScoredOutputs(real, real) if scored is None and real is not None else scored


def scored_targets(ahead: int) -> ScoredOutputs | None:
    """For the first T - `ahead` positions, whether the token so many positions later is one that a model learns.

    It is if it is real and the loss of the task reads the output before it; if the task does not say, if it is real.
    None: all are.
    """
    (_, followed), real = _scored.get(), _real.get()
    if followed is not None:
        return followed.slice(ahead - 1)
    return None if real is None else ScoredOutputs(real, real).slice(ahead)


def mean_of_scored(values: Tensor, scored: ScoredOutputs | None) -> Tensor:
    """The mean of values [K, B, T] over the scored outputs, or over all, [K]."""
    return values.flatten(1).mean(1) if scored is None else scored.mean(values)

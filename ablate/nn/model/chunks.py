"""Losses over a large vocabulary in chunks of tokens, so that the logits of a batch are never all in memory.

Each chunk is computed again in the backward pass (`nn.pack.recompute`), which costs a second product with the matrix of
the head, whose gradient is summed in one place (`nn.kernels.summed_product`). The same idea, as a GPU kernel: Cut Your
Losses in Large-Vocabulary Language Models (arXiv:2411.09009).

Shapes: K pack, B batch, T tokens, N = B·T, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

from ablate.nn.kernels.summed_product import GradientSums
from ablate.nn.pack.recompute import recomputed

_chunk: ContextVar[int | None] = ContextVar("chunk", default=None)


@contextmanager
def chunked_logits(tokens: int | None) -> Iterator[None]:
    """Context manager: a model returns features [K, B, T, D] instead of logits in the body; None: logits as usual.

    Args:
        tokens: Number of tokens whose logits are computed at once, for losses that the model itself adds.
    """
    token = _chunk.set(tokens)
    try:
        yield
    finally:
        _chunk.reset(token)


def logit_chunk() -> int | None:
    """Number of tokens whose logits are computed at once; None for all."""
    return _chunk.get()


def sum_of_chunks(part: Callable[..., Tensor], size: int, *tensors: Tensor) -> Tensor:
    """The sum of the results of a function for chunks of tensors [K, N, ...] along their second axis."""
    count, sums = tensors[0].shape[1], GradientSums()

    def of_chunk(*pieces: Tensor) -> Tensor:
        with sums.active():  # in both passes
            return part(*pieces)

    total: Tensor | None = None
    for first in range(0, count, size):
        pieces = (tensor[:, first : first + size] for tensor in tensors)
        value: Tensor = recomputed(of_chunk, *pieces)
        total = value if total is None else total + value
    assert total is not None, "a batch has tokens"
    return total

"""Several processes (ranks) that train one trial together, each on its own device: data parallelism.

Every rank has the whole model, or its part of every tensor (`sharding`). It prepares the same batch, processes its own
rows, and the gradients are summed over the ranks, so that all ranks take the same step. Li et al., PyTorch Distributed
(arXiv:2006.15704).

Shapes: K pack, B batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, distributed

if TYPE_CHECKING:
    from ablate.spec.task import Batch

ValueT = TypeVar("ValueT")

_BUCKET = 1 << 23
"""The elements of gradients that are summed over the ranks in one message."""


class RankLostError(Exception):
    """Another rank has died or does not answer, so that the trial cannot continue in these processes."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train a trial; `torch.distributed` must be ready if there are several.

    Attributes:
        index: Of this process.
        count: Of all.
        shard: Whether weights, gradients and the state of the optimizer are divided among them.
    """

    index: int = 0
    count: int = 1
    shard: bool = False

    def rows(self, batch: Batch) -> Batch:
        """The rows of a batch [K, B, ...] that this rank processes; no other rank has them."""
        if self.count == 1:
            return batch
        first, last = (batch["inputs"].shape[1] * index // self.count for index in (self.index, self.index + 1))
        return {name: values[:, first:last] for name, values in batch.items()}

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over the ranks, in place."""
        if self.count > 1:
            self._together(lambda: distributed.all_reduce(value))
        return value

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace the gradient of each parameter by the sum over the ranks; divided ones are summed already."""
        if self.count == 1 or self.shard:
            return
        bucket: list[Tensor] = []
        for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
            bucket.append(gradient)
            if sum(gradient.numel() for gradient in bucket) >= _BUCKET:
                self._sum_bucket(bucket)
                bucket = []
        if bucket:
            self._sum_bucket(bucket)

    def _sum_bucket(self, gradients: list[Tensor]) -> None:
        flat = self.total(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, summed in zip(
            gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(summed.view_as(gradient))

    def of_first(self, value: ValueT) -> ValueT:
        """The value that the first rank has."""
        if self.count == 1:
            return value
        values = [value]
        self._together(lambda: distributed.broadcast_object_list(values, src=0))
        return values[0]

    def of_each(self, value: ValueT) -> Sequence[ValueT]:
        """The values that the ranks have, in their order."""
        if self.count == 1:
            return [value]
        values: list[ValueT | None] = [None] * self.count
        self._together(lambda: distributed.all_gather_object(values, value))
        return [value for value in values if value is not None]

    def _together(self, exchange: Callable[[], object]) -> None:
        """Run an exchange between the ranks.

        Raises:
            RankLostError: Another rank has died or does not answer.
        """
        try:
            exchange()
        except (RuntimeError, ValueError) as error:  # gloo and NCCL raise either, without a class of their own
            raise RankLostError((str(error).strip().splitlines() or ["no reason"])[0]) from error

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Passes through a divided model, which exchanges weights and gradients inside.

        Raises:
            RankLostError: Another rank has died or does not answer.
        """
        try:
            yield
        except RuntimeError as error:
            if self.shard and (isinstance(error, distributed.DistError) or "gloo" in str(error)):
                raise RankLostError(str(error).strip().splitlines()[0]) from error
            raise

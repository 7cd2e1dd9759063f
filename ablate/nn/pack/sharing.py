"""Tensors that layers share: a part gets the tensors that its spec reads, and publishes tensors for later layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ablate.spec.layer import LayerContext
from ablate.spec.part import PartSpec, SharedTensor

Shared = dict[SharedTensor, Tensor]
"""The tensors that the layers of one forward pass have published so far."""


class Sharing:
    """The tensors that one part of one layer reads and publishes.

    Attributes:
        reads: The tensors that are passed to it.
        publishes: The tensors that it returns beside its result.
    """

    def __init__(self, spec: PartSpec, context: LayerContext) -> None:
        self.reads = spec.reads(context)
        self.publishes = spec.publishes(context)

    def call(self, part: Callable[..., Any], shared: Shared, *inputs: Any) -> Any:
        """Call a part with the tensors that it reads, add those that it publishes to `shared`, and return the rest."""
        read = {"shared": tuple(shared[tensor] for tensor in self.reads)} if self.reads else {}
        given = part(*inputs, **read)
        if not self.publishes:
            return given
        *result, published = given
        shared.update(zip(self.publishes, published, strict=True))
        return result[0] if len(result) == 1 else tuple(result)

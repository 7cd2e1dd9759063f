"""`Residual`: the base of modules that join the sub-layers of a layer to the stream.

Shapes: K pack, B batch, T tokens, D width; the stream is [K, B, T, D] unless a kind has several.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ablate.spec.part import Sublayer


class Residual(nn.Module):
    """The plain residual; other kinds override its methods."""

    def open(self, x: Tensor) -> Tensor:
        """In the first layer: embeddings [K, B, T, D] to the stream."""
        return x

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """At the start of the layer: the stream to the same, with the shared tensors that its spec reads."""
        return stream

    def enter(self, stream: Tensor, part: Sublayer) -> Tensor:
        """The stream to the input of a sub-layer, [K, B, T, D]; a parallel block calls it for `mixer` only."""
        return stream

    def join(self, stream: Tensor, branch: Tensor, skip: Callable[[Tensor], Tensor], part: Sublayer) -> Tensor:
        """The stream after a sub-layer.

        Args:
            stream: The stream before the sub-layer.
            branch: The output of the sub-layer, [K, B, T, D].
            skip: Applies the gain of the skip.
            part: Which sub-layer.
        """
        return branch + skip(stream)

    def close(self, stream: Tensor) -> Tensor:
        """After the last layer: the stream to [K, B, T, D]."""
        return stream

"""What the parts of a layer agree upon: the residual that joins them, tensors that layers share, and cached decoding.

In cached decoding a mixer with a state of the previous tokens does not read them again. A causal mixer supports this by
the method of `Stepping`; any other mixer reads all its inputs again, with the same result but slower. Inputs have no
padding then.

Shapes: K pack, B batch, T tokens, D width; the stream is [K, B, T, D] unless a residual has several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ablate.nn.pack.convolution import along_tokens
from ablate.spec.layer import LayerContext, PartSpec, SharedTensor, Sublayer


class Residual(nn.Module):
    """The plain residual; other kinds override its methods.

    Attributes:
        carries: Number of tensors that it keeps of earlier tokens in cached decoding (`ablate.nn.pack.earlier`).
    """

    carries: int = 0

    def open(self, x: Tensor) -> Tensor:
        """In the first layer: embeddings [K, B, T, D] to the stream."""
        return x

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """At the start of the layer: the stream to the same, with the shared tensors that its spec reads."""
        return stream

    def enter(self, stream: Tensor, part: Sublayer) -> Tensor:
        """The stream to the input of a sub-layer, [K, B, T, D]; a parallel block calls it for `mixer` only.

        Where the spec `separates_inputs`, the mixer gets those of queries, keys and values, [K, B, T, 3, D].
        """
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

    def finish(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """As `close`, with the shared tensors that the spec of the last layer reads."""
        return self.close(stream)


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


State = tuple[Tensor, ...]
"""The state of a mixer after the tokens read so far, tensors [K, B, ...]; empty before the first."""


@runtime_checkable
class Stepping(Protocol):
    """A mixer with a recurrent or cached form."""

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The output of `forward` at token `place` (from 0) of a sequence, and the state for the next token.

        Args:
            x: The token, [K, B, 1, D].
            position: The number of tokens before it.
            state: The state after those tokens.
        """


def step(mixer: nn.Module, x: Tensor, position: int, state: State, shared: State = ()) -> Any:
    """The step of any causal mixer, with the arguments and results of `Stepping.step`.

    A mixer that reads tensors of earlier layers gets those of this token in `shared`; one that publishes tensors
    returns them after its state (`ablate.spec.layer.PartSpec`).
    """
    if isinstance(mixer, Stepping):
        return mixer.step(x, position, state, shared=shared) if shared else mixer.step(x, position, state)  # type: ignore[call-arg]
    now = (x, *shared)
    kept = tuple(torch.cat([before, new], 2) for before, new in zip(state, now, strict=True)) if state else now
    with along_tokens(None):
        made = mixer(kept[0], shared=kept[1:]) if shared else mixer(kept[0])
    if isinstance(made, Tensor):
        return made[:, :, -1:], kept
    y, published = made
    return y[:, :, -1:], kept, tuple(tensor[:, :, -1:] for tensor in published)


def extend_cache(state: State, now: State, window: int | None) -> State:
    """Cached tensors [..., T, d] with those of the next token, [..., 1, d]; only the last `window` tokens are kept."""
    grown = tuple(torch.cat([before, new], -2) for before, new in zip(state, now, strict=True)) if state else now
    return grown if window is None else tuple(kept[..., -window:, :] for kept in grown)

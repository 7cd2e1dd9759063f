"""Short causal convolutions along the tokens: those of recurrent mixers, and those at places of a block.

A convolution at a place of a block is called with the hidden values alone. What else it needs holds during the block:
which tokens are real or share a document, and in cached decoding the inputs of the tokens before.

Shapes: K pack, B batch, T tokens, C channels, n taps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.pack.initial import Packed, uniform
from ablate.nn.pack.layers import ACTIVATIONS
from ablate.nn.pack.masks import numbers_documents
from ablate.spec.activations import Activation
from ablate.spec.convolution import ConvolutionPlace, ConvolutionSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import Initial, LayerContext, zeros


class ShortConvolution(Packed):
    """y_t = act(Σ_{i<n} w_i ∘ x_{t-i} + b); as in torch, w starts uniform in ±1/√n.

    Args:
        pack: K.
        channels: C.
        taps: n, the kernel size; the last one is for the current token. 0: no convolution, y_t = act(x_t).
        bias: Whether there is a b.
        activation: act.
        start: Initial values of w; unless given, uniform in ±1/√n.
        trained: Whether w is trained.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        pack: int,
        channels: int,
        taps: int,
        *,
        bias: bool = False,
        activation: Activation = "silu",
        start: Initial | None = None,
        trained: bool = True,
    ) -> None:
        super().__init__(pack)
        self.taps = taps
        self.activation = ACTIVATIONS[activation]
        if taps:
            start = start or uniform(1 / math.sqrt(taps))
            self.declare("weight", (channels, taps), start, decay=True, depthwise=True, trainable=trained)
        if taps and bias:
            self.declare("bias", (channels,), zeros)
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, C] to the same."""
        return self._over(F.pad(x, (0, 0, self.taps - 1, 0)) if self.taps else x)

    def step(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """One token [K, B, 1, C], and the n - 1 inputs before it, [K, B, n - 1, C]; None before the first.

        Returns:
            y, and the inputs to be kept for the next token.
        """
        if before is None:
            before = x.new_zeros(*x.shape[:2], max(0, self.taps - 1), x.shape[-1])
        seen = torch.cat([before, x], 2)
        return self._over(seen), seen[:, :, 1:]

    def _over(self, padded: Tensor) -> Tensor:
        """The inputs with those of n - 1 tokens before them, [K, B, n - 1 + T, C], to [K, B, T, C]."""
        if not self.taps:
            return self.activation(padded)
        length = padded.shape[2] - self.taps + 1
        # All terms are views of `padded`, so that it alone is kept for the backward pass.
        return self.convolve([padded[:, :, tap : tap + length] for tap in range(self.taps)])

    def convolve(self, inputs: Sequence[Tensor]) -> Tensor:
        """The n inputs of each token, the earliest first, [K, B, T, C] each, to y [K, B, T, C]."""
        y, *others = (x * self.weight[:, None, None, :, tap] for tap, x in enumerate(inputs))
        for term in others:
            y = y + term
        if self.bias is not None:
            y = y + self.bias[:, None, None]
        return self.activation(y)


def short_convolution_cost(length: int, channels: int, taps: int, *, bias: bool = False) -> Cost:
    """Cost of the forward pass over one sequence. Kept: the padded input, and the input of SiLU."""
    elements, bias = length * channels, bias and taps > 0
    return Cost(
        parameters=channels * (taps + bias),
        multiplications=elements * (taps + 1),
        additions=elements * (max(0, taps - 1) + bias + 1),
        divisions=elements,
        exponentiations=elements,
        activations=(length + taps - 1) * channels * (taps > 0) + elements,
    )


@dataclass(slots=True)
class AlongTokens:
    """What the convolutions of a block know of its tokens.

    Attributes:
        padding: [K, B, T], True where a token is real, or numbers of documents.
        before: In cached decoding the last inputs of each convolution, in the order of their calls; else None.
        kept: The same for the next token.
    """

    padding: Tensor | None = None
    before: Iterator[Tensor | None] | None = None
    kept: list[Tensor] = field(default_factory=list)


_along: ContextVar[AlongTokens | None] = ContextVar("along", default=None)


@contextmanager
def along_tokens(along: AlongTokens | None) -> Iterator[None]:
    """Context manager: the convolutions of a block run along these tokens in the body; None: all are real."""
    token = _along.set(along)
    try:
        yield
    finally:
        _along.reset(token)


def earlier(x: Tensor, count: int) -> tuple[Tensor, ...]:
    """The values of each token and of the tokens 1 ... `count` before it, [K, B, T, ...] each.

    They are 0 before the text, and for padding and other documents. In cached decoding x is one token; what is kept for
    the next one counts among `Residual.carries`.
    """
    along = _along.get() or AlongTokens()
    padding, length = along.padding, x.shape[2]
    if along.before is not None:
        before = next(along.before)
        seen = torch.cat([x.new_zeros(*x.shape[:2], count, *x.shape[3:]) if before is None else before, x], 2)
        along.kept.append(seen[:, :, 1:])
        return tuple(seen[:, :, count - lag : count - lag + 1] for lag in range(count + 1))
    axes = (0, 0) * (x.dim() - 3) + (count, 0)
    separate = padding is not None and numbers_documents(padding)
    if padding is not None and not separate:
        x = x * padding.view(*padding.shape, *[1] * (x.dim() - 3))
    seen = F.pad(x, axes)
    lags = [seen[:, :, count - lag : count - lag + length] for lag in range(count + 1)]
    if padding is None or not separate:
        return tuple(lags)
    numbers = F.pad(padding, (count, 0))
    near = [numbers[:, :, count - lag : count - lag + length] == padding for lag in range(count + 1)]
    return tuple(lag * same.view(*same.shape, *[1] * (x.dim() - 3)) for lag, same in zip(lags, near, strict=True))


class ConvolutionSlot(ShortConvolution):
    """A short convolution of the hidden values of a block, over taps that are `dilation` tokens apart.

    With `residual` x_t is added to y_t. Other arguments are as of `ShortConvolution`.
    """

    def __init__(
        self,
        pack: int,
        channels: int,
        taps: int,
        *,
        residual: bool = False,
        dilation: int = 1,
        activation: Activation = "silu",
        start: Initial | None = None,
        trained: bool = True,
    ) -> None:
        super().__init__(pack, channels, taps, activation=activation, start=start, trained=trained)
        self.residual, self.dilation = residual, dilation

    @classmethod
    def of(cls, context: LayerContext, place: ConvolutionPlace, channels: int) -> ConvolutionSlot | None:
        """The convolution at a place of the block; None if there is none.

        Args:
            place: Field of `ConvolutionsSpec`.
            channels: C.
        """
        spec: ConvolutionSpec | None = getattr(context.convolutions, place)
        if spec is None:
            return None
        return cls(
            context.pack,
            channels,
            spec.taps,
            residual=spec.residual,
            activation=spec.activation,
            start=None if spec.start is None else _taps(spec.start),
            trained=spec.trained,
        )

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, C] to the same; in cached decoding one token, [K, B, 1, C]."""
        y = self.convolve(earlier(x, (self.taps - 1) * self.dilation)[:: -self.dilation])
        return x + y if self.residual else y

    def together(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Tensors [K, B, T, C_i], C channels in all, as one, to the same."""
        y: Tensor = self(torch.cat(parts, -1))
        return torch.split(y, [part.shape[-1] for part in parts], -1)


def convolved_together(slot: ConvolutionSlot | None, *parts: Tensor) -> tuple[Tensor, ...]:
    """Tensors [K, B, T, C_i] through the convolution over all their channels, if there is one."""
    return parts if slot is None else slot.together(*parts)


def _taps(start: tuple[float, ...]) -> Initial:
    """Initial values w_0, w_1 ... of all channels; `weight` has that of the current token, w_0, last."""
    return lambda values, generator: values.copy_(torch.tensor(start[::-1]).expand_as(values))

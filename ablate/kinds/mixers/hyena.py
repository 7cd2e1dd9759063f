"""Hyena: alternating gates and long convolutions, whose filters a small network generates.

(x_0, ..., x_{N-1}, v) = short(x·W_in), short a causal depthwise convolution of width 3; then for i = N-1 ... 1
v ← x_i ∘ v and v ← h_i * v + b_i ∘ v; and y = (x_0 ∘ v)·W_out. Filters: h(t) = FFN(z(t)) ∘ exp(-|δ|·t/(L-1)) with sine
activations, z(t) = (t/(L-1), Re and Im of e^{-i·f·2πt/L}), f evenly spaced, and decays δ evenly spaced over channels.

This follows the authors' `standalone_hyena.py`, where order N means N gates and N-1 long filters. Departures: z is
fixed (there it is trained, with a separate learning rate of 1e-5), all parameters have the model's learning rate, W_in
and W_out start from N(0, init_std²), and padded tokens are replaced by zeros (there they are not).

- Hyena Hierarchy (arXiv:2302.10866), definition 3.1 and §3.3; https://arxiv.org/abs/2302.10866
- https://github.com/HazyResearch/safari, standalone_hyena.py

Shapes: K pack, B batch, T tokens, D width, L longest input, N order, E features of a position, W filter width.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from ablate.nn.kernels import convolution
from ablate.nn.kernels.convolution import fast_length, fourier_cost
from ablate.nn.pack import Linear, Packed, constant, linear, normal, uniform
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import Initial, LayerContext
from ablate.spec.sublayers import MixerSpec

_SHORT = 3  # width of the short convolution
_FAST, _SLOW, _TARGET = 0.3, 1.5, 0.01  # the window falls to 0.01 after 0.3 of L (fastest channel) to 1.5 (slowest)


class HyenaSpec(MixerSpec):
    """Alternating gates and long implicit convolutions."""

    source = "arXiv:2302.10866 def. 3.1, as in the authors' standalone code"
    complexity = "N·Ld·log L"
    bidirectional_form = False

    kind: Literal["hyena"] = "hyena"
    order: int = Field(default=2, ge=2)
    """N, number of gates; there are N - 1 long filters."""
    filter_width: int = Field(default=64, ge=1)
    """Hidden width of the network that generates the filters."""
    filter_layers: int = Field(default=2, ge=0)
    """Hidden layers of that network after the first."""
    filter_features: int = Field(default=3, ge=3)
    """Features of a position that it reads: the time, and a cosine and a sine for each frequency (so odd)."""
    sine_frequency: float = Field(default=1.0, gt=0)
    """Initial value of the trainable frequencies of its sine activations."""

    @field_validator("filter_features")
    @classmethod
    def _features_are_odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise refusal(
                (),
                value,
                "the features of a position are its time and pairs of a cosine and a sine, so their number is odd",
                f"Set `filter_features` to {value - 1} or {value + 1}.",
            )
        return value

    def longest_input(self, context: LayerContext) -> int:
        """The features of positions, and the window, are those of the context."""
        return context.context

    def build(self, context: LayerContext) -> Hyena:
        return Hyena(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """The inputs of each long filter, and the last inputs of the short one."""
        streams = (self.order + 1) * context.width
        return (self.order - 1) * length * context.width + min(length, _SHORT - 1) * streams

    def cost(self, context: LayerContext, length: int) -> Cost:
        """The filters are generated once in each forward pass; a sine counts as a multiplication."""
        points = fast_length(2 * length - 1)
        filters, d = self.order - 1, context.width
        spectra = filters * d * (points // 2 + 1)
        long = fourier_cost(points, transforms=3 * filters * d, real=True)
        long += Cost(multiplications=4 * spectra, additions=2 * spectra)
        return self._around(context, length) + self._filters(context, length) + long

    def step_cost(self, context: LayerContext, position: int) -> Cost:
        """The filters are cached, and each is multiplied with all past values."""
        sums = (self.order - 1) * context.width
        long = Cost(multiplications=position * sums, additions=(position - 1) * sums)
        step = self._around(context, 1) + long
        return Cost(self.cost(context, position).parameters, step.multiplications, step.additions)

    def _around(self, context: LayerContext, length: int) -> Cost:
        """Maps, short convolution, gates and b_i ∘ v."""
        d, streams, filters = context.width, (self.order + 1) * context.width, (self.order - 1) * context.width
        short = Cost(
            parameters=(_SHORT + 1) * streams,
            multiplications=_SHORT * length * streams,
            additions=_SHORT * length * streams,
            activations=(length + min(length, _SHORT) - 1) * streams,
        )
        inner = Cost(
            parameters=filters,
            multiplications=length * (self.order * d + filters),
            additions=length * filters,
            activations=length * (streams + 2 * filters),
        )
        return linear_cost(length, d, streams, bias=True) + short + inner + linear_cost(length, d, d, bias=True)

    def _filters(self, context: LayerContext, length: int) -> Cost:
        """The network and its window. Its activations are shared by all sequences of a batch and are not counted."""
        channels, layers = (self.order - 1) * context.width, self.filter_layers
        hidden = linear_cost(length, self.filter_width, self.filter_width, bias=True)
        network = linear_cost(length, self.filter_features, self.filter_width, bias=True)
        network += hidden * layers + linear_cost(length, self.filter_width, channels)
        sines = 2 * (layers + 1) * length * self.filter_width
        window = length * channels
        return Cost(
            parameters=network.parameters + self.filter_width,
            multiplications=network.multiplications + sines + 2 * window,
            additions=network.additions,
            exponentiations=window,
        )


class Hyena(Packed):
    """The module of `HyenaSpec`."""

    short: Tensor
    short_bias: Tensor
    bias: Tensor

    def __init__(self, spec: HyenaSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        d, pack, order = context.width, context.pack, spec.order
        self.width = d
        self.input = linear(context, d, (order + 1) * d, bias=True)
        self.declare("short", (_SHORT, (order + 1) * d), _uniform(_SHORT), decay=True, depthwise=True)
        self.declare("short_bias", ((order + 1) * d,), _uniform(_SHORT))
        self.filters = Filters(spec, pack, (order - 1) * d, context.context)
        self.declare("bias", ((order - 1) * d,), normal(1.0))
        self.output = linear(context, d, d, bias=True, role="output")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        length = x.shape[2]
        real = None if padding is None else padding[..., None]
        streams = self.input(x) if real is None else self.input(x) * real
        streams = convolution.depthwise(streams, self.short) + self.short_bias[:, None, None]
        if real is not None:  # the biases were added at padded tokens too
            streams = streams * real
        first, *gates, v = torch.split(streams, self.width, -1)
        filters = torch.split(self.filters(length), self.width, -1)
        biases = torch.split(self.bias[:, None, None], self.width, -1)
        for gate, h, b in zip(reversed(gates), filters, biases, strict=True):
            v = gate * v
            v = convolution.depthwise(v, h) + b * v
        y: Tensor = self.output(first * v)
        return y


class Filters(Packed):
    """h(t) = FFN(z(t)) ∘ exp(-|δ|·t/(L-1)); the sines of all layers share their trainable frequencies."""

    frequency: Tensor
    features: Tensor
    window: Tensor

    def __init__(self, spec: HyenaSpec, pack: int, channels: int, longest: int) -> None:
        super().__init__(pack)
        width = spec.filter_width
        self.hidden = nn.ModuleList(
            _filter_linear(pack, inputs, width) for inputs in (spec.filter_features, *[width] * spec.filter_layers)
        )
        self.last = Linear(pack, width, channels, initial=_uniform(width))
        self.declare("frequency", (width,), constant(spec.sine_frequency))
        position = torch.arange(longest, dtype=torch.float64)[:, None]
        time = position / max(1, longest - 1)
        bands = (spec.filter_features - 1) // 2
        # As in the authors' code, one band has the frequency 1e-4, and the last of several bands - 1.
        angle = 2 * math.pi / longest * position * torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64)
        decay = -math.log(_TARGET) * torch.linspace(1 / _SLOW, 1 / _FAST, channels, dtype=torch.float64)
        self.register_buffer("features", torch.cat([time, angle.cos(), -angle.sin()], 1).float(), persistent=False)
        self.register_buffer("window", torch.exp(-time * decay).float(), persistent=False)

    def forward(self, length: int) -> Tensor:
        """The first `length` values of all filters, [K, length, channels], in full precision."""
        with torch.autocast(self.window.device.type, enabled=False):
            h = self.features[:length].expand(self.pack, -1, -1)
            for linear in self.hidden:
                h = torch.sin(self.frequency[:, None] * linear(h))
            y: Tensor = self.last(h) * self.window[:length]
            return y


def _filter_linear(pack: int, inputs: int, outputs: int) -> Linear:
    """A map with the initial values of torch's `nn.Linear`, as in the authors' code."""
    return Linear(pack, inputs, outputs, bias=True, initial=_uniform(inputs), initial_bias=_uniform(inputs))


def _uniform(inputs: int) -> Initial:
    """Uniform between ±1/√inputs."""
    return uniform(1 / math.sqrt(inputs))

"""Hyper-connections: n streams R [n, D] instead of one, with trained weights between them and each sub-layer.

[x | R'] = Aᵀ R, A [n, 1 + n]; y = f(x); R ← R' + β ⊗ y. A = A₀ + s_α·tanh(N(R) W_α), β = β₀ + s_β·tanh(N(R) w_β), where
N is an RMSNorm without gain, W_α and w_β start at 0 and s at 0.01; without `dynamic` A = A₀ and β = β₀. A₀ starts as
[e | I], where e is the unit vector l mod n in sub-layer l, and β₀ as 1, so that the model starts as one with one
stream. All streams start as the embedding; at the end they are summed. The first column of A is H_pre, the others are
H_res, and β is H_post.

- Hyper-Connections (arXiv:2409.19606), eqs 1 to 14; https://arxiv.org/abs/2409.19606
- https://github.com/lucidrains/hyper-connections at 4775103, run beside a model in double precision, with ε = 0:
  logits differ by 3e-14, gradients by 1e-13 of their size

Shapes: K pack, B batch, T tokens, n streams, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from ablate.kinds.residuals import ConnectedStreamsSpec
from ablate.nn.pack import Packed, Residual, Sublayer, constant, identity, zeros
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext

_EPS = 1e-6
_SCALE = 0.01


class HyperConnectionsSpec(ConnectedStreamsSpec):
    """Several streams, with trained weights between them and each sub-layer."""

    source = "arXiv:2409.19606 eqs 1 to 14"

    kind: Literal["hyper_connections"] = "hyper_connections"
    streams: int = Field(default=4, ge=1, le=64)
    """n, number of streams."""
    dynamic: bool = True
    """Whether the weights depend on the streams."""

    def trained(self) -> dict[str, int]:
        """The weights that are trained, and the number of outputs of each."""
        switched = {"enter": (self.pre_map, 1), "mix": (self.res_map, self.streams), "leave": (self.post_map, 1)}
        return {name: outputs for name, (on, outputs) in switched.items() if on}

    def build(self, context: LayerContext) -> HyperConnections:
        return HyperConnections(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        n, width, count = self.streams, context.width, len(context.sublayers)
        outputs = sum(self.trained().values())
        scales = (self.pre_map or self.res_map) + self.post_map
        own = n * outputs + self.dynamic * (width * outputs + scales)
        mixed = length * n * width * outputs
        summed = length * width * (n * (2 + n * self.res_map) - 1)
        each = Cost(
            parameters=own,
            multiplications=mixed,
            additions=summed,
            divisions=length * width * (not self.pre_map),
            activations=length * (n * bool(outputs) + self.post_map) * width,
        )
        if self.dynamic:
            weights = length * n * outputs
            norm = length * n * width * bool(outputs)
            each += Cost(
                multiplications=2 * (weights * width + norm),
                additions=2 * weights * width,
                exponentiations=weights,
                divisions=weights + length * n * bool(outputs),
                activations=2 * weights + 2 * norm,
            )
        last = context.layer == context.depth - 1
        return each * count + Cost(additions=last * length * (n - 1) * width)

    def label(self) -> str:
        return f"{self.streams} streams, {'dynamic' if self.dynamic else 'static'}"


class HyperConnections(Residual):
    """The module of `HyperConnectionsSpec`; the stream is [K, B, T, n, D]."""

    def __init__(self, spec: HyperConnectionsSpec, context: LayerContext) -> None:
        super().__init__()
        self.streams = spec.streams
        first = context.layer * len(context.sublayers)
        self.connections = nn.ModuleDict(
            {part: Connection(spec, context, first + index) for index, part in enumerate(context.sublayers)}
        )

    def open(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, T, n, D]."""
        return x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, x.shape[-1])

    def enter(self, stream: Tensor, part: Sublayer) -> Tensor:
        """[K, B, T, n, D] to [K, B, T, D]."""
        weights = self._of(part).weights(stream, "enter")
        return stream.mean(-2) if weights is None else (weights * stream).sum(-2)

    def join(self, stream: Tensor, branch: Tensor, skip: Callable[[Tensor], Tensor], part: Sublayer) -> Tensor:
        mix, leave = (self._of(part).weights(stream, name) for name in ("mix", "leave"))
        added = branch.unsqueeze(-2) if leave is None else leave * branch.unsqueeze(-2)
        return (stream if mix is None else mix.mT @ stream) + added

    def close(self, stream: Tensor) -> Tensor:
        """[K, B, T, n, D] to [K, B, T, D]."""
        return stream.sum(-2)

    def _of(self, part: Sublayer) -> Connection:
        return cast(Connection, self.connections[part])


class Connection(Packed):
    """The weights of one sub-layer: `enter` α [n, 1], `mix` α [n, n] and `leave` β [n, 1]."""

    alpha_scale: Tensor
    beta_scale: Tensor

    def __init__(self, spec: HyperConnectionsSpec, context: LayerContext, index: int) -> None:
        super().__init__(context.pack)
        n, width = spec.streams, context.width

        def one_stream(values: Tensor, generator: Generator) -> Tensor:
            return values.zero_().index_fill_(0, torch.tensor([index % n]), 1.0)

        self.dynamic = spec.dynamic
        starts = {"enter": one_stream, "mix": identity, "leave": constant(1.0)}
        self.trained = spec.trained()
        for name, outputs in self.trained.items():
            self.declare(name, (n, outputs), starts[name])
            if spec.dynamic:
                self.declare(f"{name}_map", (width, outputs), zeros)
        if spec.dynamic and (spec.pre_map or spec.res_map):
            self.declare("alpha_scale", (1,), constant(_SCALE))
        if spec.dynamic and spec.post_map:
            self.declare("beta_scale", (1,), constant(_SCALE))

    def weights(self, stream: Tensor, name: str) -> Tensor | None:
        """The streams [K, B, T, n, D] to the weights `enter`, `mix` or `leave`, [K, B, T, n, 1 or n]; None if off."""
        if name not in self.trained:
            return None
        static: Tensor = getattr(self, name)[:, None, None]
        if not self.dynamic:
            return static
        scale: Tensor = self.beta_scale if name == "leave" else self.alpha_scale
        made = F.rms_norm(stream, stream.shape[-1:], eps=_EPS) @ getattr(self, f"{name}_map")[:, None, None]
        weights: Tensor = static + scale.view(-1, 1, 1, 1, 1) * made.tanh()
        return weights

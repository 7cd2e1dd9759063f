"""Several streams instead of one, with weights between them and each sub-layer.

`hyper_connections`: n streams R [n, D], with trained weights.

[x | R'] = Aᵀ R, A [n, 1 + n]; y = f(x); R ← R' + β ⊗ y. A = A₀ + s_α·tanh(N(R) W_α), β = β₀ + s_β·tanh(N(R) w_β), where
N is an RMSNorm without gain, W_α and w_β start at 0 and s at 0.01; without `dynamic` A = A₀ and β = β₀. A₀ starts as
[e | I], where e is the unit vector l mod n in sub-layer l, and β₀ as 1, so that the model starts as one with one
stream. All streams start as the embedding; at the end they are summed. The first column of A is H_pre, the others are
H_res, and β is H_post.

- Hyper-Connections (arXiv:2409.19606), eqs 1 to 14; https://arxiv.org/abs/2409.19606
- https://github.com/lucidrains/hyper-connections at 4775103, run beside a model in double precision, with ε = 0:
  logits differ by 3e-14, gradients by 1e-13 of their size

`manifold_hyper_connections`: a doubly stochastic mixing matrix (mHC), so that no stream grows from layer to layer.

z = F·N(vec R), where N is an RMSNorm of all streams together without gain, and F is [(2n + n²), nD]. The weights of the
streams that a sub-layer reads are pre = σ(s₀z_pre + b) + ε, those of its output for each stream
post = 2σ(s₁z_post + b). C = Sinkhorn(s₂z_comb + b) mixes the streams: a softmax over the last axis plus ε, then columns
and rows divided by their sums alternately. x = Σ pre_i R_i; R_k ← post_k·f(x) + Σ_j C_jk R_j. At the end of the model
the streams are summed with weights σ(s·F'N(vec R) + b') + ε. A map that is switched off is 1/n for pre, 1 for post and
the identity for C (H_res).

- mHC: Manifold-Constrained Hyper-Connections (arXiv:2512.24880), eqs 7 to 9; https://arxiv.org/abs/2512.24880
- transformers 5.23, models/deepseek_v4

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
from ablate.nn.pack import Packed, Residual, Sublayer, constant, identity, normal, zeros
from ablate.spec.cost import Cost, linear_cost
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
        summed = length * width * (n * (2 + (n - 1) * self.res_map) - 1)
        reads_streams = self.pre_map or self.res_map or (self.dynamic and self.post_map)
        each = Cost(
            parameters=own,
            multiplications=mixed,
            additions=summed,
            divisions=length * width * (not self.pre_map),
            activations=length * (n * reads_streams + self.post_map) * width,
        )
        if self.dynamic:
            # Each map norms the streams, and multiplies them with its weights.
            weights, norms = length * n * outputs, length * n * len(self.trained())
            each += Cost(
                multiplications=weights * (width + 1) + 2 * norms * width,
                additions=weights * (width + 2) + norms * width,
                exponentiations=weights,
                divisions=weights + 2 * norms,
                activations=2 * weights + norms * (width + 1),
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


_NORM_EPS = 1e-6


class ManifoldHyperConnectionsSpec(ConnectedStreamsSpec):
    """Several streams, mixed by doubly stochastic matrices."""

    source = "arXiv:2512.24880 eqs 7 to 9"

    kind: Literal["manifold_hyper_connections"] = "manifold_hyper_connections"
    streams: int = Field(default=4, ge=2, le=64)
    """n, number of streams."""
    iterations: int = Field(default=20, ge=1, le=1000)
    """Number of times that the columns of the mixing matrix are divided by their sums; its rows, one time less."""
    scale: float = Field(default=0.01, gt=0)
    """Initial value of s; 1 in transformers."""
    eps: float = Field(default=1e-6, gt=0)
    """ε."""

    def build(self, context: LayerContext) -> ManifoldHyperConnections:
        return ManifoldHyperConnections(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """The norm of the streams is computed once to read and twice to write."""
        n, width = self.streams, context.width
        inputs, rounds = n * width, (2 * self.iterations - 1) * n * n * self.res_map
        gates, maps = self.pre_map + self.post_map, self.pre_map + self.post_map + self.res_map
        weights = n * (gates + n * self.res_map)
        each = linear_cost(length, inputs, weights) + _norm_cost(length, inputs) * maps if maps else Cost()
        each += Cost(
            parameters=weights + maps,
            multiplications=length * (weights + inputs * (gates + n * self.res_map)),
            # Bias, σ with ε or softmax with ε, Sinkhorn's sums; then sums over streams and with the output.
            additions=length * (2 * weights + n * (self.pre_map + (n - 1) * self.res_map) + rounds)
            + length * (inputs * (2 + (n - 1) * self.res_map) - width),
            divisions=length * (weights + width * (not self.pre_map) + rounds),
            exponentiations=length * weights,
            activations=length * (width * self.post_map + 3 * weights + rounds + rounds // n),
        )
        total = each * len(context.sublayers)
        if context.layer == context.depth - 1 and not self.pre_map:
            total += Cost(additions=length * (inputs - width), divisions=length * width)
        elif context.layer == context.depth - 1:
            total += linear_cost(length, inputs, n) + _norm_cost(length, inputs)
            ends = Cost(multiplications=inputs + n, additions=inputs, exponentiations=n, divisions=n, activations=2 * n)
            total += ends * length + Cost(parameters=n + 1)
        return total

    def label(self) -> str:
        return f"{self.streams} streams, doubly stochastic"


def _norm_cost(length: int, inputs: int) -> Cost:
    """Cost of an RMSNorm of all streams together, without gain."""
    elements = length * inputs
    return Cost(multiplications=elements, additions=elements, divisions=elements, activations=elements)


class ManifoldHyperConnections(Residual):
    """The module of `ManifoldHyperConnectionsSpec`; the stream is [K, B, T, n, D]."""

    def __init__(self, spec: ManifoldHyperConnectionsSpec, context: LayerContext) -> None:
        super().__init__()
        self.spec = spec
        n = spec.streams
        switched = (spec.pre_map, "pre", n), (spec.post_map, "post", n), (spec.res_map, "comb", n * n)
        sorts = [(name, outputs) for on, name, outputs in switched if on]
        made: dict[str, nn.Module] = {part: StreamWeights(spec, context, *sorts) for part in context.sublayers}
        self.connections = nn.ModuleDict(made)
        last = context.layer == context.depth - 1 and spec.pre_map
        self.end = StreamWeights(spec, context, ("pre", n)) if last else None

    def open(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, T, n, D]."""
        return x.unsqueeze(-2).expand(*x.shape[:-1], self.spec.streams, x.shape[-1])

    def enter(self, stream: Tensor, part: Sublayer) -> Tensor:
        """[K, B, T, n, D] to [K, B, T, D]."""
        return self._summed(stream, self._of(part))

    def join(self, stream: Tensor, branch: Tensor, skip: Callable[[Tensor], Tensor], part: Sublayer) -> Tensor:
        n, weights, added = self.spec.streams, self._of(part), branch.unsqueeze(-2)
        if self.spec.post_map:
            post = 2 * weights.logits(stream, "post").sigmoid()
            added = post.unsqueeze(-1).to(stream.dtype) * added
        if not self.spec.res_map:
            return added + stream
        comb_logits = weights.logits(stream, "comb")
        comb = sinkhorn(comb_logits.view(*comb_logits.shape[:-1], n, n), self.spec.iterations, self.spec.eps)
        return added + comb.to(stream.dtype).mT @ stream

    def close(self, stream: Tensor) -> Tensor:
        """[K, B, T, n, D] to [K, B, T, D]."""
        return self._summed(stream, self.end)

    def _summed(self, stream: Tensor, weights: StreamWeights | None) -> Tensor:
        if weights is None or not self.spec.pre_map:
            return stream.mean(-2)
        pre = weights.logits(stream, "pre").sigmoid() + self.spec.eps
        return (pre.unsqueeze(-1).to(stream.dtype) * stream).sum(-2)

    def _of(self, part: Sublayer) -> StreamWeights:
        return cast(StreamWeights, self.connections[part])


class StreamWeights(Packed):
    """s·F·N(vec R) + b for each name of weights, in single precision at least."""

    def __init__(self, spec: ManifoldHyperConnectionsSpec, context: LayerContext, *sorts: tuple[str, int]) -> None:
        super().__init__(context.pack)
        for name, outputs in sorts:
            self.declare(f"{name}_map", (spec.streams * context.width, outputs), normal(context.init_std))
            self.declare(f"{name}_bias", (outputs,), zeros)
            self.declare(f"{name}_scale", (1,), constant(spec.scale))

    def logits(self, stream: Tensor, name: str) -> Tensor:
        """The streams [K, B, T, n, D] to [K, B, T, outputs]."""
        weight, bias, scale = (getattr(self, f"{name}_{part}") for part in ("map", "bias", "scale"))
        with torch.autocast(stream.device.type, enabled=False):
            flat = stream.flatten(-2)
            flat = flat.float() if flat.itemsize < 4 else flat
            made = F.rms_norm(flat, flat.shape[-1:], eps=_NORM_EPS) @ weight[:, None]
            logits: Tensor = made * scale.view(-1, 1, 1, 1) + bias[:, None, None]
            return logits


def sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """Sinkhorn's iterations over matrices [..., n, n]; columns then sum to 1, and rows nearly."""
    comb = logits.softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb

"""The four projections of most attention kinds, and attention by feature maps, which is linear in time and memory.

The projections are those to queries, keys and values of H heads, and that to the output. Multi-head φ-attention for any
feature map φ is y_t = φ(q_t)·Σ_s φ(k_s)ᵀ·v_s / (φ(q_t)·Σ_s φ(k_s)ᵀ). Bidirectional: s runs over all real tokens;
causal: over real s ≤ t (prefix sums). The positions of a layer are applied to queries and keys before φ.

Projections of values and outputs are dense, identity, or reparametrised (arXiv:2311.01906, eq. 6).

Shapes: K pack, B batch, T tokens, D width, H heads, d_h = D/H head width, m features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from ablate.nn.kernels import linear_attention
from ablate.nn.kernels.product import product
from ablate.nn.pack.convolution import ConvolutionSlot, convolved_together
from ablate.nn.pack.initial import Packed, identity, orthogonal
from ablate.nn.pack.layer_parts import State
from ablate.nn.pack.layers import Gain, Linear, linear
from ablate.nn.pack.masks import numbers_documents, same_document
from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded, refusal
from ablate.spec.block import Gain as GainField
from ablate.spec.block import GainSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import Applied, LayerContext, Role, zeros
from ablate.spec.sublayers import MixerSpec

PROJECTIONS = Family("projection")


class ProjectionSpec(Kinded):
    """A map of the width onto itself or onto another width."""

    family = PROJECTIONS

    @abstractmethod
    def build(self, context: LayerContext, inputs: int, outputs: int, role: Role) -> nn.Module:
        """The module, [K, ..., inputs] to [K, ..., outputs], with the initial values for its role."""

    @abstractmethod
    def label(self, symbol: str) -> str:
        """The label of the map `symbol` in drawings; empty if there is none."""

    @abstractmethod
    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        """Cost of the forward pass over `tokens` rows."""


class DenseSpec(ProjectionSpec):
    """y = x·W + b, W trainable."""

    value_fields = frozenset({"init"})

    kind: Literal["dense"] = "dense"
    init: Literal["normal", "orthogonal"] = "normal"
    """Initial values: `normal`, by the model's initialiser, or `orthogonal`, which blocks without skips need."""
    bias: bool = False
    """Whether there is a b."""

    def build(self, context: LayerContext, inputs: int, outputs: int, role: Role) -> Linear:
        initial = orthogonal if self.init == "orthogonal" else context.initial(role, inputs, outputs)
        initial_bias = context.initialiser.initial_bias(inputs)
        return Linear(context.pack, inputs, outputs, bias=self.bias, initial=initial, initial_bias=initial_bias)

    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        return linear_cost(tokens, inputs, outputs, bias=self.bias)

    def label(self, symbol: str) -> str:
        return f"{symbol} + b" if self.bias else symbol


class IdentitySpec(ProjectionSpec):
    """y = x: the projection is removed."""

    kind: Literal["identity"] = "identity"

    def build(self, context: LayerContext, inputs: int, outputs: int, role: Role) -> nn.Identity:
        if inputs != outputs:
            raise refusal((), "identity", f"an identity keeps the width, and {inputs} is not {outputs}", "Use `dense`.")
        return nn.Identity()

    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        return Cost()

    def label(self, symbol: str) -> str:
        return ""


class ReparametrisedSpec(ProjectionSpec):
    """y = x·(α·W_init + β·ΔW): W_init fixed, ΔW trainable from 0."""

    value_fields = frozenset({"init"})

    kind: Literal["reparametrised"] = "reparametrised"
    init: Literal["orthogonal", "identity"] = "orthogonal"
    """W_init."""
    alpha: GainField = GainSpec()
    """Gain of W_init."""
    beta: GainField = GainSpec()
    """Gain of ΔW."""

    def build(self, context: LayerContext, inputs: int, outputs: int, role: Role) -> Reparametrised:
        return Reparametrised(self, context, inputs, outputs)

    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        """The matrix α·W_init + β·ΔW is computed once in each pass, not for each token or sequence."""
        weights = inputs * outputs
        gains = self.alpha.trainable + self.beta.trainable
        made = Cost(parameters=gains, multiplications=2 * weights, additions=weights)
        return linear_cost(tokens, inputs, outputs) + made

    def label(self, symbol: str) -> str:
        return f"{symbol} = α{'I' if self.init == 'identity' else 'W₀'} + βΔW"


Projection = Annotated[ProjectionSpec, OneOf]


class Reparametrised(Packed):
    """W = α·W_init + β·ΔW (arXiv:2311.01906, eq. 6)."""

    fixed: Tensor
    delta: Tensor

    def __init__(self, spec: ReparametrisedSpec, context: LayerContext, inputs: int, outputs: int) -> None:
        super().__init__(context.pack)
        initial = orthogonal if spec.init == "orthogonal" else identity
        self.declare("fixed", (inputs, outputs), initial, trainable=False)
        self.declare("delta", (inputs, outputs), zeros, decay=True)
        self.alpha, self.beta = Gain.of(spec.alpha, context), Gain.of(spec.beta, context)

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., in] to [K, ..., out]."""
        weight = self.alpha(self.fixed) + self.beta(self.delta)
        return product(x.flatten(1, -2), weight).view(*x.shape[:-1], weight.shape[-1])


class AttentionProjections(nn.Module):
    """Base of mixers with four projections without biases; a subclass adds how values are mixed."""

    def __init__(self, context: LayerContext) -> None:
        super().__init__()
        d, inner = context.width, context.inner_width
        self.heads = context.heads
        self.causal = context.causal
        self.query = linear(context, d, inner)
        self.key = linear(context, d, inner)
        self.value = linear(context, d, inner)
        self.output = linear(context, inner, d, role="output")
        self.positions = build_positions(context, "query_key")
        self.convolution = ConvolutionSlot.of(context, "on_qkv", 3 * inner)

    def project(self, x: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """x [K, B, T, D], from position `first` on, to queries, keys and values [K, B, H, T, d_h]."""
        made = convolved_together(self.convolution, self.query(x), self.key(x), self.value(x))
        q, k, v = (split_heads(part, self.heads) for part in made)
        return self.add_positions(q, first), self.add_positions(k, first), v

    def add_positions(self, x: Tensor, first: int = 0) -> Tensor:
        """Queries or keys [K, B, H, T, d_h] with the layer's positions, if it has any."""
        return x if self.positions is None else self.positions(x, first)

    def project_folded(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `project`, pack and batch in one axis: [K·B, H, T, d_h]."""
        q, k, v = (part.flatten(0, 1) for part in self.project(x))
        return q, k, v

    def project_output(self, y: Tensor) -> Tensor:
        """The output projection over all heads: [K, B, H, T, d_h] or [K·B, H, T, d_h] to [K, B, T, D]."""
        mixed: Tensor = self.output(join_heads(y.reshape(self.query.pack, -1, *y.shape[-3:])))
        return mixed


def build_positions(context: LayerContext, applied: Applied) -> nn.Module | None:
    """The module of a layer's positions, if they are applied there."""
    positions = context.positions
    return positions.build(context) if positions is not None and positions.applied == applied else None


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[K, B, T, H·d] to [K, B, H, T, d]."""
    return x.reshape(*x.shape[:-1], heads, -1).transpose(2, 3)


def join_heads(y: Tensor) -> Tensor:
    """[K, B, H, T, d] to [K, B, T, H·d]."""
    return y.transpose(2, 3).flatten(3)


def projections_cost(context: LayerContext, length: int, count: int = 4) -> Cost:
    """Cost of the projections to queries, keys and values, which keep one input, to the output, and of positions."""
    width, inner = context.width, context.inner_width
    into = linear_cost(length, width, inner) * (count - 1)
    cost = replace(into + linear_cost(length, inner, width), activations=length * (width + inner))
    return (
        cost if context.positions is None else cost + context.positions.cost(context, length, key_heads=context.heads)
    )


def visible_tokens(x: Tensor, padding: Tensor | None, *, causal: bool, window: int | None) -> Tensor | None:
    """Which tokens each token sees, [K·B, 1, T, T]; None if all tokens, or in causal attention all earlier ones.

    A token always sees itself, so that no row is empty.

    Args:
        x: [K, B, T, D].
        padding: [K, B, T], True where a token is real; or numbers of documents, which do not see one another.
        causal: Whether the future is hidden.
        window: Tokens seen to each side, the own one counted; None for all.
    """
    if padding is None and window is None:
        return None
    length = x.shape[2]
    near = torch.ones(length, length, dtype=torch.bool, device=x.device)
    if window is not None:
        near = near.triu(1 - window).tril(window - 1)
    if causal:
        near = near.tril()
    if padding is None:
        return near.expand(x.shape[0] * x.shape[1], 1, length, length)
    if numbers_documents(padding):
        return (same_document(padding) & near).flatten(0, 1)
    own = torch.eye(length, dtype=torch.bool, device=x.device)
    return ((padding[:, :, None, None, :] | own) & near).flatten(0, 1)


def visible_pairs(context: LayerContext, length: int) -> int:
    """Entries of the attention matrix of one head that are not hidden, in a sequence of `length` tokens."""
    reach = length if context.window is None else min(context.window, length)
    before = reach * (reach + 1) // 2 + (length - reach) * reach  # the token itself and those before it
    return before if context.causal else 2 * before - length


class FeatureMap(Packed, ABC):
    """φ, the same for queries and keys.

    Attributes:
        logarithmic: Whether `forward` returns log φ of a positive φ; the attention then never overflows.
    """

    logarithmic: bool

    @abstractmethod
    def forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Queries and keys, each [K, B, H, T, d_h], to the features of each, [K, B, H, T, m]."""


class FeatureAttention(AttentionProjections):
    """φ-attention with four projections without biases."""

    def __init__(self, context: LayerContext, features: FeatureMap) -> None:
        super().__init__(context)
        self.features = features

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        q, k, v = self._features(x)
        attend = linear_attention.attend_from_logs if self.features.logarithmic else linear_attention.attend
        real = None if padding is None else padding.unsqueeze(2)  # [K, B, 1, T]
        return self.project_output(attend(q, k, v, is_causal=self.causal, real=real))

    def step(self, x: Tensor, position: int, state: State) -> tuple[Tensor, State]:
        """The state: Σ φ(k)ᵀ·v with Σ φ(k) as its last column, and the largest logarithm so far."""
        q, k, v = self._features(x, position)
        y, state = linear_attention.recur_attend(q, k, v, state, logarithmic=self.features.logarithmic)
        return self.project_output(y), state

    def _features(self, x: Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Features of queries and of keys [K, B, H, T, m] (or their logarithms), and values [K, B, H, T, d_h]."""
        q, k, v = self.project(x, first)
        features_q, features_k = self.features(q, k)
        return features_q, features_k, v


class FeatureMixerSpec(MixerSpec):
    """Base of kinds with φ-attention. A final subclass adds its feature map, the number of features and their cost."""

    uses_heads = True
    relative_positions = frozenset({"query_key"})
    any_head_width = True

    def convolved_width(self, context: LayerContext) -> int:
        return 3 * context.inner_width

    @abstractmethod
    def feature_map(self, context: LayerContext) -> FeatureMap:
        """The module φ."""

    @abstractmethod
    def feature_count(self, context: LayerContext) -> int:
        """m, features of a query or key."""

    @abstractmethod
    def feature_cost(self, context: LayerContext) -> Cost:
        """Cost of φ for one query or key; its activations do not include the result."""

    @property
    def logarithmic(self) -> bool:
        """As `FeatureMap.logarithmic`."""
        return False

    def cost_once(self, context: LayerContext) -> Cost:
        """Cost of what a forward pass computes once for all queries and keys, such as random directions."""
        return Cost()

    def build(self, context: LayerContext) -> FeatureAttention:
        return FeatureAttention(context, self.feature_map(context))

    def cache(self, context: LayerContext, length: int) -> int:
        """Σ φ(k)ᵀ·v and Σ φ(k) of all heads, and the largest logarithm of each."""
        return self.feature_count(context) * (context.inner_width + context.heads) + context.heads * self.logarithmic

    def cost(self, context: LayerContext, length: int) -> Cost:
        """Cost of the four projections, of φ and of the sums."""
        vectors, d_h, m = length * context.heads, context.head_width, self.feature_count(context)
        # A token adds kᵀ·v and k to the state and reads both with q.
        sums = Cost(
            multiplications=vectors * m * (2 * d_h + 1),
            additions=vectors * (m * (d_h + 1) + (m - 1) * (d_h + 1)),
            divisions=vectors * d_h,
            activations=vectors * (d_h + 2),
        )
        if not context.causal:
            in_product = length * (2 * m + d_h + 1)
        else:
            decay: Literal["head", "none"] = "head" if self.logarithmic else "none"
            in_product = linear_attention.kept_activations(length, m, d_h + 1, decay)
        sums += Cost(activations=context.heads * in_product)
        features = self.feature_cost(context) * (2 * vectors) + self.cost_once(context)
        return projections_cost(context, length) + features + sums

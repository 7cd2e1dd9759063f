"""Parts of attention that its settings switch: shaping, changes of the logits, and terms added to the values.

- Shaping, terms added to and subtracted from the attention matrix: Simplifying Transformer Blocks (arXiv:2311.01906),
  eqs 4 and 5; https://arxiv.org/abs/2311.01906
- Soft cap, a ← c·tanh(a/c), before the mask: Gemma 2 (arXiv:2408.00118), section 2; https://arxiv.org/abs/2408.00118
- Sinks, p_ij = e^(a_ij)/(Σ_j e^(a_ij) + e^(s_h)), s_h trained: gpt-oss (arXiv:2508.10925)
- Values of an earlier layer, v_l ← λ₁·v_first + λ₂·v_l: Value Residual Learning, ResFormer (arXiv:2410.17897), eq. 5;
  https://arxiv.org/abs/2410.17897; and https://github.com/KellerJordan/modded-nanogpt, records of 2024-11-06
  (v ← (1 - λ)·v + λ·v_first, λ trained) and of 2024-12-04 (value embeddings, v ← (1 - λ)·v + λ·E[token])

Shapes: K pack, B batch, T tokens, D width, V vocabulary, H heads, G heads of values, d_h head width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor, nn

from ablate.nn.pack import Embedding, Gain, Packed, normal, zeros
from ablate.spec.base import Spec, refusal
from ablate.spec.block import Gain as GainField
from ablate.spec.block import GainSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext

_STARTS: dict[str, dict[str, float]] = {
    "none": {},
    "value_skipinit": {"alpha": 1.0, "beta": 0.0},
    "shaped": {"alpha": 1.0, "beta": 1.0, "gamma": 1.0},
}
"""Kind of shaping to its gains and their values at the start of training."""


class ShapingSpec(Spec):
    """Terms added to and subtracted from the attention matrix; one gain of each term for each head.

    `value_skipinit`: A ← α·I + β·A (eq. 4), α = 1 and β = 0 at the start.
    `shaped`: A ← α·I + β·A - γ·C (eq. 5), all 1 at the start, and W_Q = 0 so that A = C there: C is the value that A
    takes when all logits are 0 (uniform over the visible tokens), and the map is exactly the identity.
    """

    kind: Literal["none", "value_skipinit", "shaped"] = "none"
    """The terms: none, those of eq. 4, or those of eq. 5."""
    alpha: GainField | None = None
    """Gain of the identity; trainable from 1 unless set."""
    beta: GainField | None = None
    """Gain of the attention matrix; trainable, from 0 (`value_skipinit`) or 1 (`shaped`) unless set."""
    gamma: GainField | None = None
    """Gain of the centring matrix C (`shaped` only); trainable from 1 unless set."""

    @field_validator("alpha", "beta", "gamma")
    @classmethod
    def _default_is_none(cls, gain: GainSpec | None, info: ValidationInfo) -> GainSpec | None:
        # A gain that is written at its default has the hash of one that is left out.
        start = _STARTS.get(info.data.get("kind", ""), {}).get(info.field_name or "")
        return None if start is not None and gain == _trainable_from(start) else gain

    @model_validator(mode="after")
    def _gains_fit(self) -> Self:
        for name in ("alpha", "beta", "gamma"):
            gain = getattr(self, name)
            if gain is not None and name not in _STARTS[self.kind]:
                raise refusal((name,), gain, f"shaping `{self.kind}` has no {name}", f"Leave `{name}` out.")
        return self

    @property
    def query_start(self) -> str:
        """The `query_init` of this shaping, unless the mixer sets one."""
        return "zero" if self.kind == "shaped" else "normal"

    def gains(self) -> dict[str, GainSpec]:
        """The gains of this shaping by name."""
        return {name: getattr(self, name) or _trainable_from(start) for name, start in _STARTS[self.kind].items()}


def _trainable_from(start: float) -> GainSpec:
    return GainSpec(init=start, trainable=True)


class LogitsSpec(Spec):
    """Changes of the logits. Any of them materialises the whole attention matrix."""

    soft_cap: float | None = Field(default=None, gt=0)
    """c: logits are bounded by it, a ← c·tanh(a/c), before biases and masks."""
    sinks: bool = False
    """Whether each head has a trained logit without a token, so that its weights may sum to less than 1."""
    precision: Literal["inputs", "float32"] = "inputs"
    """Precision of logits and softmax: that of the queries (fused kernels still sum in single precision), or single
    precision at least."""

    @property
    def plain(self) -> bool:
        """Whether nothing is changed, so that a fused kernel may be used."""
        return self.soft_cap is None and not self.sinks and self.precision == "inputs"

    def cost(self, length: int, heads: int, pairs: int) -> Cost:
        """Cost over one sequence whose heads make `pairs` logits each."""
        capped, sinks = pairs * heads * (self.soft_cap is not None), length * heads * self.sinks
        return Cost(
            parameters=heads * self.sinks,
            multiplications=capped,
            additions=sinks,
            divisions=capped,
            exponentiations=capped + sinks,
        )

    def label(self, products: str) -> str:
        """The argument of softmax in the drawing of a block."""
        if self.soft_cap is not None:
            products = f"cap {self.soft_cap:g}: {products}"
        return f"{products}, sink" if self.sinks else products


class Sinks(Packed):
    """A trained logit for each head without a value; its initial value is N(0, std²), as in gpt-oss."""

    logit: Tensor

    def __init__(self, pack: int, heads: int, std: float) -> None:
        super().__init__(pack)
        self.declare("logit", (heads,), normal(std))

    def forward(self, logits: Tensor) -> Tensor:
        """Logits [K, B, H, T, S] to weights of the same shape, whose rows sum to less than 1."""
        sink = self.logit[:, None, :, None, None].expand(*logits.shape[:-1], 1).to(logits.dtype)
        return torch.cat([logits, sink], -1).softmax(-1)[..., :-1]


class ValueResidualSpec(Spec):
    """v ← λ₂·v + λ₁·v_first, where v_first are the values of an earlier layer, before terms are added to them."""

    from_layer: int = Field(default=0, ge=0)
    """The layer that publishes its values; every later layer with this setting reads them."""
    first: GainField = GainSpec(init=0.5, trainable=True)
    """λ₁, gain of the values of the earlier layer."""
    own: GainField | None = None
    """λ₂, gain of the layer's own values; unless set, 1 - λ₁."""

    def cost(self, context: LayerContext, length: int, width: int) -> Cost:
        """Cost over one sequence of a layer that reads."""
        elements = length * width
        trained = self.first.trainable + (self.own is not None and self.own.trainable)
        return Cost(
            parameters=trained,
            multiplications=2 * elements,
            additions=elements,
            # The inputs of trained gains: the own values; the values read are kept once for all layers.
            activations=elements * (self.first.trainable if self.own is None else self.own.trainable),
        )


class ValueResidual(nn.Module):
    """The module of `ValueResidualSpec`, in a layer that reads."""

    def __init__(self, spec: ValueResidualSpec, context: LayerContext) -> None:
        super().__init__()
        self.first = Gain.of(spec.first, context)
        self.own = None if spec.own is None else Gain.of(spec.own, context)

    def forward(self, v: Tensor, first: Tensor) -> Tensor:
        """Values and those of the earlier layer, [K, B, T, G·d_h] each, to the same."""
        mixed: Tensor = v + self.first(first - v) if self.own is None else self.own(v) + self.first(first)
        return mixed


class ValueEmbeddingSpec(Spec):
    """v ← λ₂·v + λ₁·E[token], where E is a trained table with a vector for each token id."""

    value_fields = frozenset({"start"})

    table: GainField = GainSpec(init=0.5, trainable=True)
    """λ₁, gain of the table."""
    own: GainField | None = None
    """λ₂, gain of the layer's own values; unless set, 1 - λ₁."""
    start: Literal["normal", "zero"] = "normal"
    """Initial value of E: as the embedding of tokens, or 0."""

    def cost(self, context: LayerContext, length: int, width: int) -> Cost:
        """Cost over one sequence; a row of the table is read for each token."""
        mixing = ValueResidualSpec(first=self.table, own=self.own).cost(context, length, width)
        return mixing + Cost(parameters=context.vocabulary * width, activations=length * width * self._keeps_rows)

    @property
    def _keeps_rows(self) -> bool:
        """Whether the rows that are read are kept for the gradient of a trained gain."""
        return self.own is not None and self.table.trainable


class ValueEmbedding(nn.Module):
    """The module of `ValueEmbeddingSpec`."""

    def __init__(self, spec: ValueEmbeddingSpec, context: LayerContext, width: int) -> None:
        super().__init__()
        shape = (context.vocabulary, width)
        initial = zeros if spec.start == "zero" else context.initial("embedding", *shape)
        self.table = Embedding(context.pack, *shape, initial=initial)
        self.mixed = ValueResidual(ValueResidualSpec(first=spec.table, own=spec.own), context)

    def forward(self, v: Tensor, tokens: Tensor) -> Tensor:
        """Values [K, B, T, G·d_h] and token ids [K, B, T] to values."""
        mixed: Tensor = self.mixed(v, self.table(tokens))
        return mixed

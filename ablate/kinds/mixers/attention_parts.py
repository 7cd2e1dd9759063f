"""Parts of attention that its settings switch: shaping, changes of the logits, terms added to the values, forgetting.

- Shaping, terms added to and subtracted from the attention matrix: Simplifying Transformer Blocks (arXiv:2311.01906),
  eqs 4 and 5; https://arxiv.org/abs/2311.01906
- Soft cap, a ← c·tanh(a/c), before the mask: Gemma 2 (arXiv:2408.00118), section 2; https://arxiv.org/abs/2408.00118
- Sinks, p_ij = e^(a_ij)/(Σ_j e^(a_ij) + e^(s_h)), s_h trained: gpt-oss (arXiv:2508.10925)
- Values of an earlier layer, v_l ← λ₁·v_first + λ₂·v_l: Value Residual Learning, ResFormer (arXiv:2410.17897), eq. 5;
  https://arxiv.org/abs/2410.17897; and https://github.com/KellerJordan/modded-nanogpt, records of 2024-11-06
  (v ← (1 - λ)·v + λ·v_first, λ trained) and of 2024-12-04 (value embeddings, v ← (1 - λ)·v + λ·E[token])

Forgetting, and the shift of keys and values: a_ij + c_i - c_j are the logits, c_i = Σ_{l≤i} log f_l, f_l = σ(W_f·x_l +
b) one number for each head, so that a token counts less the more has been forgotten since. k_t ← α_t·k_{t-1} + (1 -
α_t)·k_t and so values, α_t = σ(W_α·x_t) for each head, before the norm of keys. Padding forgets nothing, and counts as
0 where it is the token before.

- Forgetting Transformer (arXiv:2503.02130), eqs 5 to 9 and section 3.3 (the shift); https://arxiv.org/abs/2503.02130
- https://github.com/zhixuan-lin/forgetting-transformer, whose kernels need a GPU: b = -log(e^(1/T) - 1), T log-spaced
- https://github.com/fla-org/flash-linear-attention (`ops/forgetting_attn/naive.py`), which was run beside it in double
  precision, also with grouped heads and with a window: outputs and gradients of q, k, v and log f differ by 4e-14

Shapes: K pack, B batch, T tokens, D width, V vocabulary, H heads, G heads of values, d_h head width.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Generator, Tensor, nn

from ablate.nn.pack import (
    Embedding,
    Gain,
    Packed,
    linear,
    normal,
    numbers_documents,
    positions_in_documents,
    split_heads,
    zeros,
)
from ablate.spec.base import Spec, refusal
from ablate.spec.block import Gain as GainField
from ablate.spec.block import GainSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import Initial, LayerContext

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


Shifted = Literal["key", "value"]


class ForgetSpec(Spec):
    """How fast each head forgets. A bare word is the kind."""

    value_fields = frozenset({"shortest", "longest"})

    kind: Literal["none", "of_input", "trained", "fixed"] = "none"
    """`of_input`: f = σ(W_f·x + b); `trained`: σ(b); `fixed`: σ(b), not trained."""
    shortest: float | None = Field(default=None, gt=0)
    """Tokens T after which the first head has forgotten a share of 1 - 1/e, by b before the first step; the T of the
    other heads are log-spaced up to `longest`. Unless set, b is 0 there."""
    longest: float | None = Field(default=None, gt=0)
    """T of the last head."""

    @model_validator(mode="after")
    def _has_both_ends(self) -> Self:
        if self.kind == "none" and self.canonical() != {"kind": "none"}:
            raise refusal(
                ("kind",), self.kind, "the other settings need a gate", "Set `kind: of_input`, or leave it out."
            )
        if (self.shortest is None) != (self.longest is None):
            name = "longest" if self.longest is None else "shortest"
            raise refusal((name,), None, "the times of the first and the last head belong together", f"Set `{name}`.")
        if self.kind == "fixed" and self.shortest is None:
            raise refusal(
                ("shortest",), None, "a gate that is not trained needs its times", "Set `shortest` and `longest`."
            )
        return self

    @property
    def present(self) -> bool:
        """Whether anything is forgotten."""
        return self.kind != "none"

    def cost(self, context: LayerContext, length: int, pairs: int) -> Cost:
        """Cost over one sequence with this many logits of each head. Other projections keep the input."""
        if not self.present:
            return Cost()
        rows = length * context.heads
        maps = linear_cost(length, context.width, context.heads, bias=True)
        own = Cost(parameters=context.heads if self.kind == "trained" else 0)
        return (maps if self.kind == "of_input" else own) + Cost(
            additions=2 * rows + 2 * pairs * context.heads,
            divisions=rows,
            exponentiations=2 * rows,
            # Input and result of the logarithm of σ.
            activations=(2 * rows - maps.activations) * (self.kind == "of_input"),
        )

    def label(self) -> str:
        """Label in drawings."""
        return "" if not self.present else f"+ log-sum of σ({'W_f x + b' if self.kind == 'of_input' else 'b'})"


class Forget(Packed):
    """The module of `ForgetSpec`."""

    bias: Tensor

    def __init__(self, spec: ForgetSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        start = zeros if spec.shortest is None or spec.longest is None else _times(spec.shortest, spec.longest)
        self.map = linear(context, context.width, context.heads) if spec.kind == "of_input" else None
        self.declare("bias", (context.heads,), start, trainable=spec.kind != "fixed")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """x [K, B, T, D] to log f, [K, B, H, T], in single precision at least; 0 for padding."""
        made = self.bias[:, None, None] if self.map is None else self.map(x) + self.bias[:, None, None]
        logs = F.logsigmoid(made.to(torch.promote_types(x.dtype, torch.float32))).expand(*x.shape[:3], -1)
        if padding is not None and not numbers_documents(padding):
            logs = logs * padding.unsqueeze(-1)
        return logs.transpose(2, 3)


class ShiftOfHeads(nn.Module):
    """Keys or values mixed with those of the token before, by shares that depend on the token."""

    def __init__(self, context: LayerContext, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.share = linear(context, context.width, heads)

    def forward(self, y: Tensor, x: Tensor, padding: Tensor | None, before: Tensor | None = None) -> Tensor:
        """Keys or values y [K, B, T, G·d_h] of the input x [K, B, T, D] to the same.

        Args:
            y: What is shifted.
            x: The input of the mixer.
            padding: [K, B, T], True where a token is real, or numbers of documents.
            before: y of the token before the first, [K, B, 1, G·d_h]; 0 if there is none.
        """
        if padding is not None and not numbers_documents(padding):
            y = y * padding.unsqueeze(-1)
        earlier = torch.cat([torch.zeros_like(y[:, :, :1]) if before is None else before, y[:, :, :-1]], 2)
        if padding is not None and numbers_documents(padding):
            earlier = earlier * (positions_in_documents(padding) > 0).unsqueeze(-1)
        own, earlier = split_heads(y, self.heads), split_heads(earlier, self.heads)
        mixed: Tensor = own + (earlier - own) * self.share(x).sigmoid().mT.unsqueeze(-1)
        return mixed.transpose(2, 3).flatten(3)


def shift_cost(context: LayerContext, length: int, heads: int) -> Cost:
    """Cost of a shift over one sequence. Kept: α and the differences; other projections keep the input."""
    rows, elements = length * heads, length * heads * context.head_width
    maps = linear_cost(length, context.width, heads)
    return maps + Cost(
        multiplications=elements,
        additions=2 * elements + rows,
        divisions=rows,
        exponentiations=rows,
        activations=elements + rows - maps.activations,
    )


def _times(shortest: float, longest: float) -> Initial:
    """b for times between these two, log-spaced over the heads."""

    def fill(values: Tensor, generator: Generator) -> Tensor:
        times = torch.logspace(0, 1, len(values), base=longest / shortest, dtype=torch.float64) * shortest
        return values.copy_(-torch.log(torch.expm1(1 / times)))

    return fill

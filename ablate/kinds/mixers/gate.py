"""The gate of attention: its place, the number of its factors, and how they are computed and applied.

y' = y ∘ act(W_g·x) or y + act(W_g·x), x the input of the mixer and y what it has at the place of the gate.

- Gated Attention for Large Language Models (arXiv:2505.06708), eq. 5 and section 2.2; its positions G1 to G5 are the
  places `heads`, `value`, `key`, `query` and `output`; https://arxiv.org/abs/2505.06708 (Qwen3-Next has G1)
- https://github.com/KellerJordan/modded-nanogpt (`inputs: 12`, `start: zero`, headwise)

The paper does not say whether heads share factors before or after the nonlinearity, nor where gates of queries and keys
are with respect to positions: here before the nonlinearity, and before positions, after norms and all that is added.

Shapes: K pack, B batch, T tokens, D width, H heads, G heads of keys and values, d_h head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ablate.nn.pack import ACTIVATIONS, Linear, Packed, split_heads, zeros
from ablate.spec.activations import KEPT, LABELS, Activation
from ablate.spec.base import Spec, refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext

Place = Literal["query", "key", "value", "heads", "output"]


class GateSpec(Spec):
    """The gate of a mixer with queries, keys and values. A bare word is its kind."""

    value_fields = frozenset({"start"})

    kind: Literal["none", "headwise", "elementwise"] = "none"
    """`headwise`: one factor for each token and head; `elementwise`: one for each token, head and channel."""
    inputs: int | None = Field(default=None, ge=1)
    """Number of leading channels of its input that the gate reads; unless set, all."""
    start: Literal["normal", "zero"] = "normal"
    """Initial value of W_g: as the model's other projections, or 0, with which every sigmoid is 1/2."""
    place: Place = "heads"
    """On queries, keys or values after their projections; on the output of the `heads` before the output projection; or
    on the `output` after it."""
    shared: bool = False
    """Whether the heads share the factors: W_g·x is averaged over them before the nonlinearity."""
    combine: Literal["multiply", "add"] = "multiply"
    """Whether the factors multiply or are added."""
    activation: Activation | Literal["half_sigmoid", "double_sigmoid"] = "sigmoid"
    """The nonlinearity, by torch's name; `half_sigmoid` is 1/2 + σ/2, which never closes, and `double_sigmoid` 2σ,
    which is 1 at 0 (Marin)."""
    input_dependent: bool = True
    """Whether the factors depend on the token; otherwise they are trained numbers that start at 0 before the
    nonlinearity."""

    @model_validator(mode="after")
    def _is_a_gate(self) -> Self:
        if self.kind == "none" and self.canonical() != {"kind": "none"}:
            raise refusal(
                ("kind",),
                self.kind,
                "the other settings need a gate",
                "Set `kind: headwise` or `elementwise`, or leave it out.",
            )
        if self.place == "output" and (self.kind == "headwise" or self.shared):
            name = "kind" if self.kind == "headwise" else "shared"
            raise refusal(
                (name,),
                getattr(self, name),
                "the output projection has mixed the heads, and its result has channels alone",
                "Set `kind: elementwise` without `shared`, or another place.",
            )
        if not self.input_dependent and (self.inputs is not None or self.start != "normal"):
            name = "start" if self.inputs is None else "inputs"
            raise refusal(
                (name,),
                getattr(self, name),
                "the gate reads no input, and its numbers start at 0",
                f"Leave `{name}` out, or set `input_dependent: true`.",
            )
        return self

    @property
    def present(self) -> bool:
        """Whether there is a gate."""
        return self.kind != "none"

    def check(self, context: LayerContext) -> None:
        """Refuse a width that has fewer channels than the gate reads.

        Raises:
            ValidationError: With the path inside this spec.
        """
        if self.inputs is not None and self.inputs > context.width:
            raise refusal(
                ("inputs",),
                self.inputs,
                f"the input of the gate has {context.width} channels",
                f"Set `inputs: {context.width}` at most, or leave it out.",
            )

    def sizes(self, context: LayerContext, kv_heads: int) -> tuple[int, int]:
        """The number of heads at its place, and of channels of each; the output is one of D channels."""
        if self.place == "output":
            return 1, context.width
        return kv_heads if self.place in ("key", "value") else context.heads, context.head_width

    def factors(self, context: LayerContext, kv_heads: int) -> int:
        """Number of outputs of W_g, before heads share them."""
        heads, channels = self.sizes(context, kv_heads)
        return heads * (1 if self.kind == "headwise" else channels)

    def cost(self, context: LayerContext, length: int, kv_heads: int) -> Cost:
        """Cost over one sequence. Other projections keep the input, and that to the output keeps the gated output."""
        if not self.present:
            return Cost()
        heads, channels = self.sizes(context, kv_heads)
        elements, made = length * heads * channels, self.factors(context, kv_heads)
        rows = length if self.input_dependent else 1
        factors = rows * (made // heads if self.shared else made)
        maps = (
            linear_cost(length, self.inputs or context.width, made) if self.input_dependent else Cost(parameters=made)
        )
        scaled = self.activation in ("half_sigmoid", "double_sigmoid")
        smooth, times = scaled or self.activation == "sigmoid", self.combine == "multiply"
        if self.activation in ("sigmoid", "identity"):
            kept = int(times or smooth)  # the result alone
        else:
            kept = (1 if smooth else KEPT.get(self.activation, 1)) + times  # type: ignore[arg-type]
        halved = self.activation == "half_sigmoid"
        return maps + Cost(
            multiplications=times * elements + factors * (scaled or not (smooth or self.activation == "identity")),
            additions=(not times) * elements + factors * (smooth + halved) + self.shared * (rows * made - factors),
            divisions=factors * (smooth + self.shared),
            exponentiations=factors * smooth,
            activations=kept * factors + elements * (times or self.place == "heads") - maps.activations,
        )

    def label(self) -> str:
        """Label in drawings."""
        if not self.present:
            return ""
        labels = {str(name): label for name, label in LABELS.items()}
        name = {"sigmoid": "σ", "half_sigmoid": "(1 + σ)/2", "double_sigmoid": "2σ", **labels}.get(
            self.activation, self.activation
        )
        made = f"{name}({'W_g x' if self.input_dependent else 'g'})"
        by = " by head" if self.kind == "headwise" else ""
        by += ", shared by heads" if self.shared else ""
        return f"{'×' if self.combine == 'multiply' else '+'} {made}{by}"


class Gate(Packed):
    """The module of `GateSpec`."""

    free: Tensor

    def __init__(self, spec: GateSpec, context: LayerContext, kv_heads: int) -> None:
        super().__init__(context.pack)
        self.spec = spec
        self.heads, _ = spec.sizes(context, kv_heads)
        made = spec.factors(context, kv_heads)
        if spec.input_dependent:
            sizes = (spec.inputs or context.width, made)
            start = zeros if spec.start == "zero" else context.initial("hidden", *sizes)
            self.map = Linear(context.pack, *sizes, initial=start)
        else:
            self.declare("free", (made,), zeros)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        """Heads y [K, B, H, T, d_h], or the output [K, B, T, D], gated by factors of x [K, B, T, D]."""
        spec = self.spec
        if spec.input_dependent:
            made = self.map(x if spec.inputs is None else x[..., : spec.inputs])
        else:
            made = self.free[:, None, None]
        if y.dim() > x.dim():
            made = split_heads(made, self.heads)
        if spec.shared:
            made = made.mean(2, keepdim=True)
        factors = _FACTORS[spec.activation](made)
        return y * factors if spec.combine == "multiply" else y + factors


_FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    **ACTIVATIONS,  # type: ignore[dict-item]
    "half_sigmoid": lambda x: 0.5 + 0.5 * torch.sigmoid(x),
    "double_sigmoid": lambda x: 2 * torch.sigmoid(x),
}

"""Projections of values and outputs: dense, identity, or reparametrised (arXiv:2311.01906, eq. 6)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from torch import Tensor, nn

from ablate.nn.kernels.product import product
from ablate.nn.pack.initial import Packed, identity, orthogonal
from ablate.nn.pack.layers import Gain, Linear
from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded, refusal
from ablate.spec.block import Gain as GainField
from ablate.spec.block import GainSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext, Role, zeros

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

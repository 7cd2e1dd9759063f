"""Projections of values and outputs: dense, identity, or reparametrised (arXiv:2311.01906, eq. 6)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from torch import Tensor, nn

from ablate.kernels.product import product
from ablate.pack.initial import identity, normal, orthogonal, zeros
from ablate.pack.layers import Gain, Linear
from ablate.pack.packed import Packed
from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded, refusal
from ablate.spec.block import Gain as GainField
from ablate.spec.block import GainSpec
from ablate.spec.cost import Cost, linear_cost

PROJECTIONS = Family("projection")


class ProjectionSpec(Kinded):
    """A map of the width onto itself or onto another width."""

    family = PROJECTIONS

    @abstractmethod
    def build(self, pack: int, inputs: int, outputs: int, depth: int, std: float) -> nn.Module:
        """The module, [K, ..., inputs] to [K, ..., outputs]; `std` is that of normal initial values."""

    @abstractmethod
    def label(self, symbol: str) -> str:
        """How a picture names the map `symbol`; empty if there is none."""

    @abstractmethod
    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        """Cost of the forward pass over `tokens` rows."""


class DenseSpec(ProjectionSpec):
    """y = x·W + b, W trainable."""

    value_fields = frozenset({"init"})

    kind: Literal["dense"] = "dense"
    init: Literal["normal", "orthogonal"] = "normal"
    """How W starts; `orthogonal` is what skipless blocks need."""
    bias: bool = False
    """Whether there is a b."""

    def build(self, pack: int, inputs: int, outputs: int, depth: int, std: float) -> Linear:
        """See `ProjectionSpec.build`."""
        initial = orthogonal if self.init == "orthogonal" else normal(std)
        return Linear(pack, inputs, outputs, bias=self.bias, initial=initial)

    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        """See `ProjectionSpec.cost`."""
        return linear_cost(tokens, inputs, outputs, bias=self.bias)

    def label(self, symbol: str) -> str:
        """See `ProjectionSpec.label`."""
        return f"{symbol} + b" if self.bias else symbol


class IdentitySpec(ProjectionSpec):
    """y = x: the projection is removed."""

    kind: Literal["identity"] = "identity"

    def build(self, pack: int, inputs: int, outputs: int, depth: int, std: float) -> nn.Identity:
        """See `ProjectionSpec.build`."""
        if inputs != outputs:
            raise refusal((), "identity", f"an identity keeps the width, and {inputs} is not {outputs}", "Use `dense`.")
        return nn.Identity()

    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        """See `ProjectionSpec.cost`."""
        return Cost()

    def label(self, symbol: str) -> str:
        """See `ProjectionSpec.label`."""
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

    def build(self, pack: int, inputs: int, outputs: int, depth: int, std: float) -> Reparametrised:
        """See `ProjectionSpec.build`."""
        return Reparametrised(self, pack, inputs, outputs, depth)

    def cost(self, tokens: int, inputs: int, outputs: int) -> Cost:
        """See `ProjectionSpec.cost`; α·W_init + β·ΔW is made once a pass, not once a token or a sequence."""
        weights = inputs * outputs
        gains = self.alpha.trainable + self.beta.trainable
        made = Cost(parameters=gains, multiplications=2 * weights, additions=weights)
        return linear_cost(tokens, inputs, outputs) + made

    def label(self, symbol: str) -> str:
        """See `ProjectionSpec.label`."""
        return f"{symbol} = α{'I' if self.init == 'identity' else 'W₀'} + βΔW"


Projection = Annotated[ProjectionSpec, OneOf]


class Reparametrised(Packed):
    """W = α·W_init + β·ΔW (arXiv:2311.01906, eq. 6)."""

    fixed: Tensor
    delta: Tensor

    def __init__(self, spec: ReparametrisedSpec, pack: int, inputs: int, outputs: int, depth: int) -> None:
        super().__init__(pack)
        initial = orthogonal if spec.init == "orthogonal" else identity
        self.declare("fixed", (inputs, outputs), initial, trainable=False)
        self.declare("delta", (inputs, outputs), zeros, decay=True)
        self.alpha = Gain(pack, spec.alpha.initial(depth), trainable=spec.alpha.trainable)
        self.beta = Gain(pack, spec.beta.initial(depth), trainable=spec.beta.trainable)

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., in] to [K, ..., out]."""
        weight = self.alpha(self.fixed) + self.beta(self.delta)
        return product(x.flatten(1, -2), weight).view(*x.shape[:-1], weight.shape[-1])

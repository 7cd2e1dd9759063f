"""Values scaled by the number of inputs of a map: Var W = 1/fan_in · g².

`uniform` with g = 1/√3 is what torch's `nn.Linear` does (kaiming_uniform_ with a = √5): W ~ U(-1/√n, 1/√n), n inputs.
Its biases are U(-1/√n, 1/√n) too: `biases: uniform`.
Embeddings have no sum over inputs and start from N(0, σ²).

- Efficient BackProp (LeCun et al., 1998), section 4.6; torch.nn.Linear.reset_parameters
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ablate.nn.pack import normal, uniform, zeros
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, Role


class FanInSpec(InitialiserSpec):
    """Standard deviation gain/√inputs for every map; embeddings N(0, σ²)."""

    source = "torch.nn.Linear; Efficient BackProp sec. 4.6"

    kind: Literal["fan_in"] = "fan_in"
    distribution: Literal["uniform", "normal"] = "uniform"
    """Shape of the distribution."""
    gain: float = Field(default=1 / math.sqrt(3), gt=0)
    """g: the standard deviation is g/√inputs. The default is torch's."""

    biases: Literal["zero", "uniform"] = "zero"
    """Initial biases of maps: 0, or U(-1/√inputs, 1/√inputs) as in torch."""
    zero: tuple[Literal["output", "head"], ...] = ()
    """Maps that start at 0 instead: `output`, those that write to the residual stream; `head`, the map to the
    logits."""

    @property
    def zero_outputs(self) -> bool:
        return "output" in self.zero

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        if role in self.zero:
            return zeros
        if role == "embedding":
            return normal(context.init_std)
        std = self.gain / math.sqrt(inputs)
        return uniform(std * math.sqrt(3)) if self.distribution == "uniform" else normal(std)

    def initial_bias(self, inputs: int) -> Initial:
        return uniform(1 / math.sqrt(inputs)) if self.biases == "uniform" else zeros

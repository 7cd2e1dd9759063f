"""Initial values whose scale is σ = `model.init_std` or follows from the inputs of a map, without a base model.

- `normal`: W ~ N(0, σ²) for all weights. Language Models are Unsupervised Multitask Learners (GPT-2), σ = 0.02.
- `depth_scaled`: as `normal`, and W ~ N(0, σ²/N) for projections that write to the residual stream, where N = 2L is the
  number of branches that L blocks add to it. GPT-2, section 2.3; https://github.com/karpathy/nanoGPT, model.py
- `zero_output`: as `normal`, and these projections start at 0, so that every block starts as its skip. Fixup
  Initialization (arXiv:1901.09321), section 3; https://github.com/KellerJordan/modded-nanogpt
- `fan_in`: Var W = 1/fan_in · g². `uniform` with g = 1/√3 is what torch's `nn.Linear` does (kaiming_uniform_ with
  a = √5): W ~ U(-1/√n, 1/√n), n inputs. Its biases are U(-1/√n, 1/√n) too: `biases: uniform`. Embeddings have no sum
  over inputs and start from N(0, σ²). Efficient BackProp (LeCun et al., 1998), section 4.6;
  torch.nn.Linear.reset_parameters
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ablate.nn.pack import normal, uniform, zeros
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, Role


class NormalSpec(InitialiserSpec):
    """N(0, σ²) for every weight, where σ is `init_std` of the model or a given value."""

    source = "GPT-2, σ = 0.02"

    kind: Literal["normal"] = "normal"

    std: float | None = Field(default=None, gt=0)
    """σ; unless set, `init_std` of the model."""

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        return normal(self.std or context.init_std)


class DepthScaledSpec(InitialiserSpec):
    """N(0, σ²), and N(0, σ²/2L) for the projections that write to the residual stream of L blocks."""

    source = "GPT-2 sec. 2.3"

    kind: Literal["depth_scaled"] = "depth_scaled"

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        return normal(context.init_std / math.sqrt(2 * context.depth) if role == "output" else context.init_std)


class ZeroOutputSpec(InitialiserSpec):
    """N(0, σ²), and 0 for the projections that write to the residual stream."""

    source = "arXiv:1901.09321 sec. 3"

    kind: Literal["zero_output"] = "zero_output"

    @property
    def zero_outputs(self) -> bool:
        return True

    def initial(self, role: Role, inputs: int, outputs: int, context: LayerContext) -> Initial:
        return zeros if role == "output" else normal(context.init_std)


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

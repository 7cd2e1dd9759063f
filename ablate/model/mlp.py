"""The MLP of a block: plain, W₂·act(W₁x), or gated, W₂·(act(W_g x) ∘ W₁x) (arXiv:2002.05202)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.pack import Linear, normal
from ablate.spec.block import MLPSpec
from ablate.spec.cost import Cost, linear_cost

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


def hidden_width(spec: MLPSpec, width: int) -> int:
    """Width of the hidden layer."""
    return max(1, round(spec.ratio * width))


def mlp_cost(spec: MLPSpec, width: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence; the activation counts as one product an element.

    Kept are the input and, of each hidden unit, the result and all that is multiplied or bent on the way to it; ReLU
    keeps its result and not its argument.
    """
    if spec.kind == "none":
        return Cost()
    hidden = hidden_width(spec, width)
    ways_in = 2 if spec.kind == "gated" else 1
    kept = (0 if spec.activation == "relu" else 1) + (2 if spec.kind == "gated" else 0)
    elementwise = Cost(multiplications=ways_in * length * hidden, activations=kept * length * hidden)
    inward = linear_cost(length, width, ways_in * hidden, bias=spec.bias)
    return inward + elementwise + linear_cost(length, hidden, width, bias=spec.bias)


class MLP(nn.Module):
    """The module of `MLPSpec`, but for `none`."""

    def __init__(self, spec: MLPSpec, pack: int, width: int, std: float) -> None:
        super().__init__()
        hidden = hidden_width(spec, width)
        self.activation = ACTIVATIONS[spec.activation]
        self.up = Linear(pack, width, hidden, bias=spec.bias, initial=normal(std))
        self.gate = Linear(pack, width, hidden, bias=spec.bias, initial=normal(std)) if spec.kind == "gated" else None
        self.down = Linear(pack, hidden, width, bias=spec.bias, initial=normal(std))

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        hidden = self.up(x)
        hidden = self.activation(hidden) if self.gate is None else self.activation(self.gate(x)) * hidden
        y: Tensor = self.down(hidden)
        return y

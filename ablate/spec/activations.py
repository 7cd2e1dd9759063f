"""The nonlinearities of hidden layers, by their names."""

from __future__ import annotations

from typing import Literal

Activation = Literal[
    "relu",
    "gelu",
    "silu",
    "gelu_tanh",
    "relu_squared",
    "quick_gelu",
    "identity",
    "celu",
    "elu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu6",
    "selu",
    "sigmoid",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
]
"""Those of `torch.nn.functional` that need no settings, by its names; `gelu_tanh` is GPT-2's approximation of `gelu`,
`relu_squared` max(0, x)², `quick_gelu` x·σ(1.702x), `identity` x."""

LABELS: dict[Activation, str] = {
    "relu": "ReLU",
    "gelu": "GELU",
    "silu": "SiLU",
    "gelu_tanh": "GELU (tanh)",
    "relu_squared": "ReLU²",
    "quick_gelu": "x·σ(1.702x)",
    "identity": "no nonlinearity",
}
"""How a picture names those that are not named as in torch."""

KEPT: dict[Activation, int] = {"relu": 0, "identity": 0, "quick_gelu": 3}
"""Tensors that an activation keeps for its backward pass besides its result; 1 for those not listed."""

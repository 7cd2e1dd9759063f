"""Nonlinearities by their names in specs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.spec.activation import Activation


def relu_squared(x: Tensor) -> Tensor:
    """max(0, x)² (Primer, arXiv:2109.08668)."""
    return F.relu(x).square()


def quick_gelu(x: Tensor) -> Tensor:
    """x·σ(1.702x), the first approximation of GELU (arXiv:1606.08415, section 2)."""
    return x * torch.sigmoid(1.702 * x)


def identity_map(x: Tensor) -> Tensor:
    """x; a gated MLP with it is bilinear (arXiv:2002.05202)."""
    return x


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu_squared": relu_squared,
    "quick_gelu": quick_gelu,
    "identity": identity_map,
    "celu": F.celu,
    "elu": F.elu,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "mish": F.mish,
    "relu6": F.relu6,
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
}

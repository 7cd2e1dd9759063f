"""Linear map, embedding, norms, gains, and nonlinearities by their names in specs.

Shapes: K pack, B batch, T tokens, D width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, arange

from ablate.nn.kernels.product import product, summed_product
from ablate.nn.pack.initial import Packed, constant
from ablate.spec.activations import Activation
from ablate.spec.block import GainSpec
from ablate.spec.layer import Initial, LayerContext, Role, zeros


class Linear(Packed):
    """y = x·W + b, one W [in, out] for each member."""

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        pack: int,
        inputs: int,
        outputs: int,
        *,
        bias: bool = False,
        initial: Initial,
        initial_bias: Initial = zeros,
    ) -> None:
        super().__init__(pack)
        self.declare("weight", (inputs, outputs), initial, decay=True)
        if bias:
            self.declare("bias", (outputs,), initial_bias)
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., in] to [K, ..., out]."""
        y = product(x.flatten(1, -2), self.weight)
        if self.bias is not None:
            y = y + self.bias.to(y.dtype).unsqueeze(1)  # autocast rounds a bias too: the sum stays as narrow
        return y.view(*x.shape[:-1], y.shape[-1])


def linear(context: LayerContext, inputs: int, outputs: int, *, bias: bool = False, role: Role = "hidden") -> Linear:
    """A map with the initial values of the model's initialiser.

    Args:
        bias: Whether it has a bias.
        role: `output` for the last projection of a branch, `head` for one to logits.
    """
    initial, initial_bias = context.initial(role, inputs, outputs), context.initialiser.initial_bias(inputs)
    return Linear(context.pack, inputs, outputs, bias=bias, initial=initial, initial_bias=initial_bias)


class Embedding(Packed):
    """A table [V, D] for each member."""

    is_table = True
    weight: Tensor

    def __init__(self, pack: int, vocabulary: int, width: int, *, initial: Initial) -> None:
        super().__init__(pack)
        self.vocabulary = vocabulary
        self.declare("weight", (vocabulary, width), initial, decay=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids [K, ...] to rows [K, ..., D]."""
        if self.pack == 1:
            return F.embedding(tokens, self.weight[0])
        offset = arange(self.pack, device=tokens.device) * self.vocabulary
        return F.embedding(tokens + offset.view(-1, *[1] * (tokens.dim() - 1)), self.weight.flatten(0, 1))

    def logits(self, x: Tensor) -> Tensor:
        """The transposed map, for a head tied to the embedding: [K, ..., D] to [K, ..., V]."""
        y = summed_product(x.flatten(1, -2), self.weight, transposed=True)
        return y.view(*x.shape[:-1], self.vocabulary)


class RMSNorm(Packed):
    """x·g / √(mean x² + ε) over the last axis (arXiv:1910.07467).

    Without `gain` g is 1; with `eps_outside` the divisor is √(mean x²) + ε.
    """

    weight: Tensor | None

    def __init__(self, pack: int, width: int, eps: float, *, gain: bool = True, eps_outside: bool = False) -> None:
        super().__init__(pack)
        self.eps = eps
        self.eps_outside = eps_outside
        if gain:
            self.declare("weight", (width,), constant(1.0))
        else:
            self.weight = None

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        if self.eps_outside:
            # The norm has a gradient at 0, where the root of a mean has none.
            root: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / math.sqrt(x.shape[-1])
            y = x / (root + self.eps)
        elif self.weight is not None:
            return rms_norm(x, self.weight, self.eps)
        else:
            y = F.rms_norm(x, x.shape[-1:], eps=self.eps)
        return y if self.weight is None else y * along(self.weight, x)


class LayerNorm(Packed):
    """(x - mean x)·g / √(var x + ε) + b over the last axis (arXiv:1607.06450); g and b may be left out."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, pack: int, width: int, eps: float, *, gain: bool = True, bias: bool = True) -> None:
        super().__init__(pack)
        self.eps = eps
        if gain:
            self.declare("weight", (width,), constant(1.0))
        else:
            self.weight = None
        if bias:
            self.declare("bias", (width,), zeros)
        else:
            self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        y = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        y = y if self.weight is None else y * along(self.weight, x)
        return y if self.bias is None else y + along(self.bias, x)


class Gain(Packed):
    """A scalar for each member, trainable or fixed."""

    value: Tensor

    def __init__(self, pack: int, init: float, *, trainable: bool) -> None:
        super().__init__(pack)
        self.neutral = init == 1.0 and not trainable
        self.declare("value", (), constant(init), trainable=trainable)

    @classmethod
    def of(cls, spec: GainSpec, context: LayerContext) -> Gain:
        """The module of a `GainSpec`."""
        return cls(context.pack, spec.initial(context.depth), trainable=spec.trainable)

    def forward(self, x: Tensor) -> Tensor:
        """[K, ...] times the gain."""
        return x if self.neutral else x * self.value.view(-1, *[1] * (x.dim() - 1))


class HeadGain(Packed):
    """A scalar for each member and head, trainable or fixed."""

    value: Tensor

    def __init__(self, pack: int, heads: int, init: float, *, trainable: bool) -> None:
        super().__init__(pack)
        self.declare("value", (heads,), constant(init), trainable=trainable)

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, H, T, d_h] times the gain of each head."""
        return x * self.value.view(self.pack, 1, -1, 1, 1)


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


def along(values: Tensor, x: Tensor) -> Tensor:
    """[K, D] shaped to broadcast over x [K, ..., D]."""
    return values.view(values.shape[0], *[1] * (x.dim() - 2), values.shape[1])


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """[K, ..., D] and gains [K, D] to the same shape as x."""
    gains = along(gain, x)
    if x.dtype != gain.dtype:
        return F.rms_norm(x, x.shape[-1:], eps=eps) * gains
    if x.device.type != "cpu" or torch.compiler.is_compiling():  # a GPU has a fused kernel, and a compiler makes one
        alone = len(gain) == 1
        return F.rms_norm(x, x.shape[-1:], gain[0], eps) if alone else F.rms_norm(x, x.shape[-1:], eps=eps) * gains
    y: Tensor = _RMSNorm.apply(x, gains, eps)  # type: ignore[no-untyped-call]
    return y


class _RMSNorm(torch.autograd.Function):
    """As one operation it keeps only the normalised input; torch's keeps the input too.

    y = x̂·g, x̂ = x·r, r = 1/√(mean x² + ε). With h = ∂L/∂y·g the gradients are ∂L/∂x = r·(h - x̂·mean(h·x̂)) and
    ∂L/∂g = Σ ∂L/∂y·x̂ over the rows (arXiv:1910.07467, eq. 9).
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        root = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = root.square_().mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
        normed = x * inverse
        ctx.save_for_backward(normed, inverse, gain)
        y: Tensor = normed * gain
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None]:
        normed, inverse, gain = ctx.saved_tensors  # type: ignore[attr-defined]
        by_x, by_gain = ctx.needs_input_grad[:2]  # type: ignore[attr-defined]
        (gradient,) = gradients
        products = gradient * normed
        for_gain = products.flatten(1, -2).sum(1).view(gain.shape) if by_gain else None
        if not by_x:
            return None, for_gain, None
        mean = products.mul_(gain).sum(-1, keepdim=True).mul_(-1 / normed.shape[-1])
        return (gradient * gain).addcmul_(normed, mean).mul_(inverse), for_gain, None

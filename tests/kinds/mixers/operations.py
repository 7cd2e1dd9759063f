"""Counts the operations that modules run, call by call, as costs count them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from ablate.nn.pack import initialise
from ablate.nn.pack.layer_parts import step
from ablate.spec.layer import LayerContext

COUNTED = ("multiplications", "additions", "divisions", "exponentiations")


class Operations(TorchDispatchMode):
    """Counts as costs do: a softmax scales, sums and divides, and an activation is a product."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, tuple) else out
        if isinstance(first, Tensor) and first.is_floating_point():
            read = args[0].numel() if args and isinstance(args[0], Tensor) else 0
            name = func._schema.name.removeprefix("aten::").removesuffix("_")
            made = _taken(name, first.numel(), read, first.shape[-1] if first.dim() else 1, args)
            self.counts.update(dict(zip(COUNTED, made, strict=True)))
        return out


def _taken(name: str, n: int, read: int, row: int, args: Any) -> tuple[int, int, int, int]:
    """Multiplications, additions, divisions and exponentiations of a call that makes `n` elements of `read`."""
    if name in ("mm", "bmm"):
        inner = args[0].shape[-1]
        return n * inner, n * (inner - 1), 0, 0
    if name in ("addmm", "baddbmm"):
        inner = args[1].shape[-1]
        return n * inner, n * inner, 0, 0
    if name == "mul" and not (isinstance(args[1], Tensor) and args[1].dim()):
        return 0, 0, 0, 0  # a constant
    return {
        **dict.fromkeys(("mul", "square", "pow", "gelu"), (n, 0, 0, 0)),
        **dict.fromkeys(("add", "sub", "rsub", "cumsum"), (0, n, 0, 0)),
        "addcmul": (n, n, 0, 0),
        "lerp": (n, 2 * n, 0, 0),
        **dict.fromkeys(("div", "reciprocal", "rsqrt"), (0, 0, n, 0)),
        **dict.fromkeys(("exp", "expm1", "log", "log1p", "elu", "sin", "cos"), (0, 0, 0, n)),
        **dict.fromkeys(("sigmoid", "silu"), (0, n, n, n)),
        "tanh": (0, 2 * n, n, n),
        "softplus": (0, n, 0, 2 * n),
        "log_sigmoid_forward": (0, n, 0, 2 * n),
        "_softmax": (0, n - n // row, n, n),
        "_safe_softmax": (0, n - n // row, 2 * n, n),
        "sum": (0, read - n, 0, 0),
        "mean": (0, read - n, n, 0),
        "linalg_vector_norm": (read, read - n, 0, 0),
        "native_layer_norm": (n, 3 * n, n, 0),
    }.get(name, (0, 0, 0, 0))


@torch.no_grad()
def operations(module: nn.Module, context: LayerContext) -> dict[str, int]:
    """Of a text, read at once, or token by token if the future is hidden: then no masked product is made."""
    initialise(module.eval(), [0])
    x, state = torch.randn(1, 1, context.context, context.width), ()
    with Operations() as made, sdpa_kernel(SDPBackend.MATH):
        if not context.causal:
            module(x)
        for place in range(context.context if context.causal else 0):
            _, state = step(module, x[:, :, place : place + 1], place, state)
    return {name: made.counts[name] for name in COUNTED}

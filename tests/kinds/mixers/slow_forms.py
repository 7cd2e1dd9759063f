"""Mixers with random parameters, compared with the same equations written as loops over tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

Slow = Callable[[Any, int, Tensor, list[bool]], Tensor]
"""Mixer, member, one sequence [T, D] and which of its tokens are real, to [T, D]."""


def perturbed(spec: MixerSpec, context: LayerContext) -> Any:
    """A mixer in float64; noise is added to every parameter, so that none has the special value it starts from."""
    spec.check(context)
    mixer = spec.build(context).double()
    initialise(mixer, list(range(context.pack)))
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(9, name), dtype=torch.float64)
    return mixer


def some_padding(length: int) -> Tensor:
    """[2, 2, T]: padded on the right, on the left, in the middle, and not at all."""
    at, half = torch.arange(length), (length + 1) // 2
    return torch.stack([at < half, at >= length // 2, (at < length // 3) | (at >= half), at >= 0]).view(2, 2, length)


def assert_equal_forms(mixer: nn.Module, slow: Slow, length: int, width: int, padded: bool) -> tuple[Tensor, Tensor]:
    """Outputs at real positions, and gradients of the input and of every parameter, equal those of the slow form.

    Args:
        mixer: A pack of two.

    Returns:
        The input, and which of its tokens are real.
    """
    x = torch.randn(2, 2, length, width, generator=stream(1, "x"), dtype=torch.float64).requires_grad_()
    real = some_padding(length) if padded else torch.ones(2, 2, length, dtype=torch.bool)
    fast = mixer(x, real if padded else None)
    reference = torch.stack(
        [torch.stack([slow(mixer, k, x[k, b], real[k, b].tolist()) for b in range(x.shape[1])]) for k in range(len(x))]
    )
    torch.testing.assert_close(fast[real], reference[real], rtol=1e-9, atol=1e-9)
    direction = torch.randn(fast.shape, generator=stream(0, "direction"), dtype=torch.float64) * real[..., None]
    names, tensors = ["x", *(name for name, _ in mixer.named_parameters())], [x, *mixer.parameters()]
    gradients = [
        torch.autograd.grad((y * direction).sum(), tensors, allow_unused=True, materialize_grads=True)
        for y in (fast, reference)
    ]
    for name, one, other in zip(names, *gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}")
    return x, real


def assert_token_by_token(mixer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Steps give what the whole input [K, B, T, D] gives at their places; the state after the last one."""
    state: tuple[Tensor, ...] = ()
    with torch.no_grad():
        whole = mixer(x)
        for place in range(x.shape[2]):
            y, state = mixer.step(x[:, :, place : place + 1], place, state)
            torch.testing.assert_close(y, whole[:, :, place : place + 1], rtol=1e-9, atol=1e-9)
    return state

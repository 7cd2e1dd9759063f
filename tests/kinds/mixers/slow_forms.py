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


def assert_equal_forms(mixer: nn.Module, slow: Slow, x: Tensor, real: Tensor, *, padded: bool) -> None:
    """Outputs at real positions, and gradients of the input and of every parameter, equal those of the slow form."""
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


def assert_token_by_token(mixer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Steps give what the whole input [K, B, T, D] gives at their places; the state after the last one."""
    state: tuple[Tensor, ...] = ()
    with torch.no_grad():
        whole = mixer(x)
        for place in range(x.shape[2]):
            y, state = mixer.step(x[:, :, place : place + 1], place, state)
            torch.testing.assert_close(y, whole[:, :, place : place + 1], rtol=1e-9, atol=1e-9)
    return state

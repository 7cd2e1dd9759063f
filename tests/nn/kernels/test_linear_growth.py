"""What the recurrent forms allocate grows linearly with the length, gradients included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ablate.nn.kernels import delta_rule, linear_attention

CHUNK = 4


def delta(length: int) -> Tensor:
    q, k, v, g = (torch.randn(1, length, width, requires_grad=True) for width in (8, 8, 8, 1))
    return delta_rule.chunked(q, delta_rule.Written(k, k, v), -g.exp(), CHUNK)


def written(length: int) -> Tensor:
    q, k, v, g = (torch.randn(1, length, 8, requires_grad=True) for _ in range(4))
    return delta_rule.chunked(q, delta_rule.Written(k, k, None, k, v, decayed_first=False), -g.exp(), CHUNK)


def fading(length: int) -> Tensor:
    q, k, v, g = (torch.randn(1, length, width, requires_grad=True) for width in (8, 8, 8, 1))
    return linear_attention.causal(q, k, v, -g.exp(), CHUNK)


def allocated(form: Callable[[int], Tensor], length: int) -> int:
    """Bytes of all tensors that forward and backward make, however short they live."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        form(length).sum().backward()
    changes = [event.nbytes() for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    return sum(change for change in changes if change > 0)


@pytest.mark.parametrize("form", [delta, written, fading])
def test_twice_the_tokens_take_twice_the_memory(form: Callable[[int], Tensor]) -> None:
    assert allocated(form, 1024) < 2.2 * allocated(form, 512)

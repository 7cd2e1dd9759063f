"""Softmax attention of long texts against torch's own, outputs and gradients, in double precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels import softmax_attention
from ablate.nn.kernels.product import onednn_is_faster
from ablate.nn.kernels.softmax_attention import attend


def drawn(length: int, seen: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, length, 16), (2, 3, seen, 16), (2, 3, seen, 16)]
    heads_inside = [torch.randn(b, t, h, d, generator=generator).transpose(1, 2) for b, h, t, d in shapes]
    return [x.requires_grad_() for x in heads_inside]


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize(("length", "seen", "causal"), [(70, 70, True), (70, 70, False), (70, 41, False)])
@pytest.mark.parametrize("least", [1, 1 << 60], ids=["long", "short"])
def test_attention(
    least: int, length: int, seen: int, causal: bool, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax_attention, "_LEAST", least)
    inputs = drawn(length, seen)
    y = attend(*inputs, is_causal=causal, scale=scale)
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    exact = F.scaled_dot_product_attention(*doubles, is_causal=causal, scale=scale)
    torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad((y * direction).sum(), inputs)
    theirs = torch.autograd.grad((exact * direction.double()).sum(), doubles)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=2e-5)


def test_what_the_kernel_does_not_check_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax_attention, "_LEAST", 1)
    q, k, v = (x.detach() for x in drawn(70, 70))
    one_memory = attend(q, k[:1], v[:1])
    torch.testing.assert_close(one_memory, F.scaled_dot_product_attention(q, k[:1].expand(2, -1, -1, -1), v[:1]))
    wide = [x.repeat_interleave(2, -1)[..., ::2] for x in (q, k, v)]
    torch.testing.assert_close(attend(*wide), F.scaled_dot_product_attention(q, k, v), rtol=1e-5, atol=1e-5)


def test_long_texts_take_the_fast_way_where_it_is_exact() -> None:
    y = attend(*drawn(1024, 1024), is_causal=True)
    assert (type(y.grad_fn).__name__ == "_LongBackward") == onednn_is_faster()
    masked = attend(*drawn(1024, 1024), torch.ones(1024, 1024, dtype=torch.bool))
    assert type(masked.grad_fn).__name__ != "_LongBackward"

"""Operations of a training step, and attention over long texts, against torch's own: outputs and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from every_pair import every_pair
from torch import Tensor

from ablate.nn.kernels import cross_entropy as kernel
from ablate.nn.kernels import softmax_attention
from ablate.nn.kernels.cross_entropy import cross_entropy
from ablate.nn.kernels.product import onednn_is_faster
from ablate.nn.kernels.softmax_attention import attend, rotate
from ablate.nn.pack.layers import rms_norm


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("ignored", [None, -1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing: float, ignored: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", 1)
    logits, weights = 5 * drawn(7, 11).requires_grad_(), drawn(7, seed=1)
    targets = torch.tensor([3, 10, 0, 3, 5, -1 if ignored else 2, 9])
    ours = cross_entropy(logits, targets, smoothing, ignored)
    assert type(ours.grad_fn).__name__ == "_CrossEntropyBackward"
    index = -100 if ignored is None else ignored
    theirs = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing, ignore_index=index)
    torch.testing.assert_close(ours, theirs)
    (expected,) = torch.autograd.grad((theirs * weights).sum(), logits)
    (gradient,) = torch.autograd.grad((ours * weights).sum(), logits)
    torch.testing.assert_close(gradient, expected)


def test_cross_entropy_of_a_target_whose_probability_is_0_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", 1)
    logits = torch.tensor([[300.0, 0.0, -200.0]], requires_grad=True)
    assert cross_entropy(logits, torch.tensor([2])).tolist() == [500.0]


def test_cross_entropy_refuses_to_go_back_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", 1)
    loss = cross_entropy(drawn(3, 5).requires_grad_(), torch.tensor([0, 4, 2])).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("pack", [1, 3])
def test_rms_norm(pack: int) -> None:
    x, gain = (5 * drawn(pack, 2, 3, 7)).requires_grad_(), drawn(pack, 7, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, gain: rms_norm(x, gain, 1e-3), (x, gain))
    expected = torch.stack([F.rms_norm(x[k], (7,), gain[k], 1e-3) for k in range(pack)])
    torch.testing.assert_close(rms_norm(x, gain, 1e-3), expected)


@every_pair({"spread": [0, 1 << 18], "turning": [None, 4], "shape": [(3, 5, 6), (2, 3, 5, 6), (5, 6)]})
def test_rotation(spread: int, turning: int | None, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """As complex numbers: x_i + i·x_{i+r/2} times e^(i·t·θ_i)."""
    monkeypatch.setattr("ablate.nn.kernels.softmax_attention._SPREAD", spread)
    x = drawn(*shape).requires_grad_()
    r = turning or shape[-1]
    turned = x[..., :r].unflatten(-1, (2, r // 2)).transpose(-1, -2).contiguous()
    angle = torch.arange(3, 3 + shape[-2])[:, None] * 100.0 ** (-2 * torch.arange(r // 2, dtype=torch.float64) / r)
    product = torch.view_as_real(torch.view_as_complex(turned) * torch.polar(torch.ones_like(angle), angle))
    expected = torch.cat([product.transpose(-1, -2).flatten(-2), x[..., r:]], -1)
    ours = rotate(x, 3, 100.0, turning=turning)
    torch.testing.assert_close(ours, expected)
    direction = drawn(*shape, seed=1)
    (gradient,), (theirs,) = (torch.autograd.grad((y * direction).sum(), x) for y in (ours, expected))
    torch.testing.assert_close(gradient, theirs)


def drawn_heads(length: int, seen: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, length, 16), (2, 3, seen, 16), (2, 3, seen, 16)]
    heads_inside = [torch.randn(b, t, h, d, generator=generator).transpose(1, 2) for b, h, t, d in shapes]
    return [x.requires_grad_() for x in heads_inside]


@every_pair(
    {
        "least": [1, 1 << 60],
        "length, seen, causal": [(70, 70, True), (70, 70, False), (70, 41, False)],
        "scale": [None, 0.3],
    }
)
def test_attention(
    least: int, length: int, seen: int, causal: bool, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax_attention, "_LEAST", least)
    inputs = drawn_heads(length, seen)
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
    q, k, v = (x.detach() for x in drawn_heads(70, 70))
    one_memory = attend(q, k[:1], v[:1])
    torch.testing.assert_close(one_memory, F.scaled_dot_product_attention(q, k[:1].expand(2, -1, -1, -1), v[:1]))
    wide = [x.repeat_interleave(2, -1)[..., ::2] for x in (q, k, v)]
    torch.testing.assert_close(attend(*wide), F.scaled_dot_product_attention(q, k, v), rtol=1e-5, atol=1e-5)


def test_long_texts_take_the_fast_way_where_it_is_exact() -> None:
    y = attend(*drawn_heads(1024, 1024), is_causal=True)
    assert (type(y.grad_fn).__name__ == "_LongBackward") == onednn_is_faster()
    masked = attend(*drawn_heads(1024, 1024), torch.ones(1024, 1024, dtype=torch.bool))
    assert type(masked.grad_fn).__name__ != "_LongBackward"

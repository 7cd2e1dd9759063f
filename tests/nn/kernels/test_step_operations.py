"""The single operations of a training step against torch's own, outputs and gradients, in double precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.nn.kernels import cross_entropy as kernel
from ablate.nn.kernels.cross_entropy import cross_entropy
from ablate.nn.kernels.relative_positions import rotate
from ablate.nn.kernels.rms_norm import rms_norm


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


@pytest.mark.parametrize("shape", [(3, 5, 6), (2, 3, 5, 6), (5, 6)])
@pytest.mark.parametrize("turning", [None, 4])
@pytest.mark.parametrize("spread", [0, 1 << 18], ids=["one table", "a table a head"])
def test_rotation(spread: int, turning: int | None, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """As complex numbers: x_i + i·x_{i+r/2} times e^(i·t·θ_i)."""
    monkeypatch.setattr("ablate.nn.kernels.relative_positions._SPREAD", spread)
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

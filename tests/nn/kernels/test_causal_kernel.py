"""The linear kernels against the full square; second derivatives, layouts, half precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ablate.nn.kernels import linear_attention
from ablate.nn.kernels.chunked import chunked, segments
from ablate.nn.pack.initial import stream

pytestmark = pytest.mark.usefixtures("segment")


def drawn(seed: int, length: int, width: int, value_width: int, lead: tuple[int, ...] = (2, 3)) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(*lead, length, d, generator=generator, dtype=torch.float64).requires_grad_()
        for d in (width, width, value_width)
    ]


def square(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """((QKᵀ) ∘ tril)·V."""
    length = q.shape[-2]
    return ((q @ k.mT) * torch.ones(length, length, dtype=q.dtype).tril()) @ v


def gradients(y: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    direction = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).cos().view_as(y)
    return torch.autograd.grad((y * direction).sum(), inputs, retain_graph=True)


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 70),
    chunk=st.integers(1, 80),
    width=st.integers(1, 7),
    value_width=st.integers(1, 7),
    seed=st.integers(0, 1000),
)
def test_causal_is_the_square(length: int, chunk: int, width: int, value_width: int, seed: int) -> None:
    inputs = drawn(seed, length, width, value_width)
    fast = linear_attention.causal(*inputs, chunk=chunk)
    slow = square(*inputs)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients(fast, inputs), gradients(slow, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 40), seed=st.integers(0, 1000))
def test_bidirectional_is_the_square(length: int, seed: int) -> None:
    q, k, v = inputs = drawn(seed, length, 5, 3)
    fast, slow = linear_attention.bidirectional(q, k, v), (q @ k.mT) @ v
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients(fast, inputs), gradients(slow, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


LEAD, D, E = (2, 3), 5, 4


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(0, name), dtype=torch.float64)


def drawn_texts(length: int, decay: bool) -> tuple[list[Tensor], Tensor | None]:
    inputs = [noise(name, *LEAD, length, width).requires_grad_() for name, width in (("q", D), ("k", D), ("v", E))]
    return inputs, -noise("g", LEAD[-1], length, 1).square() if decay else None  # one decay for both texts


@pytest.mark.parametrize("decay", [False, True], ids=["plain", "decay"])
def test_gradients_have_gradients(decay: bool) -> None:
    inputs, g = drawn_texts(7, decay)
    assert torch.autograd.gradgradcheck(lambda q, k, v: chunked(q, k, v, g, 2), inputs, fast_mode=True)


@pytest.mark.parametrize("decay", [False, True], ids=["plain", "decay"])
def test_heads_that_were_split_off_are_read_and_written_where_they_lie(decay: bool) -> None:
    inputs, g = drawn_texts(33, decay)
    as_split = [x.detach().transpose(-3, -2).contiguous().transpose(-3, -2).requires_grad_() for x in inputs]
    whole, split = chunked(*inputs, g, 4), chunked(*as_split, g, 4)
    torch.testing.assert_close(split, whole, rtol=1e-12, atol=1e-12)
    assert split.transpose(-3, -2).is_contiguous()
    for ours, theirs in zip(
        torch.autograd.grad(split.sin().sum(), as_split), torch.autograd.grad(whole.sin().sum(), inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_gradient_spread_from_one_number() -> None:
    """`sum().backward()` hands over a gradient whose every stride is 0."""
    inputs, _ = drawn_texts(33, False)
    y = chunked(*inputs, None, 4)
    spread, plain = (
        torch.autograd.grad(z, inputs, retain_graph=True) for z in (y.sum(), (y * torch.ones_like(y)).sum())
    )
    for ours, theirs in zip(spread, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("decay", [False, True], ids=["plain", "decay"])
def test_half_precision_inside_autocast(decay: bool) -> None:
    inputs, g = drawn_texts(33, decay)
    halves = [x.detach().bfloat16().requires_grad_() for x in inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = chunked(*halves, g, 8)
        mixed = linear_attention.causal(halves[0].float(), *halves[1:], g, chunk=8)
    exact = chunked(*(x.double() for x in halves), g, 8)
    assert mixed.dtype == torch.float32
    assert (mixed.double() - exact).norm() < 1e-5 * exact.norm()
    assert y.dtype == torch.bfloat16
    assert (y.double() - exact).norm() < 0.02 * exact.norm()
    assert all(x.dtype == torch.bfloat16 for x in torch.autograd.grad(y.float().sum(), halves, retain_graph=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):  # not usual, and not forbidden
        inside = torch.autograd.grad(mixed.sum(), halves[0])
    assert inside[0].isfinite().all()


@pytest.mark.parametrize("decay", [False, True], ids=["plain", "decay"])
def test_nothing_is_kept_but_the_inputs_and_a_state_for_each_segment(decay: bool, segment: int) -> None:
    length = 300
    inputs, g = drawn_texts(length, decay)
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        linear_attention.causal(*inputs, g)
    decays = 0 if g is None else g.numel()
    texts = LEAD[0] * LEAD[1]
    assert sum(kept.values()) == texts * linear_attention.kept_activations(length, D, E) + decays
    assert segments(length, D, 32) == (3 if segment == 1 else 1)

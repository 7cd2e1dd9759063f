"""The linear kernels against the full square and against the recurrence, at any length and chunk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ablate.nn.kernels import linear_attention

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


def recurrence(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """S_t = S_{t-1} + k_tᵀ·v_t; y_t = q_t·S_t."""
    state = q.new_zeros(*q.shape[:-2], q.shape[-1], v.shape[-1])
    rows = []
    for t in range(q.shape[-2]):
        state = state + k[..., t, :, None] * v[..., t, None, :]
        rows.append((q[..., t, None, :] @ state).squeeze(-2))
    return torch.stack(rows, -2)


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
def test_causal_is_the_square_and_the_recurrence(
    length: int, chunk: int, width: int, value_width: int, seed: int
) -> None:
    inputs = drawn(seed, length, width, value_width)
    fast = linear_attention.causal(*inputs, chunk=chunk)
    for slow in (square(*inputs), recurrence(*inputs)):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
        for ours, theirs in zip(gradients(fast, inputs), gradients(slow, inputs), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 97])
def test_causal_with_its_own_chunk(length: int) -> None:
    inputs = drawn(length, length, 5, 5)
    torch.testing.assert_close(linear_attention.causal(*inputs), square(*inputs), rtol=1e-10, atol=1e-10)


def test_causal_hides_the_future_exactly() -> None:
    q, k, v = drawn(0, 50, 4, 4, lead=())
    y = linear_attention.causal(q, k, v, chunk=8)[20]
    for later in torch.autograd.grad(y.sum(), (k, v)):
        assert torch.equal(later[21:], torch.zeros_like(later[21:]))


@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 40), seed=st.integers(0, 1000))
def test_bidirectional_is_the_square(length: int, seed: int) -> None:
    q, k, v = inputs = drawn(seed, length, 5, 3)
    fast, slow = linear_attention.bidirectional(q, k, v), (q @ k.mT) @ v
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients(fast, inputs), gradients(slow, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)

"""The chunked core against the recurrence, in value, gradient, stability and memory."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from ablate.nn.kernels import linear_attention
from ablate.nn.pack.initial import stream

pytestmark = pytest.mark.usefixtures("segment")

LENGTHS = [1, 7, 13, 33, 71]
DECAYS = ["none", "head", "channel"]
LEAD, D, E = (2, 3), 5, 4


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(0, name), dtype=torch.float64)


def inputs(length: int, decay: str) -> tuple[list[Tensor], Tensor | None]:
    q, k, v = (noise(name, *LEAD, length, width).requires_grad_() for name, width in (("q", D), ("k", D), ("v", E)))
    if decay == "none":
        return [q, k, v], None
    g = -noise("g", *LEAD, length, 1 if decay == "head" else D).exp() / 3
    g[..., length // 2, :] = 0.0  # a token that fades nothing
    return [q, k, v], g.requires_grad_()


def recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None) -> Tensor:
    """S_t = diag(e^(g_t))·S_{t-1} + k_tᵀ·v_t, y_t = q_t·S_t, one token after the other."""
    state = torch.zeros(*q.shape[:-2], q.shape[-1], v.shape[-1], dtype=q.dtype)
    rows = []
    for t in range(q.shape[-2]):
        if g is not None:
            state = state * g[..., t, :, None].exp()
        state = state + k[..., t, :, None] * v[..., t, None, :]
        rows.append((q[..., t, None, :] @ state)[..., 0, :])
    return torch.stack(rows, -2)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("length", LENGTHS)
def test_chunked_is_recurrent(length: int, decay: str) -> None:
    (q, k, v), g = inputs(length, decay)
    tensors = [q, k, v] if g is None else [q, k, v, g]
    y, z = linear_attention.causal(q, k, v, g, chunk=8), recurrent(q, k, v, g)
    torch.testing.assert_close(y, z, rtol=1e-10, atol=1e-10)
    direction = noise("direction", *y.shape)
    ours, theirs = (torch.autograd.grad((out * direction).sum(), tensors, allow_unused=True) for out in (y, z))
    for name, a, b in zip("qkvg", ours, theirs, strict=False):
        # The first decay multiplies an empty state: one side may know that, the other gives zeros.
        a, b = (torch.zeros_like(q) if x is None else x for x in (a, b))
        if name == "g":
            a, b = a[..., 1:, :], b[..., 1:, :]
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("decay", DECAYS)
def test_size_of_chunks_makes_no_difference(decay: str) -> None:
    (q, k, v), g = inputs(33, decay)
    one = linear_attention.causal(q, k, v, g, chunk=1)
    for chunk in (2, 16, 32, 64):
        torch.testing.assert_close(linear_attention.causal(q, k, v, g, chunk=chunk), one, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("strength", [1e-4, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("decay", ["head", "channel"])
def test_any_strength_of_decay_is_exact_in_single_precision(decay: str, strength: float) -> None:
    length = 71
    q, k, v = (noise(name, *LEAD, length, width) for name, width in (("q", D), ("k", D), ("v", E)))
    g = -strength * noise("g", *LEAD, length, 1 if decay == "head" else D).square()
    singles = [x.float().requires_grad_() for x in (q, k, v, g)]
    y = linear_attention.causal(*singles)
    torch.testing.assert_close(y.double(), recurrent(q, k, v, g), rtol=1e-4, atol=1e-4)
    for gradient in torch.autograd.grad(y.sum(), singles):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("decay", DECAYS)
def test_future_does_not_change_a_single_bit(decay: str) -> None:
    length, cut = 71, 40
    (q, k, v), g = inputs(length, decay)
    later = torch.arange(length)[:, None] > cut
    changed = [torch.where(later, noise("other", *x.shape), x) for x in (q, k, v)]
    faded = None if g is None else torch.where(later, -noise("other", *g.shape).abs(), g)
    y, z = linear_attention.causal(q, k, v, g), linear_attention.causal(*changed, faded)
    assert torch.equal(y[..., : cut + 1, :], z[..., : cut + 1, :])


@pytest.mark.parametrize("width", [1, D], ids=["head", "channel"])
def test_gradients_with_trained_decays_have_gradients(width: int) -> None:
    inputs = [noise(name, 2, 7, size).requires_grad_() for name, size in (("q", D), ("k", D), ("v", E), ("g", width))]

    def read(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> Tensor:
        return linear_attention.causal(q, k, v, -g.exp(), 4)

    assert torch.autograd.gradcheck(read, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(read, inputs, fast_mode=True)


@pytest.mark.parametrize("decay", DECAYS)
def test_memory_is_linear_in_length(decay: str) -> None:
    def kept_activations(length: int) -> int:
        storages: dict[int, int] = {}
        (q, k, v), g = inputs(length, decay)

        def keep(x: Tensor) -> Tensor:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            y = linear_attention.causal(q, k, v, g)
        y.sum().backward()
        return sum(storages.values())

    small, large = kept_activations(256), kept_activations(1024)
    assert large <= 4.1 * small


def slow_normalised(q: Tensor, k: Tensor, v: Tensor, causal: bool, real: Tensor) -> Tensor:
    """Σ_s (q_t·k_s)·v_s / Σ_s (q_t·k_s) over the real s that t may see; 0 where there is none."""
    y = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for lead in itertools.product(*map(range, LEAD)):
        for t in range(q.shape[-2]):
            seen = [s for s in range(q.shape[-2]) if real[lead][s] and (s <= t or not causal)]
            if seen:
                weights = torch.stack([(q[lead][t] * k[lead][s]).sum() for s in seen])
                y[lead][t] = (weights / weights.sum()) @ v[lead][seen]
    return y


def masks(length: int) -> Tensor:
    """Whole, padded on the right, on the left, in the middle, everywhere, and all but one token."""
    place = torch.arange(length)
    third = length // 3
    rows = [place >= 0, place <= third, place >= third, (place < third) | (place > third), place < 0, place == third]
    return torch.stack(rows).view(*LEAD, length)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS[:4])
def test_normalised_is_the_quotient_of_sums(length: int, causal: bool) -> None:
    q, k = (noise(name, *LEAD, length, D).exp() for name in ("q", "k"))
    v = noise("v", *LEAD, length, E)
    real = masks(length)
    expected = slow_normalised(q, k, v, causal, real)
    y = linear_attention.attend(q, k, v, is_causal=causal, real=real)
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    from_logs = linear_attention.attend_from_logs(q.log(), k.log(), v, is_causal=causal, real=real)
    torch.testing.assert_close(from_logs, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_logarithms_and_values_have_the_same_gradients(causal: bool) -> None:
    length = 33
    real = masks(length)
    real[1, 1] = True
    logs = [noise(name, *LEAD, length, D).requires_grad_() for name in ("q", "k")]
    v = noise("v", *LEAD, length, E).requires_grad_()
    direction = noise("direction", *v.shape)
    by_logs = linear_attention.attend_from_logs(*logs, v, is_causal=causal, real=real)
    by_values = linear_attention.attend(*(x.exp() for x in logs), v, is_causal=causal, real=real)
    for ours, theirs in zip(
        *(torch.autograd.grad((y * direction).sum(), [*logs, v]) for y in (by_logs, by_values)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_logarithms_beyond_single_precision_are_exact(causal: bool) -> None:
    """Features from e^-400 to e^400: as numbers they are 0 or infinite, and their quotients are neither."""
    length = 33
    level = torch.linspace(-400, 400, length, dtype=torch.float64)[torch.randperm(length, generator=stream(0, "order"))]
    log_q, log_k = (level[:, None] + noise(name, *LEAD, length, D) for name in ("q", "k"))
    v = noise("v", *LEAD, length, E)
    logits = torch.logsumexp(log_q[..., :, None, :] + log_k[..., None, :, :], -1)
    if causal:
        logits = logits.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
    expected = logits.softmax(-1) @ v
    singles = [x.float().requires_grad_() for x in (log_q, log_k, v)]
    y = linear_attention.attend_from_logs(*singles, is_causal=causal)
    torch.testing.assert_close(y.double(), expected, rtol=1e-3, atol=1e-3)
    for gradient in torch.autograd.grad(y.square().sum(), singles):
        assert gradient.isfinite().all()


def test_future_keys_do_not_change_a_single_bit_of_stabilised_features() -> None:
    length, cut = 71, 40
    log_q, log_k, v = (noise(name, *LEAD, length, D) for name in ("q", "k", "v"))
    later = torch.arange(length)[:, None] > cut
    huge = torch.where(later, log_k + 300, log_k)
    y, z = (linear_attention.attend_from_logs(log_q, k, v, is_causal=True) for k in (log_k, huge))
    assert torch.equal(y[..., : cut + 1, :], z[..., : cut + 1, :])


@pytest.mark.parametrize("spread", [30.0, 300.0, 3000.0])
def test_features_far_apart_give_exact_outputs_and_finite_gradients(spread: float) -> None:
    """A query whose largest features are those at which every key has its smallest: e^-spread in single precision.

    Bidirectional attention is exact there; causal attention gives 0 where no number holds the sum, and never NaN.
    """
    length = 33
    features = torch.linspace(0, spread, D, dtype=torch.float64)
    log_q, log_k = (noise(name, *LEAD, length, D) + sign * features for name, sign in (("q", 1), ("k", -1)))
    v = noise("v", *LEAD, length, E)
    logits = torch.logsumexp(log_q[..., :, None, :] + log_k[..., None, :, :], -1)
    expected = logits.softmax(-1) @ v
    for causal in (False, True):
        singles = [x.float().requires_grad_() for x in (log_q, log_k, v)]
        y = linear_attention.attend_from_logs(*singles, is_causal=causal)
        if not causal:
            torch.testing.assert_close(y.double(), expected, rtol=1e-2, atol=1e-3)
        for gradient in (y, *torch.autograd.grad(y.square().sum(), singles)):
            assert gradient.isfinite().all()

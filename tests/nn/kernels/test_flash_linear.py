"""The adapters to flash-linear-attention, with a stand-in for the library: its signatures, its layout [B, T, H, d].

Its kernels need a GPU. What runs here is whether the adapters give them what their documentation asks for.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ablate.nn.kernels import flash_linear
from ablate.nn.pack.initial import stream

K, B, H, T, D, E = 2, 3, 2, 9, 4, 5


def noise(name: str, width: int) -> Tensor:
    return torch.randn(K, B, H, T, width, generator=stream(0, name), dtype=torch.float64)


def by_token(q: Tensor, v: Tensor, update: Any) -> tuple[Tensor, None]:
    """The output [B, T, H, e] of a state [B, H, d, e] that `update(state, t)` changes."""
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    rows = []
    for t in range(q.shape[1]):
        state = update(state, t)
        rows.append(torch.einsum("bhd,bhde->bhe", q[:, t], state))
    return torch.stack(rows, 1), None


def delta(q: Tensor, k: Tensor, v: Tensor, *, g: Tensor, beta: Tensor, scale: float) -> tuple[Tensor, None]:
    """`chunk_gated_delta_rule` (g [B, T, H]) and `chunk_kda` (g [B, T, H, d])."""
    assert scale == 1.0
    assert beta.shape == q.shape[:3]

    def update(state: Tensor, t: int) -> Tensor:
        fade = g[:, t].exp()
        state = state * (fade[..., None, None] if g.dim() == 3 else fade[..., None])
        error = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhd,bhde->bhe", k[:, t], state))
        return state + k[:, t, :, :, None] * error[:, :, None]

    return by_token(q, v, update)


def rwkv7(*, r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, scale: float) -> tuple[Tensor, None]:
    assert scale == 1.0

    def update(state: Tensor, t: int) -> Tensor:
        read = torch.einsum("bhd,bhde->bhe", a[:, t], state)
        state = state * w[:, t].exp()[..., None]
        return state + b[:, t, :, :, None] * read[:, :, None] + k[:, t, :, :, None] * v[:, t, :, None]

    return by_token(r, v, update)


def simple_gla(q: Tensor, k: Tensor, v: Tensor, *, g: Tensor, scale: float) -> tuple[Tensor, None]:
    assert scale == 1.0
    return by_token(
        q, v, lambda state, t: state * g[:, t].exp()[..., None, None] + k[:, t, :, :, None] * v[:, t, :, None]
    )


LIBRARY = {
    "fla.ops.gated_delta_rule": SimpleNamespace(chunk_gated_delta_rule=delta),
    "fla.ops.kda": SimpleNamespace(chunk_kda=delta),
    "fla.ops.rwkv7": SimpleNamespace(chunk_rwkv7=rwkv7),
    "fla.ops.simple_gla": SimpleNamespace(chunk_simple_gla=simple_gla),
}


@pytest.mark.parametrize("name", ["by head", "by channel", "rwkv7", "fading"])
def test_the_library_is_given_what_it_asks_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_linear.importlib, "import_module", LIBRARY.__getitem__)
    q, k, v, strength = noise("q", D), noise("k", D) / 3, noise("v", E), noise("strength", 1).sigmoid()
    by_channel = -noise("g", D).exp()
    inputs = {
        "by head": (q, k, v, strength, by_channel[..., :1]),
        "by channel": (q, k, v, strength, by_channel),
        "rwkv7": (q, k, v, noise("read", D) / 3, noise("a", D).sigmoid(), by_channel),
        "fading": (q, k, v, by_channel[..., :1]),
    }[name]
    plain, fast = flash_linear._FORMS[name]
    torch.testing.assert_close(fast(*inputs), plain(*inputs), rtol=1e-9, atol=1e-9)


def test_on_a_cpu_torch_computes() -> None:
    q, v = noise("q", D), noise("v", E)
    made = flash_linear.fading(q, q, v, torch.zeros(K, B, H, T, 1, dtype=torch.float64))
    torch.testing.assert_close(made, (q @ q.mT).tril() @ v)


def wrong_gradient(q: Tensor) -> Tensor:
    """Its values, and twice its gradient."""
    return 2 * q - q.detach()


@pytest.mark.parametrize("name", ["by head", "by channel", "rwkv7", "fading"])
def test_a_kernel_is_trusted_for_its_gradients_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A form that rounds its inputs to bfloat16 is trusted; one whose gradient is twice too large is not."""
    plain, _ = flash_linear._FORMS[name]
    made = {
        "right": lambda *inputs: plain(*(x.float() for x in inputs)),
        "wrong": lambda q, *others: plain(wrong_gradient(q).float(), *(x.float() for x in others)),
    }
    trusted, device = flash_linear._is_trusted.__wrapped__, torch.device("cpu")
    monkeypatch.setitem(flash_linear._FORMS, name, (plain, made["right"]))
    with torch.no_grad():  # as in an evaluation
        assert trusted(name, device)
    monkeypatch.setitem(flash_linear._FORMS, name, (plain, made["wrong"]))
    with pytest.warns(UserWarning, match="its results differ from torch by .*, its gradients by 1"):
        assert not trusted(name, device)

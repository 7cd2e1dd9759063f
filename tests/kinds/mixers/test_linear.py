"""Linear attention with elu + 1 against its equations (arXiv:2006.16236), quadratic and recurrent."""

from __future__ import annotations

import pytest
import torch
from phi_attention import LENGTHS, B, D, H, assert_same, attend, noise, trained
from torch import Tensor

from ablate.kinds.mixers.linear import LinearSpec


def phi(x: Tensor, head: int) -> Tensor:
    return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0)))


@pytest.mark.independent_check("mixers", "linear", against="the whole matrix")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS)
def test_linear_is_its_equation(length: int, causal: bool, padded: bool) -> None:
    mixer = trained(LinearSpec(), causal, length)
    assert_same(mixer, lambda m, k, x, real: attend(m, k, phi, causal, x, real), length, padded)


@pytest.mark.independent_check("mixers", "linear", against="arXiv:2006.16236 eqs 16 to 20, token by token")
def test_causal_linear_is_its_recurrence() -> None:
    """Eqs 16 to 20: s_t = s_{t-1} + φ(k_t)·v_tᵀ, z_t = z_{t-1} + φ(k_t), y_t = φ(q_t)ᵀ·s_t / φ(q_t)ᵀ·z_t."""
    length = 33
    mixer = trained(LinearSpec(), causal=True, length=length, pack=1)
    x = noise("x", 1, B, length, D)
    q, k, v = (m(x)[0].unflatten(-1, (H, -1)) for m in (mixer.query, mixer.key, mixer.value))
    q, k = phi(q, 0), phi(k, 0)
    s, z = torch.zeros(B, H, D // H, D // H, dtype=x.dtype), torch.zeros(B, H, D // H, dtype=x.dtype)
    rows = []
    for t in range(length):
        s, z = s + k[:, t, :, :, None] * v[:, t, :, None, :], z + k[:, t]
        rows.append(torch.einsum("bhd,bhde->bhe", q[:, t], s) / (q[:, t] * z).sum(-1, keepdim=True))
    y = mixer.output(torch.stack(rows, 1).flatten(2)[None])
    torch.testing.assert_close(mixer(x), y, rtol=1e-10, atol=1e-10)


def test_last_causal_row_is_the_last_bidirectional_row() -> None:
    mixers = [trained(LinearSpec(), causal, 13) for causal in (True, False)]
    causal, both = (mixer(noise("x", 2, B, 13, D)) for mixer in mixers)
    torch.testing.assert_close(causal[:, :, -1], both[:, :, -1])

"""The delta rule in chunks against its recurrence, token by token; outputs and gradients in float64."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from torch import Tensor

from ablate.nn.kernels.delta_rule import Written, chunked, recur
from ablate.nn.pack.initial import stream

P, D, E = 3, 4, 5


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(0, name), dtype=torch.float64).requires_grad_()


def slow(q: Tensor, written: Written, g: Tensor) -> Tensor:
    """S_t = diag(e^g)·S + w·(c - r·S)ᵀ + kᵀ·v, for one sequence [T, ...]."""
    state, rows = torch.zeros(q.shape[-1], E, dtype=torch.float64), []
    for t in range(len(q)):
        decayed = g[t].exp()[:, None] * state
        seen = written.read[t] @ (decayed if written.decayed_first else state)
        wanted = 0 if written.wanted is None else written.wanted[t]
        state = decayed + torch.outer(written.write[t], wanted - seen)
        if written.key is not None and written.value is not None:
            state = state + torch.outer(written.key[t], written.value[t])
        rows.append(q[t] @ state)
    return torch.stack(rows)


FORMS = {
    "delta rule": (("read", "write", "wanted"), True),
    "removed and replaced": (("read", "write", "key", "value"), False),
    "everything": (("read", "write", "wanted", "key", "value"), True),
    "everything, of the old state": (("read", "write", "wanted", "key", "value"), False),
}


@every_pair({"form": FORMS, "length, chunk": [(1, 8), (7, 8), (8, 8), (37, 8), (37, 16), (37, 64)], "channels": [1, D]})
def test_chunks_are_the_recurrence(form: str, length: int, chunk: int, channels: int) -> None:
    names, decayed_first = FORMS[form]
    tensors = {name: noise(name, P, length, E if name in ("wanted", "value") else D) for name in names}
    for name in ("read", "write"):  # so short that the state remains bounded
        tensors[name] = (tensors[name] / 3).detach().requires_grad_()
    q, raw = noise("q", P, length, D), noise("g", P, length, channels)
    g = -torch.nn.functional.softplus(raw * 3)
    fast = chunked(q, Written(**tensors, decayed_first=decayed_first), g, chunk)
    reference = torch.stack(
        [slow(q[i], Written(**{k: v[i] for k, v in tensors.items()}, decayed_first=decayed_first), g[i].expand(-1, D))
         for i in range(P)]
    )  # fmt: skip
    torch.testing.assert_close(fast, reference, rtol=1e-9, atol=1e-9)
    direction, wanted = noise("direction", *fast.shape).detach(), [q, raw, *tensors.values()]
    gradients = [torch.autograd.grad((y * direction).sum(), wanted, retain_graph=True) for y in (fast, reference)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)
    state = torch.zeros(P, D, E, dtype=torch.float64)
    for t in range(length):
        token = Written(**{k: v[:, t : t + 1] for k, v in tensors.items()}, decayed_first=decayed_first)
        o, state = recur(q[:, t : t + 1], token, g[:, t : t + 1], state)
        torch.testing.assert_close(o, fast[:, t : t + 1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("channels", [1, D])
def test_strong_decays_are_finite_in_single_precision(channels: int) -> None:
    """Decays of e^-400 and of 1 side by side: no factor between them overflows, and none is lost."""
    q, read, wanted = noise("q", 1, 70, D), noise("read", 1, 70, D), noise("wanted", 1, 70, E)
    unit = read / read.norm(dim=-1, keepdim=True)
    g = torch.where(torch.arange(70)[:, None] % 3 == 0, -400.0, -1e-3).expand(1, 70, channels).double()
    exact = chunked(q, Written(unit, unit * 0.9, wanted), g)
    single = [x.float().detach().requires_grad_() for x in (q, unit, wanted, g)]
    y = chunked(single[0], Written(single[1], single[1] * 0.9, single[2]), single[3])
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)
    assert all(one.isfinite().all() for one in torch.autograd.grad(y.sum(), single))


def test_bfloat16_inputs_are_summed_in_single_precision() -> None:
    q, read, wanted = noise("q", 1, 70, D), noise("read", 1, 70, D), noise("wanted", 1, 70, E)
    unit = read / read.norm(dim=-1, keepdim=True)
    half = [x.to(torch.bfloat16) for x in (q, unit, unit * 0.5, wanted)]
    g = torch.full((1, 70, 1), -0.01)
    exact = chunked(half[0].double(), Written(half[1].double(), half[2].double(), half[3].double()), g.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = chunked(half[0], Written(half[1], half[2], half[3]), g)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), exact, rtol=1e-2, atol=1e-2)

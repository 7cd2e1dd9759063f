"""Hyena against its definition: the network of the filters, the window and every convolution as a plain sum."""

from __future__ import annotations

import math

import pytest
import torch
from every_pair import every_pair
from slow_forms import assert_equal_forms
from torch import Tensor

from ablate.kinds.mixers.hyena import Hyena, HyenaSpec
from ablate.nn.pack import initialise
from ablate.spec.layer import LayerContext

K, B, D, L = 2, 2, 5, 33
CONTEXT = LayerContext(K, D, heads=1, depth=3, context=L, causal=True, init_std=0.5)
SETTINGS: list[dict[str, float]] = [
    {},
    {"order": 3, "filter_width": 7, "filter_features": 7, "filter_layers": 1, "sine_frequency": 3.0},
    {"order": 4, "filter_width": 4, "filter_features": 5, "filter_layers": 0},
]


def features(count: int) -> Tensor:
    """z(t): the time from 0 to 1, then Re and Im of e^{-i·f·2πt/L}."""
    bands = (count - 1) // 2
    rows = []
    for t in range(L):
        frequencies = [1e-4 + (bands - 1 - 1e-4) * n / (bands - 1) if bands > 1 else 1e-4 for n in range(bands)]
        angles = [f * 2 * math.pi * t / L for f in frequencies]
        rows.append([t / (L - 1), *(math.cos(a) for a in angles), *(-math.sin(a) for a in angles)])
    return torch.tensor(rows, dtype=torch.float64)


def window(channels: int) -> Tensor:
    """exp(-|δ|·t), |δ| from ln(100)/1.5 to ln(100)/0.3 over the channels."""
    slowest, fastest = math.log(100) / 1.5, math.log(100) / 0.3
    decays = [slowest + (fastest - slowest) * c / (channels - 1) for c in range(channels)]
    return torch.tensor([[math.exp(-d * t / (L - 1)) for d in decays] for t in range(L)], dtype=torch.float64)


def hyena(settings: dict[str, float]) -> Hyena:
    """In float64; its tables, which are kept in float32, are replaced by the exact ones after a look at them."""
    spec = HyenaSpec.model_validate(settings)
    mixer = spec.build(CONTEXT)
    exact = {"features": features(spec.filter_features), "window": window((spec.order - 1) * D)}
    mixer = mixer.double()
    for name, table in exact.items():
        torch.testing.assert_close(getattr(mixer.filters, name), table, rtol=1e-6, atol=1e-6)
        setattr(mixer.filters, name, table)
    initialise(mixer, list(range(K)))
    return mixer


def convolve(v: Tensor, h: Tensor) -> Tensor:
    """Σ_{s≤t} h_{t-s} ∘ v_s."""
    return torch.stack(
        [sum((h[t - s] * v[s] for s in range(t + 1) if t - s < len(h)), torch.zeros(v.shape[1])) for t in range(len(v))]
    )


def definition(mixer: Hyena, k: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence [T, D]; a padded token is as if its streams were 0."""
    filters, mask = mixer.filters, torch.tensor(real)[:, None]
    h = filters.features[: len(x)]
    for linear in filters.hidden:
        h = torch.sin(filters.frequency[k] * (h @ linear.weight[k] + linear.bias[k]))
    h = (h @ filters.last.weight[k]) * filters.window[: len(x)]
    u = (x @ mixer.input.weight[k] + mixer.input.bias[k]) * mask
    u = (convolve(u, mixer.short[k]) + mixer.short_bias[k]) * mask
    order = u.shape[1] // D - 1
    streams = [u[:, n * D : (n + 1) * D] for n in range(order + 1)]
    v = streams[order]
    for n in range(order - 1):
        v = streams[order - 1 - n] * v
        channels = slice(n * D, (n + 1) * D)
        v = convolve(v, h[:, channels]) + mixer.bias[k, channels] * v
    return (streams[0] * v) @ mixer.output.weight[k] + mixer.output.bias[k]


@pytest.mark.independent_check("mixers", "hyena", against="arXiv:2302.10866 def. 3.1, every convolution a plain sum")
@every_pair({"settings": SETTINGS, "padded": [False, True], "length": [1, 13, 33]})
def test_hyena_is_its_definition(settings: dict[str, float], padded: bool, length: int) -> None:
    assert_equal_forms(hyena(settings), definition, length, D, padded)


def test_filters_network_starts_as_torchs_own_layers() -> None:
    mixer = HyenaSpec(filter_width=256, filter_layers=1).build(CONTEXT)
    initialise(mixer, [0, 1])
    for tensor in (mixer.filters.hidden[1].weight, mixer.filters.hidden[1].bias, mixer.filters.last.weight):
        assert tensor.abs().max() <= 1 / 16
        assert abs(tensor.std() - 1 / 16 / math.sqrt(3)) < 0.003


def test_filters_are_made_in_full_precision() -> None:
    mixer = HyenaSpec().build(CONTEXT)
    initialise(mixer, [0, 1])
    exact = mixer.filters(L)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(mixer.filters(L), exact)

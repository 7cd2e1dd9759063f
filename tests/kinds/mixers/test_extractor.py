"""Extractors against equations 23 to 29 of arXiv:2308.07661, against each other, and against their memory."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from slow_forms import assert_equal_forms
from torch import Tensor, nn

from ablate.kinds.mixers.extractor import Extractor, ExtractorSpec
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

K, B, D = 2, 2, 5
TYPES = ["she", "he", "we", "me"]
CONTEXT = LayerContext(K, D, heads=1, depth=3, context=33, causal=True, init_std=0.5)


def extractor(settings: dict[str, object], context: LayerContext = CONTEXT) -> Extractor:
    mixer = ExtractorSpec.model_validate(settings).build(context).double()
    initialise(mixer, list(range(context.pack)))
    return mixer


def equations(mixer: Extractor, k: int, x: Tensor, real: list[bool]) -> Tensor:
    """[T, D] of member k, row by row; `w(k)` is w_k of the paper, and padded rows are left out of the sums."""
    maps = (mixer.input, mixer.adjustment, mixer.output)
    W_in, W_adj, W_out = (None if isinstance(m, nn.Identity | None) else m.weight[k] for m in maps)
    x_in = x if W_in is None else x @ W_in

    def w(lag_plus_one: int) -> Tensor:
        return mixer.weight[k, lag_plus_one - 1]

    rows = []
    for i in range(1, len(x) + 1):
        e = torch.zeros(D, dtype=x.dtype)
        for j in range(1, i + 1):
            if real[j - 1]:
                weights = w(i - j + 1)
                e = e + (x_in[j - 1] @ weights if weights.dim() == 2 else x_in[j - 1] * weights)
        a = e if W_adj is None else (x[i - 1] @ W_adj) * e
        rows.append(a if W_out is None else a @ W_out)
    return torch.stack(rows)


def noise(length: int, name: str = "x") -> Tensor:
    return torch.randn(K, B, length, D, generator=stream(1, name), dtype=torch.float64)


@pytest.mark.independent_check("mixers", "extractor", against="arXiv:2308.07661 eqs 23 to 29, one lag at a time")
@every_pair(
    {
        "settings": [
            *({"type": name} for name in TYPES),
            {"type": "she", "output": False},
            {"type": "he", "adjustment": False},
            {"type": "we", "adjustment": False, "output": False},
            {"type": "me", "adjustment": True, "output": True},
        ],
        "padded": [False, True],
        "length": [1, 7, 13, 33],
    }
)
def test_extractor_is_its_equations(settings: dict[str, object], padded: bool, length: int) -> None:
    assert_equal_forms(extractor(settings), equations, length, D, padded)


@pytest.mark.parametrize("name", TYPES)
def test_all_weights_start_from_the_models_normal(name: str) -> None:
    context = LayerContext(1, 64, 1, 1, 64, True, init_std=0.01)
    mixer = ExtractorSpec.model_validate({"type": name}).build(context)
    initialise(mixer, [0])
    for parameter in mixer.parameters():
        assert abs(parameter.mean()) < 0.005
        assert 0.007 < parameter.std() < 0.013


def test_the_papers_maps_written_out_or_left_out_are_one_spec() -> None:
    for name, there in (("she", True), ("he", True), ("we", True), ("me", False)):
        written = ExtractorSpec.model_validate({"type": name, "adjustment": there, "output": there})
        assert written.content_hash() == ExtractorSpec.model_validate({"type": name}).content_hash()
        assert (written.adjusts, written.maps_output) == (there, there)
    assert not ExtractorSpec(type="we", adjustment=False).adjusts
    assert ExtractorSpec(type="me", output=True).maps_output


def test_context_of_its_own_gives_the_lags() -> None:
    spec = ExtractorSpec(type="we", context=40)
    spec.check(CONTEXT)
    assert spec.build(CONTEXT).weight.shape == (K, 40, D)
    assert spec.cost(CONTEXT, 33).parameters == 40 * D + 2 * D * D

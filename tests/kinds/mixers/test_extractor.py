"""Extractors against equations 23 to 29 of arXiv:2308.07661, against each other, and against their memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
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


def equations(mixer: Extractor, k: int, x: Tensor, real: Tensor) -> Tensor:
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
@pytest.mark.parametrize("length", [1, 7, 13, 33])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize(
    "settings",
    [
        *({"type": name} for name in TYPES),
        {"type": "she", "output": False},
        {"type": "he", "adjustment": False},
        {"type": "we", "adjustment": False, "output": False},
        {"type": "me", "adjustment": True, "output": True},
    ],
    ids=lambda value: "-".join(str(part) for part in value.values()),
)
def test_extractor_is_its_equations(settings: dict[str, object], padded: bool, length: int) -> None:
    mixer = extractor(settings)
    x = noise(length).requires_grad_()
    real = torch.ones(K, B, length, dtype=torch.bool)
    if padded:
        real = torch.arange(length) < torch.tensor([[1, 5], [length, 4]])[..., None]
        real[0, 1, 0] = length == 1
    fast = mixer(x, real if padded else None)
    slow = torch.stack([torch.stack([equations(mixer, k, x[k, b], real[k, b]) for b in range(B)]) for k in range(K)])
    torch.testing.assert_close(fast[real], slow[real], rtol=1e-10, atol=1e-10)
    direction = noise(length, "direction") * real[..., None]
    inputs = [x, *mixer.parameters()]
    ours, theirs = (torch.autograd.grad((y * direction).sum(), inputs) for y in (fast, slow))
    for mine, his in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, his, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_he_with_identity_input_map_is_we() -> None:
    he, we = extractor({"type": "he"}), extractor({"type": "we"})
    he.input.weight.copy_(torch.eye(D).expand(K, D, D))
    he.weight.copy_(we.weight)
    for name in ("adjustment", "output"):
        getattr(he, name).weight.copy_(getattr(we, name).weight)
    torch.testing.assert_close(he(noise(33)), we(noise(33)))


@torch.no_grad()
def test_she_with_diagonal_matrices_is_we() -> None:
    she, we = extractor({"type": "she"}), extractor({"type": "we"})
    she.weight.copy_(torch.diag_embed(we.weight))
    for name in ("adjustment", "output"):
        getattr(she, name).weight.copy_(getattr(we, name).weight)
    torch.testing.assert_close(she(noise(33)), we(noise(33)))


@torch.no_grad()
def test_we_with_equal_vectors_and_no_maps_is_me() -> None:
    we, me = extractor({"type": "we", "adjustment": False, "output": False}), extractor({"type": "me"})
    we.weight.copy_(me.weight[..., None].expand_as(we.weight))
    torch.testing.assert_close(we(noise(33)), me(noise(33)))


@pytest.mark.parametrize("name", ["he", "we", "me"])
def test_core_is_a_causal_depthwise_convolution(name: str) -> None:
    mixer = extractor({"type": name, "adjustment": False, "output": False})
    x = noise(33)
    for k in range(K):
        kernel = mixer.weight[k].view(33, -1).expand(33, D).flip(0).T[:, None]
        inside = mixer.input(x)[k]
        expected = F.conv1d(F.pad(inside.mT, (32, 0)), kernel, groups=D).mT
        torch.testing.assert_close(mixer(x)[k], expected)


@pytest.mark.parametrize("name", TYPES)
def test_all_weights_start_from_the_models_normal(name: str) -> None:
    context = LayerContext(1, 64, 1, 1, 64, True, init_std=0.01)
    mixer = ExtractorSpec.model_validate({"type": name}).build(context)
    initialise(mixer, [0])
    for parameter in mixer.parameters():
        assert abs(parameter.mean()) < 0.005
        assert 0.007 < parameter.std() < 0.013


@pytest.mark.parametrize("name", TYPES)
def test_there_are_no_biases(name: str) -> None:
    assert not [name for name, _ in extractor({"type": name}).named_parameters() if "bias" in name]


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

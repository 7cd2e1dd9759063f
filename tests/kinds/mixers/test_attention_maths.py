"""Attention against the papers' equations and against torch's own, outputs and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from equations import Attention as Equations
from every_pair import every_pair
from slow_forms import assert_equal_forms, perturbed
from torch import Tensor, nn

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.attention_module import Attention
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

K, B, T, D, H, DEPTH = 2, 2, 7, 15, 3, 5

SETTINGS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "softmax_biased": {
        "query_key_bias": True,
        "value": {"kind": "dense", "bias": True},
        "output": {"kind": "dense", "bias": True},
    },
    "softmax_unscaled": {"scale": "none"},
    "softmax_length": {"scale": "length"},
    "value_skipinit": {"shaping": "value_skipinit"},
    "shaped": {"shaping": "shaped"},
    "sas": {"shaping": "shaped", "value": "identity", "output": "identity"},
    "reparametrised": {
        "shaping": "shaped",
        "value": {"kind": "reparametrised", "alpha": {"init": 1, "trainable": True}, "beta": 0.2},
        "output": {"kind": "reparametrised", "init": "identity", "beta": {"init": 0.2, "trainable": True}},
    },
    "simple_qk": {"softmax": False, "scale": "length"},
    "simple_kv": {"softmax": False, "scale": "length", "matmul_order": "kv_first"},
    "linear_head_width": {"softmax": False, "matmul_order": "kv_first"},
    "linear_value_skipinit": {"softmax": False, "shaping": "value_skipinit"},
}


def attention(settings: dict[str, Any], causal: bool, pack: int = K) -> Attention:
    """A mixer in float64 whose every tensor is random, so that no term hides behind a gain of 0 or 1."""
    context = LayerContext(pack, D, H, DEPTH, T, causal, init_std=0.5)
    mixer: Attention = perturbed(AttentionSpec.model_validate(settings), context)
    return mixer


def equations(mixer: Attention, k: int) -> Equations:
    """The equations with the values of member k."""

    def weight(module: nn.Module) -> Tensor:
        if isinstance(module, nn.Identity):
            return torch.eye(D, dtype=torch.float64)
        if hasattr(module, "delta"):
            return module.alpha.value[k] * module.fixed[k] + module.beta.value[k] * module.delta[k]
        return module.weight[k]

    def bias(module: nn.Module) -> Tensor | float:
        return module.bias[k] if getattr(module, "bias", None) is not None else 0.0

    maps = (mixer.query, mixer.key, mixer.value, mixer.output)
    gains = {name: gain.value[k] for name, gain in mixer.gains.items()}
    spec = mixer.spec
    return Equations(
        H, mixer.causal, *map(weight, maps), *map(bias, maps), softmax=spec.softmax, scale=spec.scale, **gains
    )


@every_pair({"name": SETTINGS, "causal": [True, False], "padded": [False, True]})
def test_attention_is_its_equations(name: str, causal: bool, padded: bool) -> None:
    mixer = attention(SETTINGS[name], causal)
    assert_equal_forms(mixer, lambda _, k, row, seen: equations(mixer, k)(row, seen), T, D, padded)


@every_pair({"name": SETTINGS, "causal": [True, False], "padded": [False, True]})
def test_fast_path_equals_the_matrix(name: str, causal: bool, padded: bool) -> None:
    mixer = attention(SETTINGS[name], causal)
    x = torch.randn(K, B, T, D, generator=stream(1, "x"), dtype=torch.float64)
    padding = (torch.arange(T) < torch.tensor([[3, 7], [1, 5]])[..., None]) if padded else None
    v = mixer.value(x).unflatten(-1, (H, D // H)).transpose(2, 3)
    by_matrix = mixer.output((mixer.matrix(x, padding) @ v).transpose(2, 3).flatten(3))
    real = slice(None) if padding is None else padding
    torch.testing.assert_close(mixer(x, padding)[real], by_matrix[real], rtol=1e-10, atol=1e-10)


@pytest.mark.independent_check("mixers", "attention", against="torch `nn.MultiheadAttention`")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("bias", [True, False])
def test_softmax_attention_is_torch_multihead_attention(bias: bool, causal: bool) -> None:
    settings = SETTINGS["softmax_biased"] if bias else {}
    mixer = attention(settings, causal, pack=1)
    theirs = nn.MultiheadAttention(D, H, bias=bias, batch_first=True, dtype=torch.float64)
    maps = (mixer.query, mixer.key, mixer.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight[0].mT for m in maps]))
        theirs.out_proj.weight.copy_(mixer.output.weight[0].mT)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([m.bias[0] for m in maps]))
            theirs.out_proj.bias.copy_(mixer.output.bias[0])
    x = torch.randn(1, B, T, D, generator=stream(2, "x"), dtype=torch.float64).requires_grad_()
    mask = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
    y = mixer(x)
    z, matrix = theirs(x[0], x[0], x[0], attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(y[0], z, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(mixer.matrix(x)[0], matrix, rtol=1e-10, atol=1e-10)
    direction = torch.randn(z.shape, generator=stream(2, "direction"), dtype=torch.float64)
    torch.testing.assert_close(
        *(torch.autograd.grad((out * direction).sum(), x)[0] for out in (y[0], z)), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_shaped_attention_starts_as_the_identity(causal: bool) -> None:
    """Eqs 5, 12 and 13: W_Q = 0 and unit gains give A = C, so what comes in goes out."""
    spec = AttentionSpec.model_validate(SETTINGS["sas"])
    mixer = spec.build(LayerContext(K, D, H, DEPTH, T, causal))
    initialise(mixer, [3, 4])
    x = torch.randn(K, B, T, D, generator=stream(7, "x"))
    torch.testing.assert_close(mixer(x), x, rtol=1e-5, atol=1e-6)
    padding = torch.arange(T) < torch.tensor([[3, 7], [1, 5]])[..., None]
    torch.testing.assert_close(mixer(x, padding)[padding], x[padding], rtol=1e-5, atol=1e-6)


def test_value_skipinit_starts_as_the_identity_between_its_maps() -> None:
    spec = AttentionSpec.model_validate(SETTINGS["value_skipinit"])
    mixer = spec.build(LayerContext(K, D, H, DEPTH, T, causal=True))
    initialise(mixer, [3, 4])
    x = torch.randn(K, B, T, D, generator=stream(8, "x"))
    torch.testing.assert_close(mixer(x), mixer.output(mixer.value(x)))
    assert mixer.query.weight.abs().min() > 0, "only shaped attention starts with W_Q = 0"


def test_dropout_applies_to_the_shaped_matrix_in_training_only() -> None:
    mixer = attention({"shaping": "shaped", "value": "identity", "output": "identity", "dropout": 0.5}, causal=True)
    x = torch.eye(T, D, dtype=torch.float64).expand(K, B, T, D)  # so that the output shows the matrix of the first head
    mixer.eval()
    still = mixer(x)
    mixer.train()
    torch.manual_seed(0)
    first, second = mixer(x), mixer(x)
    assert not torch.equal(first, second)
    kept = first != 0
    torch.testing.assert_close(first[kept], 2 * still[kept])
    share = kept[still != 0].double().mean().item()
    assert 0.35 < share < 0.65


@pytest.mark.parametrize("name", ["shaped", "simple_kv", "simple_qk"])
def test_half_precision_stays_near_full(name: str) -> None:
    """Sums over tokens must not be rounded at each token."""
    length = 600
    spec = AttentionSpec.model_validate(SETTINGS[name])
    mixer = spec.build(LayerContext(1, D, H, DEPTH, length, causal=True, init_std=0.3))
    initialise(mixer, [0])
    x = torch.randn(1, 1, length, D, generator=stream(9, "x")) + 1.0
    exact = mixer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = mixer(x).float()
    error = (rounded - exact).norm() / exact.norm()
    assert error < 0.02

"""Recurrent mixers against those of `transformers`: weights copied, outputs and gradients in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from copied import Pair, compare, linear, norm, turned
from double_precision import compute_in_double
from slow_forms import perturbed
from torch import Tensor

from ablate.kinds.mixers.gated_deltanet import GatedDeltaNetSpec
from ablate.kinds.mixers.kimi_delta_attention import KimiDeltaAttentionSpec
from ablate.kinds.mixers.mamba2 import Mamba2Spec
from ablate.kinds.mixers.mlstm import MLSTMSpec
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

transformers = pytest.importorskip("transformers")

D, T = 12, 37
CONTEXT = LayerContext(1, D, 4, depth=3, context=T, causal=True, init_std=0.5)


def inputs(padded: bool) -> tuple[Tensor, Tensor]:
    """Two texts, padded on the left and on the right, and which of their tokens are real."""
    x, place = torch.randn(2, T, D, generator=stream(1, "x"), dtype=torch.float64), torch.arange(T)
    real = torch.stack([place < T - 4, place >= 5]) if padded else torch.ones(2, T, dtype=torch.bool)
    return x, real


def copied(pairs: list[Pair], theirs: Any) -> list[Pair]:
    assert {id(pair.theirs) for pair in pairs} == {id(parameter) for parameter in theirs.parameters()}
    for pair in pairs:
        pair.copy()
    return pairs


def taps(*weights: Tensor) -> Tensor:
    """Ours [channels, taps] as those of one convolution, [channels, 1, taps]."""
    return torch.cat(weights).unsqueeze(1)


@pytest.mark.independent_check("mixers", "gated_deltanet", against="Qwen3-Next of `transformers`")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_gated_deltanet_is_that_of_qwen3_next(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as module

    compute_in_double(monkeypatch, module)
    G, many, d_k, d_v = 2, 2, 3, 5
    H = G * many
    config = transformers.Qwen3NextConfig(
        hidden_size=D, linear_num_key_heads=G, linear_num_value_heads=H, linear_key_head_dim=d_k,
        linear_value_head_dim=d_v, linear_conv_kernel_dim=4, num_hidden_layers=2, rms_norm_eps=1e-6,
    )  # fmt: skip
    theirs = module.Qwen3NextGatedDeltaNet(config, 0).double()
    ours = perturbed(GatedDeltaNetSpec(heads=H, key_heads=G, key_width=d_k, value_width=d_v), CONTEXT)

    def by_group(*maps: Tensor) -> Tensor:
        """Maps [D, heads·width] side by side within each group, as rows of nn.Linear."""
        return torch.cat([one.unflatten(-1, (G, -1)) for one in maps], -1).flatten(-2).mT

    q, k, v = ours.query, ours.key, ours.value
    convolutions = (ours.query_convolution, ours.key_convolution, ours.value_convolution)
    pairs = copied(
        [
            Pair((q.weight, k.weight, v.weight, ours.gate.weight), theirs.in_proj_qkvz.weight, by_group),
            Pair((ours.strength.weight, ours.fade.weight), theirs.in_proj_ba.weight, by_group),
            Pair(tuple(one.weight for one in convolutions), theirs.conv1d.weight, taps),
            Pair((ours.decay.bias,), theirs.dt_bias),
            Pair((ours.decay.rate,), theirs.A_log),
            *norm(ours.norm, theirs.norm),
            *linear(ours.output, theirs.out_proj),
        ],
        theirs,
    )
    x, real = inputs(padded)
    reference = theirs(x, attention_mask=real.long() if padded else None)
    compare(pairs, ours(x[None], real[None] if padded else None), reference, real, rtol=1e-8, atol=1e-8)


@pytest.mark.independent_check("mixers", "kimi_delta_attention", against="Kimi Linear of `transformers`")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_kimi_delta_attention_is_that_of_kimi_linear(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.kimi_linear import modeling_kimi_linear as module

    compute_in_double(monkeypatch, module)
    H, d = 3, 4
    config = transformers.KimiLinearConfig(
        hidden_size=D, linear_num_heads=H, linear_head_dim=d, linear_conv_kernel_dim=4, num_hidden_layers=2,
        rms_norm_eps=1e-5,
    )  # fmt: skip
    theirs = module.KimiLinearDeltaAttention(config, 0).double()
    ours = perturbed(KimiDeltaAttentionSpec(heads=H, head_width=d), CONTEXT)
    convolutions = (ours.query_convolution, ours.key_convolution, ours.value_convolution)
    gate = theirs.forget_gate
    named = dict(gate.named_parameters())
    pairs = copied(
        [
            *linear(ours.query, theirs.q_proj),
            *linear(ours.key, theirs.k_proj),
            *linear(ours.value, theirs.v_proj),
            Pair(tuple(one.weight for one in convolutions), theirs.conv1d.weight, taps),
            Pair((ours.fade_down.weight,), named["f_a_proj.weight"], turned),
            Pair((ours.fade_up.weight,), named["f_b_proj.weight"], turned),
            Pair((ours.decay.bias,), named["dt_bias"], lambda one: one.view(named["dt_bias"].shape)),
            Pair((ours.decay.rate,), named["A_log"], lambda one: one.view(named["A_log"].shape)),
            *linear(ours.strength, theirs.b_proj),
            *linear(ours.gate_down, theirs.g_a_proj),
            *linear(ours.gate_up, theirs.g_b_proj),
            *norm(ours.norm, theirs.o_norm),
            *linear(ours.output, theirs.o_proj),
        ],
        theirs,
    )
    x, real = inputs(padded)
    reference = theirs(x, attention_mask=real.long() if padded else None)
    compare(pairs, ours(x[None], real[None] if padded else None), reference, real, rtol=1e-8, atol=1e-8)


@pytest.mark.independent_check("mixers", "mamba2", against="Mamba-2 of `transformers`")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("groups", [1, 2])
def test_mamba2_is_that_of_transformers(groups: int, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.mamba2 import modeling_mamba2 as module

    compute_in_double(monkeypatch, module)
    config = transformers.Mamba2Config(
        hidden_size=D, num_heads=6, head_dim=4, state_size=5, n_groups=groups, expand=2, conv_kernel=4, chunk_size=8,
        num_hidden_layers=2, layer_norm_epsilon=1e-5,
    )  # fmt: skip
    theirs = module.Mamba2Mixer(config, 0).double().eval()
    ours = perturbed(Mamba2Spec(head_width=4, state=5, groups=groups), CONTEXT)
    pairs = copied(
        [
            Pair((ours.gate.weight, ours.inputs.weight, ours.step_size.weight), theirs.in_proj.weight, turned),
            Pair((ours.convolution.weight,), theirs.conv1d.weight, taps),
            Pair((ours.convolution.bias,), theirs.conv1d.bias),
            Pair((ours.space.bias,), theirs.dt_bias),
            Pair((ours.space.rate,), theirs.A_log),
            Pair((ours.space.skip,), theirs.D),
            *norm(ours.norm, theirs.norm),
            *linear(ours.output, theirs.out_proj),
        ],
        theirs,
    )
    x, real = inputs(padded)
    reference = theirs(x, attention_mask=real.long() if padded else None)
    compare(pairs, ours(x[None], real[None] if padded else None), reference, real, rtol=1e-8, atol=1e-8)


@pytest.mark.independent_check("mixers", "mlstm", against="xLSTM of `transformers`")
def test_mlstm_is_that_of_xlstm(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.xlstm import modeling_xlstm as module

    compute_in_double(monkeypatch, module)
    config = transformers.xLSTMConfig(
        hidden_size=D, num_heads=3, num_hidden_layers=2, qk_dim_factor=0.5, v_dim_factor=1.0, use_bias=False,
        norm_eps=1e-6, gate_soft_cap=15.0, weight_mode="single", mode="train",
        chunkwise_kernel="chunkwise--native_autograd",
        autocast_kernel_dtype="float32", inference_state_dtype="float32", chunk_size=16, eps=1e-6,
    )  # fmt: skip
    theirs = module.xLSTMLayer(config).double()
    told = replace(CONTEXT, heads=3, head_width=0)
    ours = perturbed(MLSTMSpec(), told)
    pairs = copied(
        [
            *linear(ours.query, theirs.q),
            *linear(ours.key, theirs.k),
            *linear(ours.value, theirs.v),
            *linear(ours.gate, theirs.ogate_preact),
            *linear(ours.input, theirs.igate_preact),
            *linear(ours.forget, theirs.fgate_preact),
            *norm(ours.norm, theirs.multihead_norm),
            *linear(ours.output, theirs.out_proj),
        ],
        theirs,
    )
    x = inputs(False)[0][:, :32]  # two of their chunks
    reference, _ = theirs(x)
    # Their kernels keep the state in single precision.
    compare(pairs, ours(x[None]), reference, rtol=1e-4, atol=1e-4)

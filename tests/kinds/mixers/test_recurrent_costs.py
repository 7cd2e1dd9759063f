"""The new recurrent mixers against torch's counts, published sizes and `transformers`."""

from __future__ import annotations

import pytest
import torch
from copied import compare, linear, norm
from double_precision import compute_in_double
from slow_forms import perturbed

from ablate.kinds.mixers.gated_deltanet import GatedDeltaNetSpec
from ablate.kinds.mixers.kimi_delta_attention import KimiDeltaAttentionSpec
from ablate.kinds.mixers.mamba2 import Mamba2Spec
from ablate.kinds.mixers.mlstm import MLSTMSpec
from ablate.kinds.mixers.rwkv7 import RWKV7Spec
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext


def told(width: int, heads: int, layer: int = 1) -> LayerContext:
    return LayerContext(1, width, heads, depth=24, context=4096, causal=True, layer=layer)


def test_a_layer_of_mamba2_130m() -> None:
    """128 989 632 parameters in all: 24 layers with one norm each, a final norm and 50 288 tied embeddings."""
    spec = Mamba2Spec()
    assert spec.sizes(told(768, 12)) == (1536, 24, 64)
    layer = spec.cost(told(768, 12), 1).parameters + 768
    assert 24 * layer + 768 + 50288 * 768 == 128_989_632


def test_a_recurrent_layer_of_qwen3_next() -> None:
    """Its in- and output maps, convolution, decays and norm."""
    spec = GatedDeltaNetSpec(heads=32, key_heads=16, key_width=128, value_width=128)
    keys, values = 16 * 128, 32 * 128
    maps = 2048 * (2 * keys + 2 * values) + 2048 * 64 + values * 2048
    assert spec.cost(told(2048, 16), 1).parameters == maps + 4 * (2 * keys + values) + 2 * 32 + 128


def test_a_recurrent_layer_of_kimi_linear() -> None:
    spec = KimiDeltaAttentionSpec(heads=32, head_width=128)
    inner, rank = 32 * 128, 128
    maps = 3 * 2304 * inner + 2 * (2304 * rank + rank * inner) + 2304 * 32 + inner * 2304
    assert spec.cost(told(2304, 32), 1).parameters == maps + 3 * 4 * inner + inner + 32 + 128


def test_a_layer_of_mlstm() -> None:
    d, h = 4096, 8
    assert MLSTMSpec().cost(told(d, h), 1).parameters == 2 * d * d // 2 + 3 * d * d + 2 * (d * h + h) + d


@pytest.mark.parametrize(("layer", "values"), [(0, 0), (1, 2 * 64 * 1024 + 1024)])
def test_a_layer_of_rwkv7(layer: int, values: int) -> None:
    """Ranks at width 1024: 64 for decay, removal and values, 160 for the gate (halves round to even)."""
    spec, d = RWKV7Spec(), 1024
    assert spec.ranks(told(d, 16)) == (64, 64, 160)
    low = 2 * (2 * 64 * d + d) + 2 * 160 * d + values
    assert spec.cost(told(d, 16, layer), 1).parameters == 4 * d * d + low + 6 * d + 3 * d + 2 * d


transformers = pytest.importorskip("transformers")

D = 12


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
    ours = perturbed(MLSTMSpec(), LayerContext(1, D, 3, depth=3, context=32, causal=True, init_std=0.5))
    maps = {"query": "q", "key": "k", "value": "v", "gate": "ogate_preact", "input": "igate_preact",
            "forget": "fgate_preact", "output": "out_proj"}  # fmt: skip
    pairs = [pair for mine, other in maps.items() for pair in linear(getattr(ours, mine), getattr(theirs, other))]
    pairs += norm(ours.norm, theirs.multihead_norm)
    assert {id(pair.theirs) for pair in pairs} == {id(parameter) for parameter in theirs.parameters()}
    for pair in pairs:
        pair.copy()
    x = torch.randn(2, 32, D, generator=stream(1, "x"), dtype=torch.float64)  # two of their chunks
    reference, _ = theirs(x)
    # Their kernels keep the state in single precision.
    compare(pairs, ours(x[None]), reference, rtol=1e-4, atol=1e-4)

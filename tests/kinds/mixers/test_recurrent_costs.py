"""Products of the new recurrent mixers as torch counts them, and their parameters at published sizes."""

from __future__ import annotations

import pytest

from ablate.kinds.mixers.gated_deltanet import GatedDeltaNetSpec
from ablate.kinds.mixers.kimi_delta_attention import KimiDeltaAttentionSpec
from ablate.kinds.mixers.mamba2 import Mamba2Spec
from ablate.kinds.mixers.mlstm import MLSTMSpec
from ablate.kinds.mixers.rwkv7 import RWKV7Spec
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

"""The recurrent mixer of which no architecture is read, against that of `transformers`, weights copied, in float64."""

from __future__ import annotations

import pytest
import torch
from copied import compare, linear, norm
from double_precision import compute_in_double
from slow_forms import perturbed

from ablate.kinds.mixers.mlstm import MLSTMSpec
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

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

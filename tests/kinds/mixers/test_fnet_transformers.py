"""FNet against the one of `transformers`: the mixing alone, and a whole post-LN layer with its weights copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ablate.kinds.mixers.fnet import FNetSpec
from ablate.nn.model.block import SequentialBlock, build_block
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.block import BlockSpec
from ablate.spec.layer import LayerContext

B, T, D = 3, 13, 10
CONTEXT = LayerContext(1, D, heads=1, depth=2, context=T, causal=False, init_std=0.5)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Imported when a test runs: it takes seconds, which the collection of other tests need not wait for."""
    return pytest.importorskip("transformers.models.fnet.modeling_fnet")


def test_mixing_is_that_of_transformers(theirs: Any) -> None:
    config = theirs.FNetConfig(hidden_size=D, use_tpu_fourier_optimizations=False)
    x = torch.randn(1, B, T, D, generator=stream(0, "x"), dtype=torch.float64).requires_grad_()
    ours = FNetSpec().build(CONTEXT)(x)
    (reference,) = theirs.FNetBasicFourierTransform(config)(x[0])
    torch.testing.assert_close(ours[0], reference)
    direction = torch.randn(ours.shape, generator=stream(0, "direction"), dtype=torch.float64)
    mine, his = (torch.autograd.grad((y * d).sum(), x)[0] for y, d in ((ours, direction), (reference, direction[0])))
    torch.testing.assert_close(mine, his)


@pytest.mark.independent_check("mixers", "fnet", against="FNet of `transformers`")
def test_post_ln_layer_is_that_of_transformers(theirs: Any) -> None:
    config = theirs.FNetConfig(
        hidden_size=D, intermediate_size=4 * D, hidden_act="gelu", hidden_dropout_prob=0.0, layer_norm_eps=1e-12
    )
    layer = theirs.FNetLayer(config).double()
    block = build_block(
        BlockSpec.model_validate(
            {
                "mixer": {"kind": "fnet"},
                "mlp": {"kind": "plain", "ratio": 4, "activation": "gelu", "bias": True},
                "norm": {"kind": "layer", "place": "post", "eps": 1e-12},
            }
        ),
        CONTEXT,
    ).double()
    initialise(block, [0])
    assert isinstance(block, SequentialBlock)
    assert block.mlp is not None
    linears = [(layer.intermediate.dense, block.mlp.up), (layer.output.dense, block.mlp.down)]
    norms = [(layer.fourier.output.LayerNorm, block.norm_mixer), (layer.output.LayerNorm, block.norm_mlp)]
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=stream(3, name), dtype=torch.float64))
        for his, mine in linears:
            mine.weight[0] = his.weight.T
            mine.bias[0] = his.bias
        for his, mine in norms:
            mine.weight[0] = his.weight
            mine.bias[0] = his.bias
    x = torch.randn(1, B, T, D, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(block(x)[0], layer(x[0])[0])

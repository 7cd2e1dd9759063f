"""Kinds with positive features at queries beyond what single precision holds."""

from __future__ import annotations

import pytest
import torch
from phi_attention import noise

from ablate.nn.pack import initialise
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("kind", ["performer", "gmm", "fastfood", "generative"])
def test_positive_features_have_finite_gradients_at_extreme_queries(kind: str, causal: bool) -> None:
    """‖q'‖² from 1e2 to 1e8: outputs and gradients of the input and of all parameters, in single precision."""
    spec = MixerSpec.parse({"kind": kind} | ({} if kind == "performer" else {"form": "prf"}))
    for factor in (10.0, 200.0, 1000.0, 10_000.0):
        mixer = spec.build(LayerContext(1, 32, 2, depth=2, context=64, causal=causal, init_std=0.18))
        initialise(mixer, [0])
        with torch.no_grad():
            mixer.query.weight *= factor
            mixer.key.weight *= factor / 10
        x = noise("x", 1, 2, 64, 32).float().requires_grad_()
        y = mixer(x)
        for values in (y, *torch.autograd.grad(y.sum(), [x, *mixer.parameters()], materialize_grads=True)):
            assert values.isfinite().all()

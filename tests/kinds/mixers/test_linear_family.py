"""Properties of all linear-time attention kinds: costs, named blocks, and their use in causal and other models."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ablate.kinds.mixers.fastfood import FastFoodSpec
from ablate.kinds.mixers.gated_linear_attention import GatedLinearAttentionSpec
from ablate.kinds.mixers.generative import GenerativeSpec
from ablate.kinds.mixers.gmm import GmmSpec
from ablate.kinds.mixers.linear import LinearSpec
from ablate.kinds.mixers.performer import PerformerSpec
from ablate.kinds.mixers.retention import RetentionSpec
from ablate.nn.pack import initialise
from ablate.spec.block import BlockSpec
from ablate.spec.layer import LayerContext
from ablate.spec.named import named_block
from ablate.spec.sublayers import MixerSpec

pytestmark = pytest.mark.usefixtures("countable_products")

FEATURES: list[MixerSpec] = [
    LinearSpec(),
    PerformerSpec(),
    PerformerSpec(kernel="relu"),
    GmmSpec(),
    GmmSpec(form="prf"),
    FastFoodSpec(),
    FastFoodSpec(form="prf"),
    GenerativeSpec(),
    GenerativeSpec(form="prf"),
]
DECAYING: list[MixerSpec] = [RetentionSpec(), GatedLinearAttentionSpec()]


@pytest.mark.parametrize("spec", FEATURES, ids=lambda spec: spec.canonical_json())
def test_multiplications_are_those_that_torch_counts(spec: MixerSpec) -> None:
    """torch counts products and sums of matrix products; the ones beside the values are a product more to it."""
    context = LayerContext(1, 128, 2, depth=1, context=512, causal=False)
    mixer = spec.build(context)
    initialise(mixer, [0])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        mixer(torch.zeros(1, 1, 512, 128))
    assert spec.cost(context, 512).multiplications == pytest.approx(counter.get_total_flops() / 2, rel=0.03)


@pytest.mark.parametrize("spec", [*FEATURES, *DECAYING], ids=lambda spec: spec.canonical_json())
def test_cost_is_linear_in_length(spec: MixerSpec) -> None:
    context = LayerContext(1, 64, 2, depth=1, context=4096, causal=True)
    one, two, four = (spec.cost(context, length) for length in (1024, 2048, 4096))
    assert four.flops - two.flops == 2 * (two.flops - one.flops)
    assert one.parameters == four.parameters


@pytest.mark.parametrize(
    ("spec", "causal"),
    [(spec, True) for spec in [*FEATURES, *DECAYING]] + [(spec, False) for spec in FEATURES],
    ids=lambda value: value.canonical_json() if isinstance(value, MixerSpec) else f"causal_{value}",
)
def test_activations_are_those_that_autograd_keeps(spec: MixerSpec, causal: bool) -> None:
    context = LayerContext(1, 128, 2, depth=1, context=512, causal=causal)
    mixer = spec.build(context)
    initialise(mixer, [0])
    own = {tensor.untyped_storage().data_ptr() for tensor in (*mixer.parameters(), *mixer.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        mixer(torch.randn(1, 1, 512, 128, requires_grad=True))
    scalars = sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / 4
    assert spec.cost(context, 512).activations == pytest.approx(scalars, rel=0.1)


@pytest.mark.parametrize("spec", [*FEATURES, *DECAYING], ids=lambda spec: spec.canonical_json())
def test_named_block_has_the_kind(spec: MixerSpec) -> None:
    block = BlockSpec.model_validate(named_block(spec.kind_name()).block)
    assert block.mixer.kind_name() == spec.kind_name()


@pytest.mark.parametrize("spec", DECAYING, ids=lambda spec: spec.kind_name())
def test_kinds_with_decay_have_no_bidirectional_form(spec: MixerSpec) -> None:
    assert spec.causal_form
    assert not spec.bidirectional_form

"""What sparse patterns cost: as counted by torch, and growing with the window and not with the square of the text."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.bigbird import BigBirdSpec
from ablate.kinds.mixers.linformer import LinformerSpec
from ablate.kinds.mixers.local import LocalSpec
from ablate.kinds.mixers.longformer import LongformerSpec
from ablate.kinds.mixers.reformer import ReformerSpec
from ablate.kinds.mixers.sinkhorn import SinkhornSpec
from ablate.kinds.mixers.sparse import SparseSpec
from ablate.kinds.mixers.synthesizer import SynthesizerSpec
from ablate.nn.pack import initialise
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

pytestmark = pytest.mark.usefixtures("countable_products")

D, H = 32, 2

LINEAR: list[MixerSpec] = [
    LocalSpec(window=16),
    LocalSpec(pattern="sliding", window=17),
    LongformerSpec(window=32, global_tokens=3),
    BigBirdSpec(block=16, random_blocks=2),
    LinformerSpec(rank=16),
    ReformerSpec(chunk=16, hashes=2, buckets=16),
]
OTHERS: list[MixerSpec] = [
    SparseSpec(stride=16, summary=2),
    SinkhornSpec(block=16),
    SynthesizerSpec(),
    SynthesizerSpec(type="factorised", dot_product=True),
    SynthesizerSpec(type="dense"),
]


def counted(spec: MixerSpec, length: int, causal: bool) -> int:
    """Operations in the matrix products of one forward pass, as torch counts them (two for each multiplication)."""
    mixer = spec.build(LayerContext(1, D, H, 5, length, causal))
    initialise(mixer, [0])
    x = torch.randn(1, 1, length, D)
    # Of the fused kernels of the CPU it knows nothing.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        mixer(x)
    return counter.get_total_flops()


def forms(specs: list[MixerSpec]) -> list[tuple[MixerSpec, bool]]:
    return [(spec, causal) for spec in specs for causal in (True, False) if spec.causal_form or not causal]


@pytest.mark.parametrize(("spec", "causal"), forms(LINEAR), ids=lambda value: str(value))
def test_cost_is_linear_in_the_text(spec: MixerSpec, causal: bool) -> None:
    once, twice = counted(spec, 1024, causal), counted(spec, 2048, causal)
    assert 1.9 < twice / once < 2.1
    assert twice < counted(AttentionSpec(), 2048, causal)


@pytest.mark.parametrize(("spec", "causal"), forms(LINEAR + OTHERS), ids=lambda value: str(value))
def test_multiplications_are_those_that_torch_counts(spec: MixerSpec, causal: bool) -> None:
    length = 256
    cost = spec.cost(LayerContext(1, D, H, 5, length, causal), length)
    assert 2 * cost.multiplications == pytest.approx(
        counted(spec, length, causal), rel=0.05
    )  # it counts no products of single numbers

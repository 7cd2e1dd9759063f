"""Costs against the tables of arXiv:2308.07661 and against what torch counts.

torch's counter takes a product of an m x k with a k x n matrix as 2·m·k·n, a product and a sum for each of m·k·n terms,
and counts nothing else. So half of its count is our `multiplications`, but for those of single elements (gates,
activations), which it leaves out, and for what it takes whole where we count the causal half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operations import COUNTED, Operations, operations
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.bigbird import BigBirdSpec
from ablate.kinds.mixers.blocks import BlocksSpec
from ablate.kinds.mixers.differential_attention import DifferentialAttentionSpec
from ablate.kinds.mixers.extractor import ExtractorSpec
from ablate.kinds.mixers.feature_maps import FastFoodSpec, LinearSpec, PerformerSpec
from ablate.kinds.mixers.gated_linear_attention import GatedLinearAttentionSpec
from ablate.kinds.mixers.generative import GenerativeSpec
from ablate.kinds.mixers.gmm import GmmSpec
from ablate.kinds.mixers.hyena import HyenaSpec
from ablate.kinds.mixers.latent_attention import LatentAttentionSpec
from ablate.kinds.mixers.linformer import LinformerSpec
from ablate.kinds.mixers.native_sparse_attention import NativeSparseAttentionSpec
from ablate.kinds.mixers.path_attention import PathAttentionSpec
from ablate.kinds.mixers.patterns import LocalSpec, LongformerSpec, SparseSpec
from ablate.kinds.mixers.reformer import ReformerSpec
from ablate.kinds.mixers.retention import RetentionSpec
from ablate.kinds.mixers.sinkhorn import SinkhornSpec
from ablate.kinds.mixers.synthesizer import SynthesizerSpec
from ablate.kinds.mixers.token_mixing import FNetSpec, MLPMixerSpec
from ablate.kinds.positions.logit_biases import AlibiSpec
from ablate.nn.model import build_model, model_cost
from ablate.nn.model.block import block_cost
from ablate.nn.model.decoder import Decoder
from ablate.nn.pack import initialise
from ablate.spec.block import BlockSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import MIXERS, MixerSpec

pytestmark = pytest.mark.usefixtures("countable_products")

half = Fraction(1, 2)


def named(name: str) -> MixerSpec:
    return AttentionSpec() if name == "attention" else ExtractorSpec.model_validate({"type": name})


def causal(width: int, heads: int, length: int) -> LayerContext:
    return LayerContext(1, width, heads, depth=1, context=length, causal=True)


def table_3(l: int, d: int, n: int) -> dict[str, tuple[Any, ...]]:  # noqa: E741 (the paper's letter)
    """Multiplications, additions, divisions, exponentiations over a sequence of l tokens (Tables 3 and 4)."""
    return {
        "attention": (
            l**2 * d + 4 * l * d**2 + l * d,
            l**2 * d + 4 * l * d**2 - 4 * l * d - l * n,
            n * l**2 + n * l,
            half * (n * l**2 + n * l),
        ),
        "she": (
            half * l**2 * d**2 + 5 * half * l * d**2 + l * d,
            half * l**2 * d**2 + 5 * half * l * d**2 - 3 * l * d,
            0,
            0,
        ),
        "he": (
            half * l**2 * d + 3 * half * l * d + 3 * l * d**2,
            3 * l * d**2 + half * l**2 * d - 7 * half * l * d,
            0,
            0,
        ),
        "we": (
            half * l**2 * d + 3 * half * l * d + 2 * l * d**2,
            2 * l * d**2 + half * l**2 * d - 5 * half * l * d,
            0,
            0,
        ),
        "me": (half * l**2 * d + half * l * d, half * l**2 * d - half * l * d, 0, 0),
    }


def tables_5_and_6(t: int, d: int, n: int) -> dict[str, tuple[int, ...]]:
    """The same for the one token at length t in inference.

    The paper prints 2td - tn + t + 4d² - 5d - 1 additions for attention, which is right for one head only; its own
    terms (QKᵀ: td - tn; softmax: tn - n; AV: td - d; maps: 4d² - 4d) add up to the formula here.
    """
    return {
        "attention": (2 * t * d + 4 * d**2, 2 * t * d + 4 * d**2 - 5 * d - n, 2 * t * n, t * n),
        "she": (t * d**2 + 2 * d**2 + d, t * d**2 + 2 * d**2 - 3 * d, 0, 0),
        "he": (t * d + 3 * d**2 + d, t * d + 3 * d**2 - 4 * d, 0, 0),
        "we": (t * d + 2 * d**2 + d, t * d + 2 * d**2 - 3 * d, 0, 0),
        "me": (t * d, t * d - d, 0, 0),
    }


def parameters(l: int, d: int) -> dict[str, int]:  # noqa: E741 (the paper's letter)
    return {
        "attention": 4 * d**2,
        "she": l * d**2 + 2 * d**2,
        "he": l * d + 3 * d**2,
        "we": l * d + 2 * d**2,
        "me": l,
    }


@given(length=st.integers(1, 3000), head_width=st.integers(1, 64), heads=st.integers(1, 33))
def test_tables_3_and_4_at_every_size(length: int, head_width: int, heads: int) -> None:
    width = heads * head_width
    for name, expected in table_3(length, width, heads).items():
        cost = named(name).cost(causal(width, heads, length), length)
        counted = (cost.multiplications, cost.additions, cost.divisions, cost.exponentiations)
        assert counted == expected, name
        assert cost.parameters == parameters(length, width)[name]


@given(position=st.integers(1, 3000), head_width=st.integers(1, 64), heads=st.integers(1, 33))
def test_tables_5_and_6_at_every_size(position: int, head_width: int, heads: int) -> None:
    width = heads * head_width
    for name, expected in tables_5_and_6(position, width, heads).items():
        cost = named(name).step_cost(causal(width, heads, 3000), position)
        counted = (cost.multiplications, cost.additions, cost.divisions, cost.exponentiations)
        assert counted == expected, name
        assert cost.parameters == parameters(3000, width)[name]
        assert cost.activations == 0


def test_a_step_of_hyena_meets_all_past_values() -> None:
    """Order 3 at width 5: maps, short filters of 3 lags, two sums over the past, five single products a channel."""
    cost = HyenaSpec(order=3).step_cost(causal(5, 1, 40), 40)
    assert cost.multiplications == 5 * 20 + 5 * 5 + 3 * 20 + 2 * 40 * 5 + 5 * 5


def test_a_step_of_the_causal_token_mlp_reads_the_past() -> None:
    """One hidden unit a token at width 4: it reads 7 tokens for each channel, and the output reads 7 units."""
    cost = MLPMixerSpec().step_cost(causal(4, 1, 9), 7)
    assert cost.multiplications == 4 * (7 + 1 + 7)


def counted_products(module: nn.Module, length: int, width: int) -> int:
    """Half of torch's count for one sequence, attention taken step by step."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        module(torch.zeros(1, 1, length, width))
    total: int = counter.get_total_flops()
    assert total % 2 == 0
    return total // 2


T, D, H = 13, 12, 3
BOTH = LayerContext(1, D, H, depth=2, context=T, causal=False)
HIDDEN_FUTURE = causal(D, H, T)


def test_causal_token_mlp_takes_the_half_below_the_diagonal() -> None:
    spec = MLPMixerSpec(ratio=2 * T / D)  # two hidden units a token
    gelu, above = D * 2 * T, 2 * D * T * (T - 1)  # two maps with two entries for each pair
    below = spec.cost(HIDDEN_FUTURE, T).multiplications - gelu
    assert counted_products(spec.build(HIDDEN_FUTURE), T, D) == below + above


def test_hyena_takes_the_products_that_torch_counts() -> None:
    spec = HyenaSpec(filter_width=8)
    filters = T * (3 * 8 + 2 * 8 * 8 + 8 * D)
    assert counted_products(spec.build(HIDDEN_FUTURE), T, D) == T * (3 * D * D + D * D) + filters
    elementwise = T * (2 * D + D) + T * 3 * 3 * D + 2 * 3 * T * 8 + 2 * T * D  # gates and b, short, sines, window
    points = 30  # the first of 25, 26 ... that is even and has no prime factor above 5
    transforms = spec.cost(HIDDEN_FUTURE, T).multiplications - T * 4 * D * D - filters - elementwise
    assert transforms == pytest.approx(3 * D * points * torch.tensor(points).log2().item() + 4 * D * 16, abs=1)


def test_a_mixer_with_a_field_that_cannot_be_hashed_costs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = BlockSpec(mixer=AttentionSpec())
    cost = block_cost(spec, BOTH, T)
    monkeypatch.setattr(AttentionSpec, "__hash__", None)
    assert block_cost(spec, BOTH, T) == cost


def kept_scalars(module: nn.Module, x: Tensor) -> int:
    """What autograd keeps besides the parameters, each piece of memory once."""
    own = (*module.parameters(), *module.buffers())
    parameters = {tensor.untyped_storage().data_ptr() for tensor in own}
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = module(x)
    assert y.requires_grad
    return sum(storage.nbytes() // 4 for pointer, storage in storages.items() if pointer not in parameters)


def ones(*shape: int) -> Tensor:
    return torch.ones(1, *shape).requires_grad_()


ATTENTION: list[dict[str, Any]] = [
    {},
    {"kv_heads": 1},
    {"output": "identity"},
    {"value": "identity", "output": "identity"},
    {"shaping": "value_skipinit"},
    {"dropout": 0.1},
    {"dropout": 0.1, "shaping": "value_skipinit"},
    {"dropout": 0.1, "softmax": False},
    {"softmax": False},
    {"softmax": False, "output": "identity"},
    {"softmax": False, "matmul_order": "kv_first"},
    {"query_key_norm": "rms"},
    {"query_key_norm": {"kind": "l2", "gain": "none", "temperature": 2}},
    {"query_key_norm": {"kind": "rms", "over": "width"}},
    {"gate": "headwise"},
    {"gate": {"kind": "elementwise", "inputs": 5}},
    {"exclusive": True},
    {"forget": "of_input"},
    {"logits": {"soft_cap": 5}},
    {"logits": {"sinks": True}},
    {"logits": {"sinks": True, "soft_cap": 5}, "gate": "elementwise"},
]


@pytest.mark.parametrize(
    ("spec", "context"),
    [
        *((ExtractorSpec.model_validate({"type": name}), HIDDEN_FUTURE) for name in ("she", "he", "we", "me")),
        (ExtractorSpec(type="he", adjustment=False, output=False), HIDDEN_FUTURE),
        *(
            (AttentionSpec.model_validate(settings), context)
            for settings in ATTENTION
            for context in (BOTH, HIDDEN_FUTURE)
        ),
        (AttentionSpec(), replace(HIDDEN_FUTURE, positions=AlibiSpec())),
        (AttentionSpec(), replace(BOTH, window=3)),
        (LatentAttentionSpec(), HIDDEN_FUTURE),
        (LatentAttentionSpec(query_rank=5), replace(BOTH, window=3)),
        (DifferentialAttentionSpec(), HIDDEN_FUTURE),
        (DifferentialAttentionSpec(kv_heads=1), replace(BOTH, window=4)),
        (FNetSpec(), BOTH),
        (MLPMixerSpec(ratio=2.0), BOTH),
        (MLPMixerSpec(ratio=2.0), HIDDEN_FUTURE),
        (HyenaSpec(), HIDDEN_FUTURE),
        (HyenaSpec(order=4), HIDDEN_FUTURE),
    ],
    ids=lambda value: value.canonical_json() if isinstance(value, MixerSpec) else "",
)
def test_activations_are_what_autograd_keeps_of_each_sequence(spec: MixerSpec, context: LayerContext) -> None:
    """What is kept once for all sequences (a filter, a matrix made of parameters) falls out of the difference."""
    mixer = spec.build(context)
    initialise(mixer, [0])
    kept = kept_scalars(mixer, ones(7, T, D)) - kept_scalars(mixer, ones(3, T, D))
    assert kept == pytest.approx(4 * spec.cost(context, T).activations, abs=13)  # a byte for each token


ANY_HEAD_WIDTH = [spec for spec in MIXERS.members().values() if issubclass(spec, MixerSpec) and spec.any_head_width]


@pytest.mark.parametrize("kind", ANY_HEAD_WIDTH, ids=lambda kind: kind.kind_name())
def test_parameters_are_counted_for_any_head_width(kind: type[MixerSpec]) -> None:
    spec = kind.model_validate({})
    context = replace(BOTH if spec.bidirectional_form else HIDDEN_FUTURE, head_width=6)
    made = sum(parameter.numel() for parameter in spec.build(context).parameters())
    assert spec.cost(context, T).parameters == made


FEATURES: list[MixerSpec] = [
    LinearSpec(), PerformerSpec(), PerformerSpec(kernel="relu"), GmmSpec(), GmmSpec(form="prf"), FastFoodSpec(),
    FastFoodSpec(form="prf"), GenerativeSpec(), GenerativeSpec(form="prf"),
]  # fmt: skip
DECAYING: list[MixerSpec] = [RetentionSpec(), GatedLinearAttentionSpec()]
PATTERNS: list[MixerSpec] = [
    LocalSpec(window=16), LocalSpec(pattern="sliding", window=17), LongformerSpec(window=32, global_tokens=3),
    BigBirdSpec(block=16, random_blocks=2), LinformerSpec(rank=16), ReformerSpec(chunk=16, hashes=2, buckets=16),
]  # fmt: skip
WHOLE: list[MixerSpec] = [
    SparseSpec(stride=16, summary=2), SinkhornSpec(block=16), SynthesizerSpec(), SynthesizerSpec(type="dense"),
    SynthesizerSpec(type="factorised", dot_product=True),
]  # fmt: skip


def contexts_of(specs: Iterable[MixerSpec], width: int, length: int) -> list[tuple[MixerSpec, LayerContext]]:
    """Each kind in each of its forms."""
    return [
        (spec, LayerContext(1, width, 2, depth=5, context=length, causal=causal))
        for spec in specs
        for causal in (True, False)
        if (spec.causal_form if causal else spec.bidirectional_form)
    ]


def named_form(value: MixerSpec | LayerContext) -> str:
    return value.canonical_json() if isinstance(value, MixerSpec) else f"causal_{value.causal}"


def counted(spec: MixerSpec, context: LayerContext) -> int:
    mixer = spec.build(context)
    initialise(mixer, [0])
    return counted_products(mixer, context.context, context.width)


@pytest.mark.parametrize(
    ("spec", "context"),
    [pair for pair in contexts_of(FEATURES, 128, 512) if not pair[1].causal]
    + contexts_of([*PATTERNS, *WHOLE], 32, 256),
    ids=str,
)
def test_multiplications_are_those_that_torch_counts(spec: MixerSpec, context: LayerContext) -> None:
    """It counts no products of single numbers; the ones beside the values of features are a product more to it."""
    assert spec.cost(context, context.context).multiplications == pytest.approx(counted(spec, context), rel=0.05)


@pytest.mark.parametrize(("spec", "context"), contexts_of(PATTERNS, 32, 1024), ids=named_form)
def test_products_of_a_pattern_are_linear_in_the_text(spec: MixerSpec, context: LayerContext) -> None:
    longer = replace(context, context=2048)
    assert 1.9 < counted(spec, longer) / counted(spec, context) < 2.1
    assert counted(spec, longer) < counted(AttentionSpec(), longer)


RECURRENT = [
    MixerSpec.parse(kind)
    for kind in ("channel_mixing", "gated_deltanet", "kimi_delta_attention", "mamba2", "mamba3", "mlstm", "rwkv7")
]


@pytest.mark.parametrize("spec", RECURRENT[:-1], ids=lambda spec: spec.kind_name())
def test_states_take_about_the_products_that_torch_counts_and_keep_what_autograd_keeps(spec: MixerSpec) -> None:
    mixer, cost = spec.build(causal(128, 2, 512)), spec.cost(causal(128, 2, 512), 512)
    initialise(mixer, [0])
    assert cost.multiplications == pytest.approx(counted_products(mixer, 512, 128), rel=0.2)
    within = 0.15 if spec.kind_name() in ("gated_deltanet", "kimi_delta_attention", "mamba3") else 0.08
    assert cost.activations == pytest.approx(kept_scalars(mixer, ones(1, 512, 128)), rel=within)


CHOSEN: list[MixerSpec] = [
    AttentionSpec(blocks=BlocksSpec(size=8, active=4)), NativeSparseAttentionSpec(size=8, active=5, last=32),
    NativeSparseAttentionSpec(size=8, active=6, last=33, kv_heads=1),
]  # fmt: skip
"""Those that read chosen blocks alone."""
PATHS = [PathAttentionSpec(), PathAttentionSpec(rank=None), PathAttentionSpec(forget="of_input")]


@pytest.mark.parametrize(
    ("spec", "context"),
    [*contexts_of([*FEATURES, *DECAYING], 128, 512), *((spec, causal(128, 2, 512)) for spec in (*CHOSEN, *PATHS))],
    ids=named_form,
)
def test_activations_of_long_texts_are_those_that_autograd_keeps(spec: MixerSpec, context: LayerContext) -> None:
    mixer = spec.build(context)
    initialise(mixer, [0])
    kept = kept_scalars(mixer, ones(1, 512, 128))
    assert spec.cost(context, 512).activations == pytest.approx(kept, rel=0.1)


FEW = 4
"""A width at which what is done with single elements is not small beside the maps."""


def few(*, causal: bool, **changes: Any) -> LayerContext:
    return LayerContext(1, FEW, 2, depth=2, context=8, causal=causal, **changes)


def told(cost: Cost) -> dict[str, int]:
    return {name: getattr(cost, name) for name in COUNTED}


def in_forms(specs: Iterable[MixerSpec], *forms: bool) -> list[tuple[MixerSpec, LayerContext]]:
    return [
        (spec, few(causal=causal))
        for spec in specs
        for causal in forms or (True, False)
        if (spec.causal_form if causal else spec.bidirectional_form)
    ]


@pytest.mark.parametrize(
    ("spec", "context"),
    [
        *in_forms(
            AttentionSpec.model_validate(settings)
            for settings in (
                *({}, {"kv_heads": 1}, {"output": "identity"}, {"value": "identity"}, {"query_key_bias": True}),
                *({"scale": "length"}, {"gate": "headwise"}, {"gate": "elementwise"}, {"exclusive": True}),
                {"gate": {"kind": "elementwise", "inputs": 3}, "value": "identity", "output": "identity"},
                {"shaping": "value_skipinit", "exclusive": True, "gate": "headwise", "query_key_bias": True},
            )
        ),
        *in_forms(
            ExtractorSpec.model_validate({"type": name, "adjustment": adjustment, "output": output})
            for name in ("she", "he", "we", "me")
            for adjustment in (True, False)
            for output in (True, False)
        ),
        *in_forms([MixerSpec.parse("channel_mixing")]),
        *in_forms([MLPMixerSpec(ratio=2), LinformerSpec(rank=4), *WHOLE[2:4]], False),
    ],
    ids=named_form,
)
def test_costs_are_the_operations_that_are_counted(spec: MixerSpec, context: LayerContext) -> None:
    """With a hidden future, those of its steps."""
    assert told(spec.cost(context, 8)) == operations(spec.build(context), context)


@pytest.mark.parametrize(
    ("spec", "context"),
    [
        *in_forms(map(MixerSpec.parse, ("gated_deltanet", "kimi_delta_attention", "mamba2", "mlstm")), True),
        *in_forms([GatedLinearAttentionSpec(), RetentionSpec(), DifferentialAttentionSpec(kv_heads=1)], True),
        *in_forms([FastFoodSpec(), GmmSpec(), GenerativeSpec(), LongformerSpec(window=4, global_tokens=2)], False),
        *in_forms([AttentionSpec.model_validate({"query_key_norm": "rms", "output_norm": "rms"})]),
        (FastFoodSpec(), LayerContext(1, 32, 1, depth=2, context=16, causal=False)),  # enough to make a matrix once
    ],
    ids=named_form,
)
def test_costs_are_near_the_operations_that_are_counted(spec: MixerSpec, context: LayerContext) -> None:
    """A norm may divide by its root or multiply with the inverse, a delta rule is written in several ways."""
    cost, counts = spec.cost(context, context.context), operations(spec.build(context), context)
    assert cost.multiplications == pytest.approx(counts["multiplications"], rel=0.1)
    assert cost.additions == pytest.approx(counts["additions"], rel=0.08)
    if not isinstance(spec, RetentionSpec):  # its decays are constants
        assert cost.exponentiations == pytest.approx(counts["exponentiations"], rel=0.12)


GELU = {"ratio": 2, "activation": "gelu"}
OFF = [
    *(("pre_map",), ("post_map",), ("res_map",), ("dynamic",), ("pre_map", "post_map"), ("pre_map", "res_map")),
    *(("post_map", "res_map"), ("dynamic", "pre_map", "res_map"), ("pre_map", "post_map", "res_map")),
]
"""Maps of connected streams that are switched off together."""


def model_with(changes: dict[str, Any], depth: int = 4) -> ModelSpec:
    """A decoder whose blocks have no norms."""
    block = {"mixer": "attention", "mlp": {"kind": "plain", **GELU}, "norm": "none"}
    plain = {"family": "decoder", "depth": depth, "width": FEW, "heads": 2, "positions": "none", "final_norm": "none"}
    model = {name: changes[name] for name in changes.keys() & {"positions", "final_norm"}}
    of_block = {name: changes[name] for name in changes.keys() - model.keys()}
    return ModelSpec.model_validate({**plain, **model, "block": {**block, **of_block}})


def of_a_model(changes: dict[str, Any]) -> tuple[Cost, dict[str, int]]:
    """The cost of a decoder over 8 tokens, and the operations of its steps."""
    spec = model_with(changes)
    built = build_model(spec, vocabulary=7, context=8, seeds=[0]).eval()
    assert isinstance(built, Decoder)
    states: Any = ()
    with torch.no_grad(), Operations() as made, sdpa_kernel(SDPBackend.MATH):
        for place in range(8):
            _, states = built.step(torch.tensor([[[place % 7]]]), place, states)
    return model_cost(spec, vocabulary=7, context=8), {name: made.counts[name] for name in COUNTED}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mlp": {"kind": "gated", **GELU}},
        {"arrangement": "parallel", "skips": {"mixer": 1, "mlp": 0}},
        {"norm": "dynamic_tanh", "final_norm": "dynamic_tanh"},
        {"norm": {"kind": "dynamic_tanh", "place": "sandwich", "shift": True, "bias": False}},
        {"residual": "layer_scale", "norm": {"kind": "dynamic_tanh", "place": "post"}},
        *({"residual": {"kind": "depth_average", **more}} for more in ({}, {"ways": 4}, {"alone": True})),
        *({"residual": kind} for kind in ("embedding_skip", "unet_skip", "hyper_connections")),
        *({"residual": {"kind": "hyper_connections", **dict.fromkeys(off, False)}} for off in OFF),
        {"convolutions": {"before_mixer": 3, "after_mlp": {"taps": 2, "residual": False}}},
        *({"positions": positions} for positions in ("learned", "t5_buckets", {"kind": "t5_buckets", "shared": True})),
    ],
    ids=str,
)
def test_a_model_takes_the_operations_that_are_counted(changes: dict[str, Any]) -> None:
    cost, counts = of_a_model(changes)
    assert told(cost) == counts


@pytest.mark.parametrize(
    ("changes", "divisions"),
    [
        *(({"norm": kind, "final_norm": kind}, 0.4) for kind in ("rms", "layer")),
        *(({"residual": {"kind": "attention_residuals", "query": query}}, 0.45) for query in ("trained", "none")),
        ({"residual": {"kind": "attention_residuals", "weights": "sigmoid"}}, 0.45),
        *(({"residual": kind}, 0.4) for kind in ("manifold_hyper_connections", "normalised")),
        *(({"residual": {"kind": "manifold_hyper_connections", **dict.fromkeys(off, False)}}, 2) for off in OFF[:3]),
        ({"residual": "layer_embeddings"}, 0.5),
        *(({"residual": {"kind": "ngram_memory", "heads": 1, **more}}, 0.4) for more in ({}, {"gate": False})),
        ({"residual": {"kind": "depth_average", "of_input": True}}, 0.12),
        ({"mlp": {"kind": "mixture", **GELU}}, 0.12),
        ({"mlp": {"kind": "mixture", "shared": 1, "gated": False, **GELU}}, 0.2),
        *(({"positions": kind}, 0.12) for kind in ("rotary", "alibi", "sinusoidal")),
    ],
    ids=str,
)
def test_a_model_takes_about_the_operations_that_are_counted(changes: dict[str, Any], divisions: float) -> None:
    """A norm may divide each element by its root, or multiply with the inverse."""
    cost, counts = of_a_model(changes)
    assert cost.multiplications == pytest.approx(counts["multiplications"], rel=0.11)
    assert cost.additions == pytest.approx(counts["additions"], rel=0.08)
    assert cost.exponentiations == pytest.approx(counts["exponentiations"], rel=0.06)
    assert cost.divisions == pytest.approx(counts["divisions"], rel=divisions)


STREAMS = [
    *(("hyper_connections", off) for off in [(), *OFF]),
    *(("manifold_hyper_connections", off) for off in [(), *OFF[:3], OFF[-1]]),
]


@pytest.mark.parametrize(
    ("residual", "within"),
    [
        *(({"kind": kind}, 0.01) for kind in ("plain", "layer_scale", "embedding_skip", "layer_embeddings")),
        *(({"kind": "attention_residuals", "query": query}, 0.01) for query in ("trained", "none")),
        *(({"kind": "depth_average", **more}, 0.01) for more in ({}, {"alone": True}, {"of_input": True})),
        *(({"kind": kind, **more}, 0.12) for kind, more in (("normalised", {}), ("ngram_memory", {"heads": 1}))),
        *(({"kind": kind, **dict.fromkeys(off, False)}, 0.03) for kind, off in STREAMS),
    ],
    ids=str,
)
def test_a_residual_keeps_what_autograd_keeps_for_each_layer(residual: dict[str, Any], within: float) -> None:
    """The difference that two layers and four sequences make."""
    kept, told = [], []
    for spec in (model_with({"residual": residual}, depth) for depth in (2, 4)):
        model = build_model(spec, vocabulary=7, context=8, seeds=[0])
        many, some = (kept_scalars(model, torch.zeros(1, number, 8, dtype=torch.long)) for number in (7, 3))
        kept.append((many - some) / 4)
        told.append(model_cost(spec, vocabulary=7, context=8).activations)
    assert told[1] - told[0] == pytest.approx(kept[1] - kept[0], rel=within)

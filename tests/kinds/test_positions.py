"""Positions against `transformers`: rotary with its scalings and fractions, ALiBi of Bloom, the buckets of T5."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.positions.logit_biases import AlibiSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.kernels.softmax_attention import distance_buckets
from ablate.nn.model import build_model
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sentences import describe
from ablate.spec.sublayers import MixerSpec
from ablate.trained.hugging_face.check import in_double

transformers = pytest.importorskip("transformers")

H, T = 3, 41


def context(head_width: int, *, heads: int = H, causal: bool = False, pack: int = 2) -> LayerContext:
    return LayerContext(pack, heads * head_width, heads, depth=3, context=T, causal=causal, init_std=0.5)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(1, "x"), dtype=torch.float64)


YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
YARN_OURS = {"kind": "yarn", "factor": 8, "original_context": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
PAIRS = 14
"""Pairs of channels in a head, each with a factor; where a fraction of a head is rotated, the first ones are taken."""
LONG = {
    "rope_type": "longrope",
    "factor": 8.0,
    "short_factor": [1 + 0.1 * pair for pair in range(PAIRS)],
    "long_factor": [1 + 0.1 * pair**2 for pair in range(PAIRS)],
}
LONG_OURS = {"kind": "longrope", "factor": 8, "short": LONG["short_factor"], "long": LONG["long_factor"]}
DYNAMIC = {"rope_type": "dynamic", "factor": 3.0}
SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({"kind": "none"}, {"rope_type": "default"}),
    "linear": ({"kind": "linear", "factor": 8}, {"rope_type": "linear", "factor": 8.0}),
    "llama3": ({"kind": "llama3", "original_context": 64}, LLAMA3),
    "longrope, short": ({**LONG_OURS, "original_context": 46}, {**LONG, "original_max_position_embeddings": 46}),
    "longrope, long": ({**LONG_OURS, "original_context": 45}, {**LONG, "original_max_position_embeddings": 45}),
    "longrope, temperature": (
        {**LONG_OURS, "original_context": 45, "temperature": 1.7},
        {**LONG, "original_max_position_embeddings": 45, "attention_factor": 1.7},
    ),
    "dynamic, short": ({"kind": "dynamic", "factor": 3, "original_context": 46}, {"max": 46, **DYNAMIC}),
    "dynamic, long": ({"kind": "dynamic", "factor": 3, "original_context": 17}, {"max": 17, **DYNAMIC}),
    "yarn": (YARN_OURS, YARN),
    "yarn of gpt-oss": ({**YARN_OURS, "whole_pairs": False}, {**YARN, "truncate": False}),
    "yarn, another ramp": ({**YARN_OURS, "fast": 8, "slow": 2}, {**YARN, "beta_fast": 8, "beta_slow": 2}),
    "yarn, temperature": ({**YARN_OURS, "temperature": 1.7}, {**YARN, "attention_factor": 1.7}),
    "yarn of deepseek": (
        {**YARN_OURS, "temperature": 1, "all_channels": 1},
        {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    ),
}


@pytest.mark.independent_check("positions", "rotary", against="rotary embeddings of `transformers` with all scalings")
@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("name", SCALINGS)
def test_rotary_is_that_of_transformers(name: str, fraction: float) -> None:
    """Queries, and the gradient of them, at heads of 28 channels (8, 14 or 28 of them turn)."""
    from transformers import modeling_rope_utils
    from transformers.models.qwen3_next import modeling_qwen3_next

    scaling, theirs = SCALINGS[name]
    pairs = int(28 * fraction) // 2
    scaling = {key: one[:pairs] if isinstance(one, list) else one for key, one in scaling.items()}
    theirs = {key: one[:pairs] if isinstance(one, list) else one for key, one in theirs.items()}
    longest = theirs.pop("max", 512)
    parameters = {"rope_theta": 500.0, "partial_rotary_factor": fraction, **theirs}
    config = transformers.Qwen3NextConfig(head_dim=28, max_position_embeddings=longest, rope_parameters=parameters)
    spec = RotarySpec.model_validate({"base": 500, "fraction": fraction, "scaling": scaling})
    spec.check(context(28))
    x, first = noise(2, 3, H, T, 28).requires_grad_(), 5
    ours = spec.build(context(28))(x, first)
    folded = x.flatten(0, 1)
    places = torch.arange(first, first + T).expand(6, T)
    with in_double(modeling_rope_utils, modeling_qwen3_next):
        rotary = modeling_qwen3_next.Qwen3NextRotaryEmbedding(config).double()
        reference, _ = modeling_qwen3_next.apply_rotary_pos_emb(folded, folded, *rotary(folded, places))
    torch.testing.assert_close(ours, reference.view(x.shape), rtol=1e-11, atol=1e-11)
    direction = noise(*x.shape).flip(0)
    gradients = [torch.autograd.grad((y * direction).sum(), x)[0] for y in (ours, reference.view(x.shape))]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)


def test_the_logits_grow_with_the_temperature_of_all_channels() -> None:
    """DeepSeek's (0.1·a·ln s + 1)², as a factor of the logits that a head width otherwise sets."""
    scaling = {"kind": "yarn", "factor": 40, "original_context": 64, "temperature": 1, "all_channels": 0.7}
    plain = {"kind": "yarn", "factor": 40, "original_context": 64, "temperature": 1}
    wanted = (0.1 * 0.7 * math.log(40) + 1) ** 2
    grown, usual = (
        AttentionSpec().build(LayerContext(1, 16, 2, 1, 7, True, 8, 0.4, RotarySpec.model_validate({"scaling": one})))
        for one in (scaling, plain)
    )
    for mixer in (grown, usual):
        initialise(mixer, [0])
    with torch.no_grad():
        usual.query.weight *= wanted
    x = torch.randn(1, 2, 7, 16, generator=stream(0, "x"))
    torch.testing.assert_close(grown(x), usual(x))
    state: Any = ()
    for place in range(7):
        y, state = grown.step(x[:, :, place : place + 1], place, state)
        torch.testing.assert_close(y, grown(x)[:, :, place : place + 1])


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_translation_longer_than_the_original_context_is_read_again(kind: str) -> None:
    """Token by token, an encoder-decoder says after each prefix what it says of the prefix as a whole."""
    factors = {"short": [1.0, 2.0], "long": [3.0, 5.0]} if kind == "longrope" else {}
    positions = {"kind": "rotary", "scaling": {"kind": kind, "factor": 4, "original_context": 4, **factors}}
    plain = {"family": "encoder_decoder", "depth": 2, "width": 8, "heads": 2, "block": "pre_ln", "init_std": 0.5}
    spec = ModelSpec.model_validate({**plain, "positions": positions, "decoder": {"depth": 2, "mixer": "attention"}})
    model: Any = build_model(spec, vocabulary=11, context=9, seeds=[0]).double().eval()
    source, target = (torch.randint(11, (1, 2, 9), generator=stream(2, name)) for name in ("source", "target"))
    states: Any = ()
    with torch.no_grad():
        memory = model.mix(model.embed(source), None)
        for place in range(9):
            y, states = model.decode_step(memory, target[:, :, place : place + 1], place, states)
            torch.testing.assert_close(y[:, :, 0], model(source, target[:, :, : place + 1])[:, :, place])
        assert not torch.allclose(model(source, target)[:, :, 3], model(source, target[:, :, :4])[:, :, 3])


@pytest.mark.independent_check("positions", "alibi", against="Bloom of `transformers`")
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 71])
def test_slopes_are_those_of_bloom(heads: int) -> None:
    """Bloom's bias is m_h·j; a row of it less its diagonal is -m_h·(i - j)."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, T), heads, torch.float32).view(heads, 1, T)
    spec = AlibiSpec(slopes="bloom")
    ours = spec.build(context(2, heads=heads))(torch.zeros(1, 1, heads, T, 2), T)
    theirs = theirs - theirs.mT
    torch.testing.assert_close(ours.tril(), theirs.tril(), rtol=1e-5, atol=1e-5)
    geometric = AlibiSpec().build(context(2, heads=heads))(torch.zeros(1, 1, heads, T, 2), T)
    same = (heads & (heads - 1)) == 0
    assert torch.allclose(geometric, ours) is same


def test_hard_alibi_is_that_of_the_authors_code() -> None:
    """Its loop: head i of the bounded ones keeps the diagonal and i diagonals below it; the others are not masked."""
    heads, bounded = 5, 3
    ours = AlibiSpec(bounded_heads=bounded).build(context(2, heads=heads))(torch.zeros(1, 1, heads, T, 2), T).tril()
    for head in range(heads):
        mask = torch.full((T, T), -torch.inf)
        for below in range(head + 1 if head < bounded else T):
            mask[range(below, T), range(T - below)] = 0
        torch.testing.assert_close(ours[head], mask.tril())


@pytest.mark.parametrize("mixer", ["attention", {"kind": "attention", "logits": {"sinks": True}}])
def test_hard_alibi_token_by_token(mixer: Any) -> None:
    told = LayerContext(1, 16, 4, 1, 7, causal=True, init_std=0.5, positions=AlibiSpec(bounded_heads=3))
    made: Any = MixerSpec.parse(mixer).build(told)
    initialise(made, [0])
    x = torch.randn(1, 2, 7, 16, generator=stream(0, "x"))
    state: Any = ()
    for place in range(7):
        y, state = made.step(x[:, :, place : place + 1], place, state)
        torch.testing.assert_close(y, made(x)[:, :, place : place + 1])


@pytest.mark.independent_check("positions", "t5_buckets", against="T5 of `transformers`")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (7, 11), (9, 20), (4, 3)])
def test_buckets_are_those_of_t5(buckets: int, longest: int, causal: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    length = 300
    distance = torch.arange(length) - torch.arange(length)[:, None]
    theirs = T5Attention._relative_position_bucket(distance, not causal, buckets, longest)
    ours = distance_buckets(
        length, length, torch.device("cpu"), first=0, buckets=buckets, longest=longest, causal=causal
    )
    assert torch.equal(ours, theirs)


def test_positions_by_layer() -> None:
    """SmolLM3: no positions in every fourth layer; Gemma 3: another base in every third, here."""
    plain = {"family": "decoder", "depth": 8, "width": 8, "heads": 2, "block": {"mixer": "attention"}}
    pattern = [{}, {}, {}, {"positions": "none"}]
    spec = ModelSpec.model_validate({**plain, "positions": {"kind": "rotary", "base": 2e6}, "pattern": pattern})
    told = [spec.layer_context(T, layer=layer).positions for layer in range(8)]
    assert [positions is None for positions in told] == [False, False, False, True] * 2
    build_model(spec, vocabulary=5, context=T, seeds=[0])


REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"kind": "rotary", "fraction": 0.25}, "positions.fraction", "rotate pairs", "even number of channels"),
    ({"kind": "rotary", "fraction": 0}, "positions.fraction", "greater than 0", ""),
    (
        {"kind": "rotary", "scaling": {"kind": "llama3", "low_frequency": 4}},
        "positions.scaling.low_frequency",
        "`low_frequency` must be below `high_frequency`",
        "Set a lower",
    ),
    (
        {"kind": "rotary", "scaling": {"kind": "yarn", "factor": 2, "original_context": 64, "slow": 40}},
        "positions.scaling.slow",
        "`slow` must not be above `fast`",
        "Set a lower `slow`",
    ),
    (
        {
            "kind": "rotary",
            "scaling": {"kind": "longrope", "factor": 2, "original_context": 9, "short": [1] * 3, "long": [1, 2]},
        },
        "positions.scaling.long",
        "each of the 3 rotated pairs of a head needs a factor",
        "Give 3",
    ),
    (
        {
            "kind": "rotary",
            "fraction": 0.4,
            "scaling": {"kind": "dynamic", "factor": 2, "original_context": 9},
        },
        "positions.scaling",
        "needs more than one rotated pair",
        "larger `fraction`",
    ),
    (
        {"kind": "rotary", "scaling": {"kind": "yarn", "original_context": 9}},
        "positions.scaling",
        "the key `factor` is missing",
        "",
    ),
    ({"kind": "t5_buckets", "longest_distance": 16}, "positions.longest_distance", "hold one distance", "17` at least"),
    ({"kind": "alibi", "slopes": "steep"}, "positions.slopes", "geometric", ""),
    ({"kind": "alibi", "slopes": "bloom", "bounded_heads": 1}, "positions.slopes", "has no slopes", ""),
    ({"kind": "alibi", "bounded_heads": 3}, "positions.bounded_heads", "has 2 heads", "bounded_heads: 2"),
]


@pytest.mark.parametrize(("positions", "path", "rule", "remedy"), REFUSED)
def test_impossible_positions_are_refused(positions: dict[str, Any], path: str, rule: str, remedy: str) -> None:
    plain = {"family": "decoder", "depth": 2, "width": 12, "heads": 2, "block": {"mixer": "attention"}}
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate({**plain, "positions": positions}).check_context(T)
    ((loc, sentence),) = describe(caught.value)
    assert ".".join(map(str, loc)) == path
    assert rule in sentence
    assert remedy in sentence


@pytest.mark.parametrize("kind", ["retention", "gated_linear_attention", "fnet", "hyena", "extractor", "synthesizer"])
def test_rotary_is_refused_where_the_mixer_cannot_apply_it(kind: str) -> None:
    family = "encoder" if kind == "fnet" else "decoder"
    plain = {"family": family, "depth": 2, "width": 12, "heads": 2, "block": {"mixer": kind}}
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate({**plain, "positions": "rotary"})
    ((loc, sentence),) = describe(caught.value)
    assert ".".join(map(str, loc)) == "positions"
    assert "positions are applied by the mixer, and" in sentence
    with pytest.raises(ValidationError):
        ModelSpec.model_validate({**plain, "positions": "none", "exceptions": {"last": {"positions": "rotary"}}})


def test_hashes_of_earlier_versions_do_not_change() -> None:
    assert RotarySpec().canonical() == {"kind": "rotary"}
    assert RotarySpec.model_validate({"fraction": 1, "scaling": "none"}).canonical() == {"kind": "rotary"}
    assert AlibiSpec(slopes="geometric").canonical() == {"kind": "alibi"}


@pytest.mark.parametrize("mixer", ["differential_attention", "sparse", "local", "longformer", "linear", "performer"])
def test_a_factor_of_the_logits_is_refused_by_mixers_that_do_not_apply_it(mixer: str) -> None:
    scaling = {"kind": "yarn", "factor": 4, "original_context": 8, "all_channels": 8.0}
    plain: dict[str, Any] = {"family": "decoder", "depth": 1, "width": 16, "heads": 2, "block": {"mixer": mixer}}
    positions: dict[str, Any] = {"kind": "rotary", "scaling": scaling}
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate({**plain, "positions": positions})
    ((loc, sentence),) = describe(caught.value)
    assert loc == ("positions", "scaling", "all_channels")
    assert f"{mixer} does not do so; got 8" in sentence
    ModelSpec.model_validate({**plain, "positions": {**positions, "scaling": {**scaling, "all_channels": 0}}})

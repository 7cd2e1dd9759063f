"""A model whose parts do not fit together is refused with path, rule and remedy, and the remedy works."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ablate.kinds.positions.rotary import RotarySpec
from ablate.spec.model import ModelSpec
from ablate.spec.paths import assign
from ablate.spec.sentences import describe

Settings = dict[str, Any]

CLASSIFIER: Settings = {"family": "encoder", "head": {"pooling": "cls"}}
MASKED: Settings = {"family": "encoder"}
DUAL: Settings = {"family": "dual_encoder", "head": {"features": "interaction"}}
TRANSLATOR: Settings = {"family": "encoder_decoder", "decoder": {"depth": 2, "mixer": "attention"}}

CONTEXT = 16

CASES: dict[str, tuple[Settings, Settings, str, str, str, Settings]] = {
    # base, what is written, path, part of the rule, part of the remedy, what the remedy sets
    "a dual encoder without a head": (
        {"family": "dual_encoder"},
        {},
        "head",
        "a dual_encoder needs a `head`",
        "`head: {pooling: cls}`",
        {"head": {"pooling": "cls"}},
    ),
    "a decoder with a head": (
        {},
        {"head": {"pooling": "mean"}},
        "head",
        "a decoder gives tokens",
        "`family: encoder`",
        {"family": "encoder"},
    ),
    "an encoder-decoder with a head": (
        TRANSLATOR,
        {"head": {"pooling": "mean"}},
        "head",
        "an encoder_decoder gives tokens",
        "Leave `head` out",
        {"head": None},
    ),
    "an encoder-decoder without a decoder": (
        {},
        {"family": "encoder_decoder"},
        "decoder",
        "an encoder_decoder needs a `decoder`",
        "`decoder: {depth: 6, mixer: attention}`",
        {"decoder": {"depth": 6, "mixer": "attention"}},
    ),
    "an encoder with a decoder": (
        TRANSLATOR,
        {"family": "encoder"},
        "decoder",
        "an encoder has no `decoder` part",
        "`family: encoder_decoder`",
        {"family": "encoder_decoder"},
    ),
    "interactions within one text": (
        CLASSIFIER,
        {"head.features": "interaction"},
        "head.features",
        "an encoder reads one",
        "`family: dual_encoder`",
        {"family": "dual_encoder"},
    ),
    "a bidirectional mixer in a decoder": (
        {},
        {"block.mixer": {"kind": "fnet"}},
        "block.mixer.kind",
        "a decoder must hide the future, and fnet has no causal form",
        "lists as causal",
        {"block.mixer": {"kind": "hyena"}},
    ),
    "a bidirectional mixer in one layer of a pattern": (
        {},
        {"pattern": [{}, {"mixer": {"kind": "linformer"}}]},
        "pattern.1.mixer.kind",
        "linformer has no causal form",
        "lists as causal",
        {"pattern": [{}, {"mixer": {"kind": "linear"}}]},
    ),
    "a bidirectional mixer in the decoder of an encoder-decoder": (
        TRANSLATOR,
        {"block.mixer": {"kind": "bigbird"}, "pattern": [{"mixer": {"kind": "attention"}}]},
        "block.mixer.kind",
        "an encoder_decoder must hide the future",
        "lists as causal",
        {"block.mixer": {"kind": "attention"}, "pattern": [{"mixer": {"kind": "bigbird"}}]},
    ),
    "a causal mixer in an encoder": (
        CLASSIFIER,
        {"block.mixer": {"kind": "hyena"}},
        "block.mixer.kind",
        "an encoder sees both sides, and hyena has only a causal form",
        "lists as bidirectional",
        {"block.mixer": {"kind": "fnet"}},
    ),
    "a causal mixer in a dual encoder": (
        DUAL,
        {"exceptions.last": {"mixer": {"kind": "retention"}}},
        "exceptions.last.mixer.kind",
        "a dual_encoder sees both sides",
        "lists as bidirectional",
        {"exceptions.last": {"mixer": {"kind": "linear"}}},
    ),
    "a causal mixer in the encoder of an encoder-decoder": (
        TRANSLATOR,
        {"block.mixer": {"kind": "extractor"}},
        "block.mixer.kind",
        "extractor has only a causal form",
        "lists as bidirectional",
        {"block.mixer": {"kind": "linear"}},
    ),
    "a mixer that cannot read another sequence": (
        TRANSLATOR,
        {"decoder.mixer": {"kind": "linear"}},
        "decoder.mixer.kind",
        "linear cannot read keys and values from another sequence",
        "`decoder.mixer: attention`",
        {"decoder.mixer": {"kind": "attention"}},
    ),
    "rotary positions with a mixer that does not apply them": (
        {},
        {"positions": "rotary", "block.mixer": {"kind": "hyena"}},
        "positions",
        "applied by the mixer, and hyena does not",
        "learned, sinusoidal or none",
        {"positions": "none"},
    ),
    "a window with a mixer that has none": (
        {},
        {"block.window": 3, "block.mixer": {"kind": "hyena"}},
        "block.window",
        "the mixer hyena has no window",
        "Leave `window` out",
        {"block.mixer": {"kind": "attention"}},
    ),
    "a head width in a layer without heads": (
        {},
        {"block.head_width": 3, "block.mixer": {"kind": "hyena"}},
        "block.head_width",
        "hyena has no heads",
        "Leave `head_width` out",
        {"block.mixer": {"kind": "attention"}},
    ),
    "heads that do not share the width, with a mixer that splits it": (
        {},
        {"head_width": 2, "block.mixer": {"kind": "retention"}},
        "head_width",
        "heads of retention share the width",
        "the mixer `attention`",
        {"block.mixer": {"kind": "attention"}},
    ),
    "positions of the embedding in a layer": (
        {},
        {"block.positions": "learned"},
        "block.positions",
        "added to the token embedding, which no layer has",
        "`model.positions`",
        {"block.positions": "none"},
    ),
    "ALiBi with a mixer that does not apply it": (
        MASKED,
        {"positions": "alibi", "block.mixer": {"kind": "local"}},
        "positions",
        "applied by the mixer, and local does not",
        "the mixer `attention`",
        {"block.mixer": {"kind": "attention"}},
    ),
    "heads of the cross-attention that do not divide": (
        {**TRANSLATOR, "heads": 5},
        {"block.mixer": {"kind": "mlp_mixer"}},
        "heads",
        "must divide the width, which is 24",
        "`heads: 4`",
        {"heads": 4},
    ),
    "a parallel block in an encoder-decoder": (
        TRANSLATOR,
        {"block.arrangement": "parallel", "block.skips": {"mlp": 0}},
        "block",
        "sequential, with an MLP, one skip",
        "`post_ln` or `pre_ln`",
        {"block": "pre_ln"},
    ),
    "a second skip in an encoder-decoder": (
        TRANSLATOR,
        {"block.skips": {"mixer": 2}},
        "block",
        "one skip round each part",
        "`post_ln` or `pre_ln`",
        {"block": "post_ln"},
    ),
    "gains in an encoder-decoder": (
        TRANSLATOR,
        {"block.gains": {"mlp_branch": 0.5}},
        "block",
        "no gains",
        "`post_ln` or `pre_ln`",
        {"exceptions": {"0-2": {"gains": {"mlp_branch": 0.5}}}, "block": "post_ln"},  # the encoder may have them
    ),
    "no MLP in an encoder-decoder": (
        TRANSLATOR,
        {"block.mlp": "none", "block.skips": {"mlp": 0}},
        "block",
        "with an MLP",
        "`post_ln` or `pre_ln`",
        {"block": "post_ln"},
    ),
}

IN_CONTEXT: dict[str, tuple[Settings, Settings, str, str, str, Settings]] = {
    "groups that do not divide the heads": (
        {},
        {"block.mixer.kv_heads": 3},
        "block.mixer.kv_heads",
        "must divide the 4 query heads",
        "`kv_heads: 2`",
        {"block.mixer.kv_heads": 2},
    ),
    "more groups than heads": (
        MASKED,
        {"exceptions.1": {"mixer": {"kv_heads": 6}}},
        "exceptions.1.mixer.kv_heads",
        "must divide the 4 query heads",
        "`kv_heads: 4`",
        {"exceptions.1": {"mixer": {"kv_heads": 4}}},
    ),
    "grouped heads with identity values": (
        {},
        {"block.mixer.kv_heads": 2, "block.mixer.value": "identity"},
        "block.mixer.value",
        "have the width 24, and 2 value heads are narrower",
        "`value: dense`",
        {"block.mixer.value": "dense"},
    ),
    "a shaped cross-attention": (
        TRANSLATOR,
        {"decoder.mixer": {"kind": "attention", "shaping": "shaped"}},
        "decoder.mixer.shaping",
        "cross-attention has no diagonal",
        "Leave `shaping` out",
        {"decoder.mixer": {"kind": "attention"}},
    ),
    "rotary positions in heads of odd width": (
        {"heads": 8},
        {"positions": "rotary"},
        "positions",
        "the head width must be even",
        "`model.heads`",
        {"heads": 4},
    ),
    "ALiBi without softmax": (
        {},
        {"positions": "alibi", "pattern": [{"mixer": {"softmax": False}}, {}]},
        "pattern.0.mixer.softmax",
        "softmax, which is off",
        "`softmax: true`",
        {"pattern": [{}]},
    ),
    "a window without an attention matrix": (
        {},
        {"block.window": 2, "block.mixer": {"kind": "attention", "softmax": False, "matmul_order": "kv_first"}},
        "block.mixer.matmul_order",
        "a window masks the attention matrix",
        "`matmul_order: qk_first`",
        {"block.mixer": {"kind": "attention"}},
    ),
    "a window beside a scale that counts all tokens": (
        {},
        {"exceptions": {"last": {"window": 2}}, "block.mixer": {"kind": "attention", "scale": "length"}},
        "exceptions.last.mixer.scale",
        "counts all tokens",
        "another `scale`",
        {"block.mixer": {"kind": "attention"}},
    ),
    "heads that do not fill the width, and no map of the values": (
        {},
        {"head_width": 2, "block.mixer": {"kind": "attention", "value": "identity"}},
        "block.mixer.value",
        "the heads together must have the width",
        "`value: dense`",
        {"block.mixer": {"kind": "attention"}},
    ),
    "a Linformer that is shorter than its input": (
        MASKED,
        {"block.mixer": {"kind": "linformer", "length": CONTEXT - 1}},
        "block.mixer.length",
        f"made for {CONTEXT - 1} tokens, and the model reads up to {CONTEXT}",
        f"at least {CONTEXT}",
        {"block.mixer.length": CONTEXT},
    ),
    "a Linformer without room for the CLS token": (
        CLASSIFIER,
        {"block.mixer": {"kind": "linformer", "length": CONTEXT}},
        "block.mixer.length",
        f"reads up to {CONTEXT + 1}",
        f"at least {CONTEXT + 1}",
        {"block.mixer.length": CONTEXT + 1},
    ),
    "an extractor past its context": (
        {},
        {"block.mixer": {"kind": "extractor", "context": CONTEXT - 1}},
        "block.mixer.context",
        f"inputs may be {CONTEXT} tokens long",
        "Leave `context` out",
        {"block.mixer.context": None},
    ),
    "a synthesizer past its length": (
        MASKED,
        {"block.mixer": {"kind": "synthesizer", "length": CONTEXT - 1}},
        "block.mixer.length",
        f"the model reads up to {CONTEXT}",
        f"at least {CONTEXT}",
        {"block.mixer.length": CONTEXT},
    ),
    "an MLP-Mixer past its length, in the decoder alone": (
        TRANSLATOR,
        {"block.mixer": {"kind": "mlp_mixer", "length": CONTEXT - 1}, "pattern": [{"mixer": {"kind": "attention"}}]},
        "block.mixer.length",
        f"inputs may be {CONTEXT} tokens long",
        "Leave `length` out",
        {"block.mixer.length": CONTEXT},
    ),
}


def model(*parts: Settings) -> Settings:
    plain: Settings = {
        "family": "decoder",
        "depth": 3,
        "width": 24,
        "heads": 4,
        "block": {"mixer": {"kind": "attention"}},
    }
    for path, value in {path: value for part in parts for path, value in part.items()}.items():
        assign(plain, path, value)
    return plain


def told(error: ValidationError) -> tuple[str, str, str]:
    """Path, problem and remedy of the only line of an error."""
    ((loc, sentence),) = describe(error)
    problem, _, advice = sentence.partition(". ")
    return ".".join(str(part) for part in loc), problem, advice


@pytest.mark.parametrize("case", CASES)
def test_a_model_whose_parts_do_not_fit(case: str) -> None:
    base, written, path, rule, remedy, way_out = CASES[case]
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate(model(base, written))
    where, problem, advice = told(caught.value)
    assert where == path
    assert rule in problem
    assert remedy in advice
    ModelSpec.model_validate(model(base, written, way_out))


@pytest.mark.parametrize("case", IN_CONTEXT)
def test_a_mixer_that_does_not_fit_the_model_or_its_inputs(case: str) -> None:
    base, written, path, rule, remedy, way_out = IN_CONTEXT[case]
    spec = ModelSpec.model_validate(model(base, written))
    with pytest.raises(ValidationError) as caught:
        spec.check_context(CONTEXT)
    where, problem, advice = told(caught.value)
    assert where == path
    assert rule in problem
    assert remedy in advice
    ModelSpec.model_validate(model(base, written, way_out)).check_context(CONTEXT)


def test_positions_that_the_mixers_apply_are_not_asked_of_a_cross_attention() -> None:
    spec = ModelSpec.model_validate(model(TRANSLATOR, {"positions": "rotary", "width": 20}))
    assert spec.layer_context(CONTEXT).positions == RotarySpec()
    assert spec.layer_context(CONTEXT, causal=True).positions == RotarySpec()
    assert spec.layer_context(CONTEXT, cross=True).positions is None


def test_mixers_are_reported_the_depth_of_the_stack_that_they_stand_in() -> None:
    spec = ModelSpec.model_validate(model(TRANSLATOR))
    assert spec.layer_context(CONTEXT).depth == 3
    assert spec.layer_context(CONTEXT, causal=True).depth == spec.layer_context(CONTEXT, cross=True).depth == 2


@pytest.mark.parametrize("hidden", [[0], [-3], [8, 0]])
def test_hidden_layers_of_a_head_have_a_width(hidden: list[int]) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate(model(CLASSIFIER, {"head.hidden": hidden}))
    where, problem, _ = told(caught.value)
    assert where == f"head.hidden.{len(hidden) - 1}"
    assert "at least 1" in problem

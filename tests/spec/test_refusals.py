"""Blocks and models whose parts do not fit are refused with path, rule and remedy, and the remedy works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import pytest
from pydantic import ValidationError
from torch import nn

from ablate.kinds.positions.rotary import RotarySpec
from ablate.spec.base import LARGEST, refusal
from ablate.spec.block import BlockSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.paths import assign
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec
from ablate.spec.space_fields import ResourcesSpec
from ablate.spec.sublayers import MIXERS, MixerSpec
from ablate.spec.variant import VariantSpec

Settings = dict[str, Any]
Case = tuple[Settings, str, str, str, Settings]
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
    "loops that overlap": (
        {"depth": 3},
        {"loops": [{"first": 0, "last": 1, "times": 2}, {"first": 1, "last": 2, "times": 2}]},
        "loops.1.first",
        "do not overlap; the one before ends at 1",
        "Let it begin at 2 or later",
        {"loops.1.first": 2},
    ),
    "interactions within one text": (
        CLASSIFIER,
        {"head.features": "interaction"},
        "head.features",
        "an encoder reads one",
        "`family: dual_encoder`",
        {"family": "dual_encoder"},
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
    "gains in an encoder-decoder": (
        TRANSLATOR,
        {"block.gains": {"mlp_branch": 0.5}},
        "block",
        "no gains",
        "`post_ln` or `pre_ln`",
        {"exceptions": {"0-2": {"gains": {"mlp_branch": 0.5}}}, "block": "post_ln"},  # the encoder may have them
    ),
}

IN_CONTEXT: dict[str, tuple[Settings, Settings, str, str, str, Settings]] = {
    "a norm of the outputs of heads of width 1": (
        {"heads": 24},
        {"block.mixer.output_norm": "rms"},
        "block.mixer.output_norm",
        "leaves its sign alone",
        "Leave `output_norm` out",
        {"heads": 12},
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
    "a Linformer without room for the CLS token": (
        CLASSIFIER,
        {"block.mixer": {"kind": "linformer", "length": CONTEXT}},
        "block.mixer.length",
        f"can read at most {CONTEXT - 1} tokens, and inputs have up to {CONTEXT}",
        f"at least {CONTEXT + 1}",
        {"block.mixer.length": CONTEXT + 1},
    ),
    "an extractor past its context": (
        {},
        {"block.mixer": {"kind": "extractor", "context": CONTEXT - 1}},
        "block.mixer.context",
        f"inputs have up to {CONTEXT}",
        "or leave it out",
        {"block.mixer.context": None},
    ),
    "an MLP-Mixer past its length, in the decoder alone": (
        TRANSLATOR,
        {"block.mixer": {"kind": "mlp_mixer", "length": CONTEXT - 1}, "pattern": [{"mixer": {"kind": "attention"}}]},
        "block.mixer.length",
        f"inputs have up to {CONTEXT}",
        f"at least {CONTEXT}",
        {"block.mixer.length": CONTEXT},
    ),
}


ATTENTION: list[Case] = [
    # what is written, path, part of the rule, part of the remedy, what the remedy sets
    (
        {"mixer.matmul_order": "kv_first"},
        "mixer.matmul_order",
        "softmax is applied between",
        "`softmax: false`",
        {"mixer.softmax": False},
    ),
    (
        {"mixer.softmax": False, "mixer.shaping": "shaped"},
        "mixer.shaping",
        "softmax is off",
        "`shaping: value_skipinit`",
        {"mixer.shaping": "value_skipinit"},
    ),
    (
        {"mixer.shaping": {"kind": "value_skipinit", "gamma": 1}},
        "mixer.shaping.gamma",
        "has no gamma",
        "Leave `gamma` out",
        {"mixer.shaping": "value_skipinit"},
    ),
    (
        {"mixer.shaping": {"alpha": 1}},
        "mixer.shaping.alpha",
        "`none` has no alpha",
        "Leave `alpha` out",
        {"mixer.shaping": "none"},
    ),
]

BLOCK: list[Case] = [
    ({"arrangement": "parallel"}, "skips.mlp", "one skip", "`skips.mlp: 0`", {"skips.mlp": 0}),
    (
        {"arrangement": "parallel", "skips": {"mixer": 2, "mlp": 0}},
        "skips.mixer",
        "the same place",
        "0 or 1",
        {"skips.mixer": 1},
    ),
    (
        {"arrangement": "parallel", "skips.mlp": 0, "mlp": "none"},
        "arrangement",
        "nothing that could run beside",
        "`arrangement: sequential`",
        {"arrangement": "sequential"},
    ),
    (
        {"skips.mixer": 0, "gains.mixer_skip": 0.5},
        "gains.mixer_skip",
        "`skips.mixer` is 0",
        "`skips.mixer: 1`",
        {"skips.mixer": 1},
    ),
    (
        {"skips.mlp": 0, "gains.mlp_skip": {"trainable": True}},
        "gains.mlp_skip",
        "`skips.mlp` is 0",
        "`skips.mlp: 1`",
        {"skips.mlp": 1},
    ),
    ({"mlp": "none"}, "skips.mlp", "without MLP", "`skips.mlp: 0`", {"skips.mlp": 0}),
    (
        {"mlp": "none", "skips": {"mixer": 2, "mlp": 0}},
        "skips.mixer",
        "after the MLP",
        "0 or 1",
        {"skips.mixer": 0},
    ),
    (
        {"mlp": "none", "skips.mlp": 0, "gains.mlp_branch": 2},
        "gains.mlp_branch",
        "has no MLP",
        "Leave the gain out",
        {"gains.mlp_branch": 1},
    ),
    ({"norm": {"kind": "none", "place": "post"}}, "norm.place", "has no `place`", "`norm: none`", {"norm": "none"}),
    (
        {"skips.mixer": 0, "gains.mixer_branch": 0},
        "gains.mixer_branch",
        "nothing of the input is left",
        "`skips.mixer: 1`",
        {"skips.mixer": 1},
    ),
]

MODEL: list[Case] = [
    (
        {"exceptions": {"frist": {}}},
        "exceptions.frist",
        "`first`, `last`, an index from 0",
        "one of these forms",
        {"exceptions": {"first": {}}},
    ),
    (
        {"exceptions": {"1-3": {}}},
        "exceptions.1-3",
        "numbered 0 to 2",
        "layers that exist",
        {"exceptions": {"1-2": {}}},
    ),
]


def block(settings: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {"mixer": {"kind": "attention"}}
    for path, value in settings.items():
        assign(plain, path, value)
    return plain


def model(*parts: Settings) -> Settings:
    plain: Settings = {"family": "decoder", "depth": 3, "width": 24, "heads": 4, "block": block({})}
    for path, value in {path: value for part in parts for path, value in part.items()}.items():
        assign(plain, path, value)
    return plain


def refused(read: Callable[[], object]) -> tuple[str, str]:
    """Path and sentence of the only line of the error."""
    with pytest.raises(ValidationError) as caught:
        read()
    ((loc, sentence),) = describe(caught.value)
    return ".".join(str(part) for part in loc), sentence


def assert_refused(read: Callable[[], object], path: str, rule: str, remedy: str) -> None:
    where, sentence = refused(read)
    problem, _, advice = sentence.partition(". ")
    assert where == path
    assert rule in problem
    assert remedy in advice


@pytest.mark.parametrize(("written", "path", "rule", "remedy", "way_out"), [*ATTENTION, *BLOCK])
def test_an_impossible_block(written: Settings, path: str, rule: str, remedy: str, way_out: Settings) -> None:
    assert_refused(lambda: BlockSpec.model_validate(block(written)), path, rule, remedy)
    BlockSpec.model_validate(block({**written, **way_out}))


@pytest.mark.parametrize("case", [*CASES.values(), *(({}, *row) for row in MODEL)])
def test_an_impossible_model(case: tuple[Settings, Settings, str, str, str, Settings]) -> None:
    base, written, path, rule, remedy, way_out = case
    assert_refused(lambda: ModelSpec.model_validate(model(base, written)), path, rule, remedy)
    ModelSpec.model_validate(model(base, written, way_out))


@pytest.mark.parametrize("case", IN_CONTEXT)
def test_a_mixer_that_does_not_fit_the_model_or_its_inputs(case: str) -> None:
    base, written, path, rule, remedy, way_out = IN_CONTEXT[case]
    spec = ModelSpec.model_validate(model(base, written))
    assert_refused(lambda: spec.check_context(CONTEXT), path, rule, remedy)
    ModelSpec.model_validate(model(base, written, way_out)).check_context(CONTEXT)


@pytest.mark.parametrize(
    "settings",
    [
        {"skips.mixer": 0, "gains.mixer_branch": {"init": 0, "trainable": True}},
        {"gains.mixer_branch": 0},
        {"gains.mlp_branch": 0},
        {"skips.mixer": 2, "skips.mlp": 0, "gains.mlp_branch": 0},
        {"arrangement": "parallel", "skips": {"mixer": 0, "mlp": 0}, "gains.mixer_branch": 0},
        {"mixer.query_init": "zero"},
        {"skips": {"mixer": 0, "mlp": 0}, "norm": "none"},
        {"mlp": {"kind": "none"}, "skips.mlp": 0},
    ],
)
def test_unusual_blocks_that_are_possible(settings: dict[str, Any]) -> None:
    BlockSpec.model_validate(block(settings))


@pytest.fixture
def even_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more kind of mixer, which wants an even context."""
    monkeypatch.setattr(MIXERS, "_members", dict(MIXERS.members()))

    class EvenOnly(MixerSpec):
        source: ClassVar[str] = "none"
        complexity: ClassVar[str] = "0"
        kind: Literal["even_only"] = "even_only"

        def build(self, context: LayerContext) -> nn.Module:
            return nn.Identity()

        def cost(self, context: LayerContext, length: int) -> Cost:
            return Cost()

        def check(self, context: LayerContext) -> None:
            if context.context % 2:
                raise refusal(("kind",), "even_only", "even contexts only", "Make the context even.")


@pytest.mark.usefixtures("even_only")
def test_heads_need_not_divide_the_width_of_a_mixer_without_heads() -> None:
    ModelSpec.model_validate(model({"block.mixer": "even_only", "heads": 5}))


@pytest.mark.usefixtures("even_only")
def test_a_mixer_refuses_a_context_that_it_cannot_work_on() -> None:
    task = {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": 31}
    plain = {
        "model": model({"block.mixer": "even_only"}),
        "task": task,
        "training": {"steps": 1, "batch_size": 1, "optimizer": {"lr": 1}},
    }
    path, sentence = refused(lambda: VariantSpec.model_validate(plain))
    assert path == "model.block.mixer.kind"
    assert "even contexts only" in sentence
    VariantSpec.model_validate({**plain, "task": {**task, "context": 32}})
    switches = {"norm": {"rms": {"block.norm": "rms"}, "none": {"block.norm": "none"}}}
    space = {"name": "t", "question": "?", "switches": switches, "design": "leave_one_out", "objective": {"margin": 1}}
    assert (
        refused(lambda: SpaceSpec.model_validate({**space, **plain}))[0] == "model.block.mixer.kind"
    )  # no switch is to blame


@pytest.mark.parametrize(
    ("plain", "path", "message"),
    [
        ({"depth": 2.5}, "depth", "a whole number is expected here; got 2.5."),
        ({"depth": None}, "depth", "a whole number is expected here; got nothing."),
        ({"init_std": float("nan")}, "init_std", "a finite number is expected here; got nan."),
        ({"tied_head": "perhaps"}, "tied_head", "`true` or `false` is expected here; got 'perhaps'."),
        ({"block.mixer.logits": {"soft_cap": 0}}, "block.mixer.logits.soft_cap", "the value should be greater than 0"),
        ({"block.skips": 0}, "block.skips", "a mapping of keys to values is expected here; got 0."),
        (
            {"block.gains": {"mlp_branch": True}},
            "block.gains.mlp_branch",
            "a mapping of keys to values is expected here; got true.",
        ),
        ({"block.skips.mixer": True}, "block.skips.mixer", "a number is expected here; got true."),
        ({"block.mixer": {"kind": 3}}, "block.mixer.kind", "there is no mixer kind `3`."),
        (
            {"block.mixer": ["attention"]},
            "block.mixer",
            "a mixer is a mapping with `kind`, or the bare name of a kind.",
        ),
    ],
)
def test_values_of_the_wrong_type(plain: dict[str, Any], path: str, message: str) -> None:
    where, sentence = refused(lambda: ModelSpec.model_validate(model(plain)))
    assert where == path
    assert sentence.startswith(message)


@pytest.mark.parametrize("every", ["soon", "0 min", -1, 1.5, LARGEST + 1, str(LARGEST + 1)])
def test_an_interval_is_a_number_of_steps_or_of_minutes(every: object) -> None:
    path, sentence = refused(lambda: ResourcesSpec.model_validate({"checkpoint_every": every}))
    assert (path, sentence.partition(";")[0]) == ("checkpoint_every", "an interval is a number of steps, or of minutes")


@pytest.mark.parametrize("part", ["mixer", "mlp", "residual"])
def test_a_model_is_part_of_a_pack_if_all_its_parts_keep_its_members_apart(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ModelSpec.model_validate(model({}))
    assert made.fusable
    monkeypatch.setattr(type(getattr(made.blocks[-1], part)), "pack_aware", False)
    assert not made.fusable


def test_heads_that_share_the_width_may_have_their_width_written() -> None:
    ModelSpec.model_validate(model({"head_width": 6, "block.mixer": {"kind": "retention"}}))


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
    where, problem = refused(lambda: ModelSpec.model_validate(model(CLASSIFIER, {"head.hidden": hidden})))
    assert where == f"head.hidden.{len(hidden) - 1}"
    assert "at least 1" in problem

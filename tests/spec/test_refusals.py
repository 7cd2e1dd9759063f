"""Impossible specs are refused with path, rule and remedy, and the remedy works."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pytest
from pydantic import ValidationError
from torch import nn

from ablate.spec.base import Spec, refusal
from ablate.spec.block import BlockSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.paths import assign
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec
from ablate.spec.sublayers import MIXERS, MixerSpec
from ablate.spec.variant import VariantSpec

Case = tuple[dict[str, Any], str, str, str, dict[str, Any]]

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
        {"mixer.softmax": False, "mixer.logits": {"sinks": True}},
        "mixer.logits",
        "softmax, which is off",
        "`softmax: true`",
        {"mixer.softmax": True},
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
        {"arrangement": "parallel", "skips.mlp": 0, "norm.place": "post"},
        "norm.place",
        "share one norm",
        "`norm.place: pre`",
        {"norm.place": "pre"},
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
    ({"norm": {"kind": "none", "eps": 1e-5}}, "norm.eps", "has no `eps`", "`norm: none`", {"norm": "none"}),
    (
        {"mlp": {"kind": "none", "ratio": 2}, "skips.mlp": 0},
        "mlp.ratio",
        "has no `ratio`",
        "`mlp: none`",
        {"mlp": "none"},
    ),
    (
        {"skips.mixer": 0, "gains.mixer_branch": 0},
        "gains.mixer_branch",
        "nothing of the input is left",
        "`skips.mixer: 1`",
        {"skips.mixer": 1},
    ),
    (
        {"skips.mlp": 0, "gains.mlp_branch": 0},
        "gains.mlp_branch",
        "nothing of the input is left",
        "a gain other than 0",
        {"gains.mlp_branch": 0.1},
    ),
]

MODEL: list[Case] = [
    ({"heads": 5}, "heads", "must divide the width, which is 24", "`heads: 4`", {"heads": 4}),
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
    (
        {"exceptions": {"2-1": {}}},
        "exceptions.2-1",
        "from its first layer to its last",
        "`1-2`",
        {"exceptions": {"1-2": {}}},
    ),
    (
        {"exceptions": {"last": {"arrangement": "parallel"}}},
        "exceptions.last.skips.mlp",
        "one skip",
        "`skips.mlp: 0`",
        {"exceptions.last.skips": {"mlp": 0}},
    ),
    ({"block": "pre_lm"}, "block", "no block of this name", "`pre_ln`", {"block": "pre_ln"}),
]


def block(settings: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {"mixer": {"kind": "attention"}}
    for path, value in settings.items():
        assign(plain, path, value)
    return plain


def model(settings: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {"family": "decoder", "depth": 3, "width": 24, "heads": 4, "block": block({})}
    for path, value in settings.items():
        assign(plain, path, value)
    return plain


def refused(spec: type[Spec], plain: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        spec.model_validate(plain)
    ((loc, sentence),) = describe(caught.value)
    return ".".join(str(part) for part in loc), sentence


@pytest.mark.parametrize(("written", "path", "rule", "remedy", "way_out"), [*ATTENTION, *BLOCK])
def test_an_impossible_block(
    written: dict[str, Any], path: str, rule: str, remedy: str, way_out: dict[str, Any]
) -> None:
    where, sentence = refused(BlockSpec, block(written))
    assert where == path
    problem, _, advice = sentence.partition(". ")
    assert rule in problem
    assert remedy in advice
    BlockSpec.model_validate(block({**written, **way_out}))


@pytest.mark.parametrize(("written", "path", "rule", "remedy", "way_out"), MODEL)
def test_an_impossible_model(
    written: dict[str, Any], path: str, rule: str, remedy: str, way_out: dict[str, Any]
) -> None:
    where, sentence = refused(ModelSpec, model(written))
    assert where == path
    problem, _, advice = sentence.partition(". ")
    assert rule in problem
    assert remedy in advice
    ModelSpec.model_validate(model({**written, **way_out}))


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
def two_sided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more kinds of mixer: one that sees both sides only, and one that wants a power of two."""
    monkeypatch.setattr(MIXERS, "_members", dict(MIXERS.members()))

    class Plainest(MixerSpec):
        source: ClassVar[str] = "none"
        complexity: ClassVar[str] = "0"

        def build(self, context: LayerContext) -> nn.Module:
            return nn.Identity()

        def cost(self, context: LayerContext, length: int) -> Cost:
            return Cost()

    class TwoSided(Plainest):
        causal_form: ClassVar[bool] = False
        kind: Literal["two_sided"] = "two_sided"

    class EvenOnly(Plainest):
        kind: Literal["even_only"] = "even_only"

        def check(self, context: LayerContext) -> None:
            if context.context % 2:
                raise refusal(("kind",), "even_only", "even contexts only", "Make the context even.")


@pytest.mark.usefixtures("two_sided")
def test_a_mixer_without_causal_form_is_refused_where_it_is_written() -> None:
    path, sentence = refused(ModelSpec, model({"block.mixer": "two_sided"}))
    assert path == "block.mixer.kind"
    assert "has no causal form" in sentence
    assert "`ablate kinds`" in sentence
    path, _ = refused(ModelSpec, model({"exceptions": {"last": {"mixer": "two_sided"}}}))
    assert path == "exceptions.last.mixer.kind"


@pytest.mark.usefixtures("two_sided")
def test_heads_need_not_divide_the_width_of_a_mixer_without_heads() -> None:
    ModelSpec.model_validate(model({"block.mixer": "even_only", "heads": 5}))


@pytest.mark.usefixtures("two_sided")
def test_a_mixer_refuses_a_context_that_it_cannot_work_on() -> None:
    task = {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": 31}
    plain = {
        "model": model({"block.mixer": "even_only"}),
        "task": task,
        "training": {"steps": 1, "batch_size": 1, "optimizer": {"lr": 1}},
    }
    path, sentence = refused(VariantSpec, plain)
    assert path == "model.block.mixer.kind"
    assert "even contexts only" in sentence
    VariantSpec.model_validate({**plain, "task": {**task, "context": 32}})
    switches = {"norm": {"rms": {"block.norm": "rms"}, "none": {"block.norm": "none"}}}
    space = {"name": "t", "question": "?", "switches": switches, "design": "leave_one_out", "objective": {"margin": 1}}
    assert refused(SpaceSpec, {**space, **plain})[0] == "model.block.mixer.kind"  # no switch is to blame


@pytest.mark.parametrize(
    ("plain", "path", "message"),
    [
        ({"width": True}, "width", "a number is expected here; got true."),
        ({"depth": "three"}, "depth", "a whole number is expected here; got 'three'."),
        ({"depth": 2.5}, "depth", "a whole number is expected here; got 2.5."),
        ({"depth": None}, "depth", "a whole number is expected here; got nothing."),
        ({"depth": 0}, "depth", "the value should be at least 1; got 0."),
        ({"init_std": float("nan")}, "init_std", "a finite number is expected here; got nan."),
        ({"tied_head": "perhaps"}, "tied_head", "`true` or `false` is expected here; got 'perhaps'."),
        (
            {"final_norm": "rmss"},
            "final_norm",
            "there is no norm kind `rmss`. Did you mean `rms`?",
        ),
        ({"widht": 3}, "widht", "there is no key `widht` here. Did you mean `width`?"),
        ({"block.skips": 0}, "block.skips", "a mapping of keys to values is expected here; got 0."),
        (
            {"block.gains": {"mlp_branch": True}},
            "block.gains.mlp_branch",
            "a mapping of keys to values is expected here; got true.",
        ),
        ({"block.skips.mixer": True}, "block.skips.mixer", "a number is expected here; got true."),
        ({"block.mixer": "atention"}, "block.mixer", "there is no mixer kind `atention`. Did you mean `attention`?"),
        ({"block.mixer": {"kind": 3}}, "block.mixer.kind", "there is no mixer kind `3`."),
        ({"block.mixer": {"softmax": True}}, "block.mixer", "this mixer has no `kind`."),
        (
            {"block.mixer": ["attention"]},
            "block.mixer",
            "a mixer is a mapping with `kind`, or the bare name of a kind.",
        ),
        ({"block": {}}, "block", "the key `mixer` is missing."),
    ],
)
def test_values_of_the_wrong_type(plain: dict[str, Any], path: str, message: str) -> None:
    where, sentence = refused(ModelSpec, model(plain))
    assert where == path
    assert sentence.startswith(message)

"""Equal specs have one canonical form and one hash, however they are written; other specs have others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from annotated_types import BaseMetadata
from families import a_family_for
from hypothesis import given
from hypothesis import strategies as st
from plain_specs import Plain, blocks, models, respelt, shuffled
from pydantic import ValidationError
from ruamel.yaml import YAML

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.plugins import FAMILIES
from ablate.spec.base import Spec
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names
from ablate.spec.reading import load_space
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

GOLDEN = Path(__file__).with_name("golden_specs.json")
"""Hashes of named blocks and of written variants, and the defaults and limits of all fields, as
`PYTHONPATH=tests python tests/spec/test_canonical_form.py` writes them. A hash that changes renames stored variants:
mend the schema, not this file. Hashes leave out defaults, so that another default gives stored trials another meaning:
raise the `code_revision` of its kind with it."""


WRITTEN: Plain = {
    "model": {"family": "decoder", "depth": 3, "width": 32, "heads": 4, "block": {"mixer": "attention"}},
    "task": {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": 32},
    "training": {"steps": 10, "batch_size": 4, "optimizer": {"lr": 0.001}},
}


def model_of(block: Any, **fields: Any) -> ModelSpec:
    return ModelSpec.model_validate(
        {"family": "decoder", "depth": 3, "width": 32, "heads": 4, "block": block, **fields}
    )


def attention(**fields: Any) -> AttentionSpec:
    return AttentionSpec.model_validate({"kind": "attention", **fields})


@given(plain=blocks(), data=st.data())
def test_a_block_comes_back_from_its_forms_whatever_their_order_and_spelling_of_numbers(
    plain: Plain, data: st.DataObject
) -> None:
    block = BlockSpec.model_validate(plain)
    dumped = [block.model_dump(mode="json"), json.loads(block.model_dump_json())]
    for form in (respelt(shuffled(data.draw, plain)), *dumped, block.canonical(), block.editable()):
        again = BlockSpec.model_validate(form)
        assert again == block
        assert again.canonical_json() == block.canonical_json()


@given(one=blocks(), other=blocks())
def test_two_blocks_share_a_hash_exactly_if_they_are_equal(one: Plain, other: Plain) -> None:
    left, right = BlockSpec.model_validate(one), BlockSpec.model_validate(other)
    assert (left.content_hash() == right.content_hash()) == (left == right)


@given(plain=models(), data=st.data())
def test_a_model_keeps_its_hash_however_it_is_written(plain: Plain, data: st.DataObject) -> None:
    model = ModelSpec.model_validate(plain)
    exceptions = plain.pop("exceptions")  # their order has a meaning
    spelt = {**shuffled(data.draw, plain), "exceptions": exceptions}
    for form in (spelt, respelt(spelt), model.model_dump(mode="json"), json.loads(model.model_dump_json())):
        assert ModelSpec.model_validate(form).content_hash() == model.content_hash()
    assert ModelSpec.model_validate(model.editable()).content_hash() == model.content_hash()
    one_by_one = {str(index): block.model_dump(mode="json") for index, block in enumerate(model.blocks)}
    assert ModelSpec.model_validate({**plain, "exceptions": one_by_one}).content_hash() == model.content_hash()


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"shaping": "shaped"}, {"shaping": {"kind": "shaped", "gamma": {"init": 1, "trainable": True}}}),
        ({"shaping": "shaped"}, {"shaping": "shaped", "query_init": "zero"}),
        ({}, {"query_init": "normal"}),
        (
            {"shaping": "value_skipinit"},
            {"shaping": {"kind": "value_skipinit", "beta": {"init": 0.0, "trainable": True, "depth_scaling": "none"}}},
        ),
        ({"value": "identity"}, {"value": {"kind": "identity"}}),
        ({}, {"value": {"kind": "dense", "init": "normal", "bias": False}}),
    ],
)
def test_attention_with_its_defaults_written_out_is_the_same(short: Plain, long: Plain) -> None:
    assert attention(**long) == attention(**short)
    assert attention(**long).content_hash() == attention(**short).content_hash()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"shaping": "shaped"}, {"shaping": {"kind": "shaped", "gamma": 1}}),  # a bare number is a fixed gain
        ({"shaping": "shaped"}, {"shaping": {"kind": "shaped", "beta": {"init": 0, "trainable": True}}}),
        ({"shaping": "shaped"}, {"shaping": "shaped", "query_init": "normal"}),
        ({}, {"query_init": "zero"}),
    ],
)
def test_attention_that_differs_has_another_hash(one: Plain, other: Plain) -> None:
    assert attention(**one).content_hash() != attention(**other).content_hash()


def test_numbers_are_written_by_their_value() -> None:
    yaml = YAML(typ="safe")
    spellings = ["0.001", "1e-3", "1.0e-03", ".001"]
    trainings = [
        TrainingSpec.model_validate(
            {"steps": 10, "batch_size": 4, "optimizer": {"lr": yaml.load(text), "betas": [0.9, 0.999]}}
        )
        for text in spellings
    ]
    assert {training.canonical_json() for training in trainings} == {
        '{"batch_size":4,"optimizer":{"kind":"adamw","lr":0.001},"steps":10}'
    }
    block = BlockSpec.model_validate({"mixer": "attention", "gains": {"mlp_branch": {"init": -0.0, "trainable": True}}})
    assert '"init":0,' in block.canonical_json()
    for number in (2**52, 2**53 - 1, 2**53, 2**54):
        scaled = BlockSpec.model_validate({"mixer": "attention", "gains": {"mlp_branch": {"init": float(number)}}})
        whole = number < 2**53  # of larger ones, not every whole number is one of floating point
        assert (f'"init":{number}}}' in scaled.canonical_json()) == whole


def test_a_default_written_out_makes_no_difference_to_a_variant() -> None:
    variant = VariantSpec.model_validate(WRITTEN)
    dumped = variant.model_dump(mode="json")
    assert dumped["training"]["schedule"] == {"kind": "linear", "warmup": 0.05, "floor": 0.0}
    again = VariantSpec.model_validate_json(json.dumps(dumped))
    assert again.content_hash() == variant.content_hash()
    assert again.trial_key("data", 3) == variant.trial_key("data", 3)


def test_a_trial_key_depends_on_variant_data_and_seed() -> None:
    variant = VariantSpec.model_validate(WRITTEN)
    other = VariantSpec.model_validate({**WRITTEN, "training": {**WRITTEN["training"], "steps": 11}})
    keys = {v.trial_key(data, seed) for v in (variant, other) for data in ("a", "b") for seed in (0, 1)}
    assert len(keys) == 8


HAND_WRITTEN: dict[str, Plain] = {
    "everything at its default": WRITTEN,
    "linear attention, post-norm, two skips": {
        **WRITTEN,
        "model": {
            **WRITTEN["model"],
            "block": {
                "mixer": {"kind": "attention", "softmax": False, "matmul_order": "kv_first", "scale": "length"},
                "norm": {"kind": "layer", "place": "post", "eps": 1e-5},
                "mlp": {"kind": "gated", "ratio": 2, "activation": "gelu"},
                "skips": {"mixer": 2},
            },
        },
    },
    "layers that differ, another schedule": {
        "model": {
            **WRITTEN["model"],
            "exceptions": {"first": {"norm": "none"}, "1-2": {"mixer": {"value": {"kind": "identity"}}}},
            "positions": "sinusoidal",
        },
        "task": {**WRITTEN["task"], "tokenizer": {"kind": "bpe", "vocab_size": 512}},
        "training": {**WRITTEN["training"], "schedule": "cosine", "precision": "bf16", "evaluations": 3},
    },
}


def specs_below(base: type[Spec]) -> Iterator[type[Spec]]:
    for one in base.__subclasses__():
        yield one
        yield from specs_below(one)


def limits_within(annotation: Any) -> list[str]:
    """The limits of what a field contains, such as the items of a list, in their order."""
    inner = [limit for part in get_args(annotation) for limit in limits_within(part)]
    marks = [getattr(mark, "metadata", [mark]) for mark in getattr(annotation, "__metadata__", ())]
    return [*inner, *(repr(limit) for mark in marks for limit in mark if isinstance(limit, BaseMetadata))]


def described(spec: type[Spec]) -> dict[str, str]:
    """The fields of a spec with their defaults and limits."""
    found = {}
    for name, field in spec.model_fields.items():
        made = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
        shown = made.canonical_json() if isinstance(made, Spec) else "required" if field.is_required() else repr(made)
        limits = sorted(repr(limit) for limit in field.metadata if isinstance(limit, BaseMetadata))
        limits += limits_within(field.annotation)
        found[name] = " ".join([shown.partition(" object at ")[0], *limits])
    return found


def golden() -> dict[str, dict[str, Any]]:
    for family in FAMILIES.values():
        family.members()
    ours = [spec for spec in specs_below(Spec) if spec.__module__.startswith("ablate.")]
    return {
        "blocks": {name: model_of(name, family=a_family_for(name)).content_hash() for name in sorted(block_names())},
        "variants": {name: VariantSpec.model_validate(plain).content_hash() for name, plain in HAND_WRITTEN.items()},
        "fields": dict(sorted((spec.__qualname__, described(spec)) for spec in ours)),
    }


def test_hashes_defaults_and_limits_do_not_change() -> None:
    """Of what is recorded; a field or a spec that is new changes the meaning of no stored trial."""
    known, now = json.loads(GOLDEN.read_text(encoding="utf-8")), golden()
    assert now["blocks"] == known["blocks"]
    assert now["variants"] == known["variants"]
    both = known["fields"].keys() & now["fields"].keys()
    assert len(both) > 150
    assert {name: {field: now["fields"][name].get(field) for field in known["fields"][name]} for name in both} == {
        name: known["fields"][name] for name in both
    }


def test_only_a_default_is_left_out_of_the_form_of_a_spec() -> None:
    """Otherwise two variants that differ would share a hash, and one the results of the other."""
    golden()  # imports all kinds
    left_out = 0
    for spec in specs_below(Spec):
        for name, field in spec.model_fields.items():
            if field.exclude_if is not None:
                left_out += 1
                assert field.exclude_if(field.get_default(call_default_factory=True, validated_data={})), name
                assert not field.exclude_if(object()), name
    assert left_out > 20


def test_the_shipped_space_and_the_named_blocks_mean_the_same() -> None:
    space = load_space("simplify_block")
    for name, settings in space.variants.items():
        model = space.resolve(settings).model
        named = ModelSpec.model_validate({**model.model_dump(exclude={"block", "exceptions"}), "block": name})
        assert model.content_hash() == named.content_hash()


def test_a_pattern_has_the_hash_of_its_layers_written_one_by_one() -> None:
    linear = {"mixer": {"softmax": False}}
    pattern = model_of("pre_ln", depth=5, pattern=[linear, linear, {}])
    apart = model_of("pre_ln", depth=5, exceptions={"0-1": linear, "3-4": linear})
    assert [block.mixer.softmax for block in pattern.blocks] == [False, False, True, False, False]
    assert pattern.content_hash() == apart.content_hash()
    assert pattern.structure() == apart.structure()


def test_the_width_of_heads_that_share_that_of_the_model_need_not_be_written() -> None:
    short, long, other = (model_of("pre_ln", **one) for one in ({}, {"head_width": 8}, {"head_width": 4}))
    assert short.width == 8 * short.heads
    assert short.content_hash() == long.content_hash() != other.content_hash()


def test_exceptions_are_laid_over_the_pattern() -> None:
    model = model_of(
        "pre_ln",
        depth=4,
        pattern=[{"mixer": {"softmax": False}}, {"norm": "layer"}],
        exceptions={"first": {"norm": "none"}, "2-3": {"mixer": {"kind": "linear"}}, "last": {"dropout": 0.5}},
    )
    shown = [(block.mixer.kind_name(), block.norm.kind, block.dropout) for block in model.blocks]
    assert shown == [
        ("attention", "none", 0),
        ("attention", "layer", 0),
        ("linear", "rms", 0),
        ("linear", "layer", 0.5),
    ]
    assert [block.mixer.softmax for block in model.blocks[:2]] == [False, True]


def test_the_block_of_a_decoder_is_part_of_the_hash_even_where_no_layer_of_the_encoder_has_it() -> None:
    relu, gelu = ({"mixer": "attention", "mlp": {"activation": name}} for name in ("relu", "gelu"))
    decoder = {"family": "encoder_decoder", "decoder": {"depth": 2, "mixer": "attention"}}
    same_encoder = {"0-2": {"mlp": {"activation": "silu"}}}
    one, other = (model_of(block, exceptions=same_encoder, **decoder) for block in (relu, gelu))
    assert one.blocks == other.blocks
    assert one.content_hash() != other.content_hash()
    assert one.structure() != other.structure()


def test_the_order_of_settings_is_part_of_a_space() -> None:
    space = load_space("simplify_block")
    dumped = space.model_dump(mode="json")
    assert type(space).model_validate(dumped).content_hash() == space.content_hash()
    dumped |= {"variants": {}, "tuned": {}, "claims": []}
    del dumped["switches"]["norm"]["none"]["removes"]
    straight = type(space).model_validate(dumped)
    dumped["switches"]["norm"] = dict(reversed(dumped["switches"]["norm"].items()))
    assert type(space).model_validate(dumped).content_hash() != straight.content_hash()


@pytest.mark.parametrize("evaluations", [1, 2, 3, 7, 20])
def test_evaluations_are_at_steps_of_their_own_up_to_the_last(evaluations: int) -> None:
    for steps in range(1, 12):
        plain = {"steps": steps, "batch_size": 1, "optimizer": {"lr": 1}, "evaluations": evaluations}
        found = TrainingSpec.model_validate(plain).evaluation_steps()
        assert list(found) == sorted({*found})
        assert (len(found), found[0] > 0, found[-1]) == (min(evaluations, steps), True, steps)


def test_specs_are_values() -> None:
    spec = TrainingSpec.model_validate({"steps": 3, "batch_size": 1, "optimizer": {"lr": 1}})
    for one in (spec, spec.optimizer):
        with pytest.raises(ValidationError, match="frozen"):
            one.lr = 2


if __name__ == "__main__":
    parts = [
        f'"{part}": {{\n' + ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()) + "\n}"
        for part, found in golden().items()
    ]
    GOLDEN.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")

"""Equal specs have one canonical form and one hash, however they are written; other specs have others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_specs import Plain, blocks, models, respelt, shuffled
from ruamel.yaml import YAML

from ablate.mixers.attention import AttentionSpec
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names
from ablate.spec.reading import load_space
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

# A hash that changes renames every stored variant: mend the schema, not this table.
GOLDEN_BLOCKS: dict[str, str] = {
    "parallel": "ab5247e2bcb570085ce870c2ce2d9740f0d8a8f6dae7fdd22268f17f0fb4f30c",
    "pre_ln": "23bf65db4e9564e97a20f5682f5ab9eb38448d2debf136c641fb55bcb7cef3e9",
    "sas": "af25e0276a0571a1734a5bfa226134d13f1f20fbb27ed0e0ecd7cea21c08b0a6",
    "sas_p": "e30f443c5c5c2014439c5bdf5db02ae77b9707c47beb4bdd018fdcdc66099f63",
    "sas_p_no_norm": "4a4a81d15ce695b14319c01d319ee93c2a905ed7a5a0e73fe02b45362e69eeec",
    "shaped": "4f2fbfd9e3ebe4590577bb6063e426c0bfa2425e851d27c187ce42c40158a1d5",
    "value_skipinit": "e46a3ddb444ea5fcd8640ef83dfc267b78af654f73cfe4a4d140316021b8a3e7",
}
GOLDEN_VARIANTS: dict[str, str] = {
    "everything at its default": "e1465d03ad33a210524650edf840c57889f91ce5f458b523f12f44ea8bc01fab",
    "linear attention, post-norm, two skips": "e004eccf96ee3e58dde51f5ed0d176663cdbce4914b1248553ce511ccf79d724",
    "layers that differ, another schedule": "1fbcbde11bf1ebce3adc5bb22d9cc69925b771bc968753b1ac5cd63ad4c8c594",
}

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
def test_key_order_and_spelling_of_numbers_make_no_difference_to_a_block(plain: Plain, data: st.DataObject) -> None:
    block = BlockSpec.model_validate(plain)
    again = BlockSpec.model_validate(respelt(shuffled(data.draw, plain)))
    assert again == block
    assert again.canonical_json() == block.canonical_json()


@given(plain=blocks())
def test_a_block_comes_back_from_its_dump_and_from_its_canonical_form(plain: Plain) -> None:
    block = BlockSpec.model_validate(plain)
    forms = [block.model_dump(mode="json"), json.loads(block.model_dump_json()), block.canonical(), block.editable()]
    for form in forms:
        again = BlockSpec.model_validate(form)
        assert again == block
        assert again.content_hash() == block.content_hash()


@given(one=blocks(), other=blocks())
def test_two_blocks_share_a_hash_exactly_if_they_are_equal(one: Plain, other: Plain) -> None:
    left, right = BlockSpec.model_validate(one), BlockSpec.model_validate(other)
    assert (left.content_hash() == right.content_hash()) == (left == right)


@given(plain=models(), data=st.data())
def test_a_model_keeps_its_hash_through_dumps_and_other_spellings(plain: Plain, data: st.DataObject) -> None:
    model = ModelSpec.model_validate(plain)
    exceptions = plain.pop("exceptions")  # their order has a meaning
    spelt = {**shuffled(data.draw, plain), "exceptions": exceptions}
    for form in (spelt, respelt(spelt), model.model_dump(mode="json"), json.loads(model.model_dump_json())):
        assert ModelSpec.model_validate(form).content_hash() == model.content_hash()
    assert ModelSpec.model_validate(model.editable()).content_hash() == model.content_hash()


@given(plain=models())
def test_a_model_has_the_hash_of_the_same_layers_written_one_by_one(plain: Plain) -> None:
    model = ModelSpec.model_validate(plain)
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


def test_every_named_block_has_a_golden_hash() -> None:
    assert set(GOLDEN_BLOCKS) == set(block_names())


@pytest.mark.parametrize("name", sorted(block_names()))
def test_hashes_of_named_blocks_stay(name: str) -> None:
    assert model_of(name).content_hash() == GOLDEN_BLOCKS[name]


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


@pytest.mark.parametrize("name", sorted(HAND_WRITTEN))
def test_hashes_of_written_variants_stay(name: str) -> None:
    assert VariantSpec.model_validate(HAND_WRITTEN[name]).content_hash() == GOLDEN_VARIANTS[name]


def test_the_shipped_space_and_the_named_blocks_mean_the_same() -> None:
    space = load_space("simplify_block")
    for name, settings in space.variants.items():
        model = space.resolve(settings).model
        named = ModelSpec.model_validate({**model.model_dump(exclude={"block", "exceptions"}), "block": name})
        assert model.content_hash() == named.content_hash()


def test_the_order_of_settings_is_part_of_a_space() -> None:
    space = load_space("simplify_block")
    dumped = space.model_dump(mode="json")
    assert type(space).model_validate(dumped).content_hash() == space.content_hash()
    dumped["switches"]["norm"] = dict(reversed(dumped["switches"]["norm"].items()))
    dumped["variants"] = {}
    turned = type(space).model_validate(dumped)
    assert turned.content_hash() != type(space).model_validate({**space.model_dump(), "variants": {}}).content_hash()

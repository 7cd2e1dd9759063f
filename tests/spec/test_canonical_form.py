"""Equal specs have one canonical form and one hash, however they are written; other specs have others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from families import a_family_for
from hypothesis import given
from hypothesis import strategies as st
from plain_specs import Plain, blocks, models, respelt, shuffled
from pydantic import ValidationError
from ruamel.yaml import YAML

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names
from ablate.spec.reading import load_space
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

# A hash that changes renames every stored variant: mend the schema, not this table.
GOLDEN_BLOCKS: dict[str, str] = {
    "bigbird": "433b34dc0cab03b1c3eef3d948910b772c47423fd92c50906f183ff42bcb5381",
    "differential_attention": "316aa4b0a8b3297d4780f96e8ffc4574fd65ff740fbf767e299493a7c2d186d7",
    "extractor_attention": "9ea433546974e38a4e15b24a607709ff209a6458447cda21f835eff7276438d8",
    "fastfood": "9dc68bf6ee3457d200d15e5d285db341935d4349e0fd5103464b475af592bb40",
    "fnet": "eebfb0be50d2954dfc97ac5cb01a3925cc25fe86218a4aff1d2914b2bc792d0f",
    "gated_deltanet": "0e5154ca3d7bc3827c4eac991473589cc24a60777d8605dc337586d460fef6a5",
    "gated_linear_attention": "ae152463a1dc0e92fccb5dee786e5bab3235cbac9381dc3ec429b61289e6515d",
    "generative": "4a946bad2b737d3e173dbb15e84d2af75248cef05adf2a84d6016e379bfe8413",
    "gmm": "ff281efe81c99398ead966e065ae9687045a537054121cb6e047ccc59b658875",
    "he": "7d4ec03f3e7e79809ee97cb93bf54c2c21954885d7ee07094066a632251bfe6a",
    "hyena": "2e366e5d4cb96fabc6ee586e14c4ffda62e521eea28620e68fd8b599522bbab4",
    "kimi_delta_attention": "775a630f4232bd02ab7e9bf72b5c0f317e3c30ee3f2aded9a7513e75917d74c6",
    "latent_attention": "be0c0b3d5371b9c494abb75a08056765d2a66ad283781c83097f47e8b05f983d",
    "linear": "9178e7e49b3e1aa6ac850e3297ab764717bd60163796eca43d5ca701b2e2b8f4",
    "linformer": "a1f6e1f073366c162a00b6954e472c4c36fc3eac5cb6642ec46dd9d465dc73ff",
    "local": "232b4a00ac90848f52f51ab456b791d46300916adffb32d7c92ba42b0f704da3",
    "longformer": "e54ab2b275d7d58b925a0496959c6ac7bb8fd38aa358188c276fd78a28e81897",
    "mamba2": "1bb2b1f73b0b554f47cf122ec801091ccda96356ba1a8d4afbd5a3d01d17e3f2",
    "me": "8e160a48349824f1941a62b6216656d6f47daf0ffe4c969865bb666d34b9ec5e",
    "mlp_mixer": "c7c6543d34354b50c9456176850aa17e43816283c9505f6c368dc77065e6465e",
    "mlstm": "67ae572d92b17ee8f7e170828313a53a188c3ae09b89b751d97f03217fc701f7",
    "op": "3fe3a20f5e911409a8983f0a6b392e97c5b54b412bc9ec1390693807e4b19674",
    "parallel": "ab5247e2bcb570085ce870c2ce2d9740f0d8a8f6dae7fdd22268f17f0fb4f30c",
    "performer": "5f33b18b737d1bd2b3bcad7903c0948aaa794745cb8bb82611303a676c8e55a0",
    "post_ln": "5f8169ef91b448370244596e1e57b8e3f849c4a8a57fcb460ec9cb571c2deff7",
    "pre_ln": "23bf65db4e9564e97a20f5682f5ab9eb38448d2debf136c641fb55bcb7cef3e9",
    "reformer": "8307ae140c0859241eab032d61a60055956852e806003b8ab708aaab5f3d7f00",
    "retention": "dce1af4c5dab9d218232f76d7f31f1a59dee7a467207c4dffe440935929aa663",
    "rwkv7": "fb05a86b29502e73b3a01c591e63d08ef1de2d3806e4cde9ddb369d3b064e3c2",
    "sas": "af25e0276a0571a1734a5bfa226134d13f1f20fbb27ed0e0ecd7cea21c08b0a6",
    "sas_p": "e30f443c5c5c2014439c5bdf5db02ae77b9707c47beb4bdd018fdcdc66099f63",
    "sas_p_no_norm": "4a4a81d15ce695b14319c01d319ee93c2a905ed7a5a0e73fe02b45362e69eeec",
    "sas_p_no_norm_released": "2b4b94a24b8b6a6b9301bbb9fb73649abb1d231f1fb25ec45ce36f1dbe8b26ee",
    "shaped": "4f2fbfd9e3ebe4590577bb6063e426c0bfa2425e851d27c187ce42c40158a1d5",
    "she": "dbb2970771f8aff1207c4ff1df39fbaf2533d7dfc020c149202630213ac18697",
    "simple": "03b266d3f2b2a17ea08b1e2b093a64c1d7f8b035b2f3cc7e8c7eb9be43dbfe6b",
    "simple_post_ln": "3a68e9a6c12859f17bb2bad56eb54245fba42abac7eb31fc68edd06e8ec22e34",
    "simple_post_ln_released": "43c61123ea7fcdea67de3701c26e2bbd62089b487673a2907d2ef8366a0202e7",
    "simple_res": "5443f788ef9775647466d60acde571c65f0ed46ff282f2f23c39d9b9fb4815e4",
    "simple_resl": "fa8088564cb136980bdba223f1536e63c670bfe3e9e87652af2b26065792da15",
    "sinkhorn": "ae2ab3278841df130cb34f20f16294734d2378cd1275b275804680a23809a0c8",
    "sparse": "fb1432bf807091bbcc6223be2899f3df4a1c9902cd697810df66df641d633640",
    "synthesizer": "e5a8e2332d31f0a1155683c7f397e091ec8f5713ca7f67e44f70c0581fa858f5",
    "value_skipinit": "e46a3ddb444ea5fcd8640ef83dfc267b78af654f73cfe4a4d140316021b8a3e7",
    "we": "4a3f50fc0563a7817ce13492d60cbc5423c50698c1944649b8268f0c82668360",
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
def test_hashes_of_named_blocks_do_not_change(name: str) -> None:
    assert model_of(name, family=a_family_for(name)).content_hash() == GOLDEN_BLOCKS[name]


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
def test_hashes_of_written_variants_do_not_change(name: str) -> None:
    assert VariantSpec.model_validate(HAND_WRITTEN[name]).content_hash() == GOLDEN_VARIANTS[name]


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

"""Weights given to other models: identities between models that compute the same, sources of all sorts, refusals."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ablate.errors import DataError, NotFoundError, SpaceError
from ablate.nn.model import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec
from ablate.spec.task import DataShape
from ablate.spec.training import InitFromSpec, TrainingSpec
from ablate.spec.variant import VariantSpec
from ablate.trained.source import SourceWeights, read_source
from ablate.trained.transfer import Transfer, transfer
from ablate.training.members import Member, assemble
from ablate.training.optimizer import PackOptimizer

V, D, H, T = 19, 12, 3, 7
SHAPE = DataShape(V, T, 0)
SIMPLE = {"kind": "attention", "softmax": False, "matmul_order": "kv_first", "scale": "length"}


def spec_of(block: Any = "pre_ln", **fields: Any) -> ModelSpec:
    plain = {"family": "decoder", "depth": 3, "width": D, "heads": H, "positions": "learned", "block": block}
    return ModelSpec.model_validate({**plain, **fields})


def built(spec: ModelSpec, seed: int, context: int = T) -> nn.Module:
    """A model whose every parameter is random."""
    model = build_model(spec, vocabulary=V, context=context, seeds=[seed]).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(seed, name))
    return model


def source_of(spec: ModelSpec, model: nn.Module) -> SourceWeights:
    return SourceWeights("test", model.state_dict(), spec)


def given(spec: ModelSpec, made: Transfer, seed: int = 9) -> nn.Module:
    """A model of another seed with the weights that were transferred."""
    model = built(spec, seed)
    model.load_state_dict(dict(made.tensors), strict=False)
    return model


def taken(spec: ModelSpec, source: SourceWeights, **start: Any) -> Transfer:
    return transfer(spec, SHAPE, source, InitFromSpec.model_validate({"source": "test", **start}))


def logits(model: nn.Module) -> Tensor:
    tokens = torch.randint(V, (1, 2, T), generator=stream(0, "tokens"))
    found: Tensor = model(tokens)
    return found


def assert_same(spec: ModelSpec, model: nn.Module, target: ModelSpec, **start: Any) -> Transfer:
    """A target that was given all of the source computes what the source does."""
    made = taken(target, source_of(spec, model), **start)
    torch.testing.assert_close(logits(given(target, made)), logits(model), rtol=1e-4, atol=1e-5)
    return made


def test_the_same_model_is_copied_whole() -> None:
    made = assert_same(spec_of("sas"), built(spec_of("sas"), 1), spec_of("sas"), map="exact")
    assert made.new == made.unused == ()


def test_simple_attention_gives_its_maps_to_softmax_attention_and_back() -> None:
    """Fig. 2c of arXiv:2111.15588: the shapes of Q, K and V agree."""
    simple, softmax = spec_of({"mixer": SIMPLE}), spec_of({"mixer": "attention"})
    for source, target in ((simple, softmax), (softmax, simple)):
        model = built(source, 1)
        made = taken(target, source_of(source, model))
        assert made.new == made.unused == ()
        ours = given(target, made)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], value, rtol=0, atol=0)
        assert not torch.allclose(logits(ours), logits(model))  # the operator is another


def test_maps_left_out_are_given_as_the_identity() -> None:
    """SAS has W_V = α·I + β·ΔW in the first layer, else none, and no W_P; dense maps can hold them all."""
    sas = spec_of("sas")
    plain = sas.model_dump(mode="json")
    for block in (plain["block"], plain["exceptions"]["first"]):
        block.setdefault("mixer", {})["value"] = {"kind": "dense"}
    plain["block"]["mixer"]["output"] = {"kind": "dense"}
    made = assert_same(sas, built(sas, 1), ModelSpec.model_validate(plain))
    assert made.new == ()


def test_a_head_of_its_own_starts_from_a_tied_one() -> None:
    made = assert_same(spec_of(), built(spec_of(), 1), spec_of(tied_head=False))
    assert "head.weight" in made.copied


def test_a_longer_table_of_positions_gives_its_first_rows() -> None:
    model = built(spec_of(), 1, context=T + 5)
    made = taken(spec_of(), source_of(spec_of(), model))
    torch.testing.assert_close(logits(given(spec_of(), made)), logits(model))


def test_a_deeper_model_repeats_the_layers_of_a_shallower_one() -> None:
    model = built(spec_of(depth=2), 1)
    made = taken(spec_of(depth=5), source_of(spec_of(depth=2), model))
    weights = [made.tensors[f"blocks.{layer}.mlp.up.weight"] for layer in range(5)]
    for layer, before in enumerate([0, 0, 0, 1, 1]):
        torch.testing.assert_close(weights[layer], model.blocks[before].mlp.up.weight.detach())
    assert made.new == made.unused == ()


@pytest.mark.parametrize("arrangement", ["sequential", "parallel"])
def test_removing_a_layer_and_silencing_it_are_the_same(arrangement: str) -> None:
    """Two ways to take out layer 1: leave it out with `layers`, or fix the gains of its branches at 0."""
    skips = {"arrangement": "parallel", "skips": {"mixer": 1, "mlp": 0}} if arrangement == "parallel" else {}
    spec = spec_of({"mixer": "attention", **skips})
    model = built(spec, 1)
    silent = spec_of({"mixer": "attention", **skips}, exceptions={"1": {"gains": {"mixer_branch": 0, "mlp_branch": 0}}})
    shorter = spec_of({"mixer": "attention", **skips}, depth=2)
    by_gains = given(silent, taken(silent, source_of(spec, model)))
    by_layers = given(shorter, taken(shorter, source_of(spec, model), layers=[0, 2]))
    torch.testing.assert_close(logits(by_layers), logits(by_gains))
    assert not torch.allclose(logits(by_layers), logits(model))


@pytest.mark.parametrize(
    "mixer",
    [
        {"query_key_bias": True, "value": {"kind": "dense", "bias": True}},
        SIMPLE,
        {"gate": "headwise"},
        {"gate": "elementwise"},
        {"gate": {"kind": "elementwise", "place": "query"}},
        {"gate": {"kind": "headwise", "place": "value", "input_dependent": False}},
        {"gate": {"kind": "elementwise", "place": "output"}},
        {"forget": "of_input", "shift": ["key", "value"]},
        {"forget": "trained"},
        {"logits": {"sinks": True}},
        {"query_key_norm": {"kind": "layer", "gain": "heads", "temperature": 2.0}},
        {"output_norm": {"kind": "rms", "gain": "heads"}},
        {"value": {"kind": "reparametrised", "alpha": 1.0, "beta": 0.5}},
        {"shaping": "shaped", "query_init": "normal"},
    ],
    ids=str,
)
@pytest.mark.parametrize("convolutions", [{}, {"on_qkv": {"taps": 3}}], ids=str)
def test_removing_heads_and_zeroing_their_rows_of_the_output_map_are_the_same(
    mixer: dict[str, Any], convolutions: dict[str, Any]
) -> None:
    """Every tensor that has an axis of heads gives the share of those that stay, and none starts anew."""
    block = {"mixer": {"kind": "attention", **mixer}, "convolutions": convolutions}
    spec = spec_of(block)
    model = built(spec, 1)
    fewer = spec_of(block, exceptions={"1": {"mixer": {"without_heads": [0, 2]}}})
    made = taken(fewer, source_of(spec, model))
    ours = logits(given(fewer, made))
    with torch.no_grad():
        rows = model.blocks[1].mixer.output.weight.view(1, H, D // H, D)
        rows[:, [0, 2]] = 0
    torch.testing.assert_close(ours, logits(model))
    assert made.new == ()


def test_a_head_that_the_source_lacks_is_new() -> None:
    """As many heads, but others: none passes for another."""
    one, other = (spec_of({"mixer": {"kind": "attention", "without_heads": [head]}}) for head in (0, 1))
    made = taken(other, source_of(one, built(one, 1)))
    assert {name for name in made.copied if "mixer.query" in name or "mixer.output" in name} == set()


LAYERS = [
    ({"pattern": [{"window": 2}, {}]}, [0, 2], (1,)),
    ({"exceptions": {"1": {"positions": "none"}}, "positions": "rotary"}, [1, 2], (0, 1)),
    ({"exceptions": {"first": {"norm_mixer": "none"}}}, [1, 2], (0,)),
    ({"exceptions": {"first": {"norm_mixer": "none"}}}, [0, 2], ()),
    ({"pattern": [{"window": 2}, {}]}, [0, 1], ()),
    ({}, [0, 2], ()),
    ({"block": {"mixer": "differential_attention"}, "positions": "none", "heads": 1}, [0, 2], (1,)),
    ({"block": {"mixer": "attention", "norm": {"kind": "rms", "place": "pre_scaled"}}}, [0, 2], (1,)),
    ({"initialiser": "complete_p"}, [0, 2], (0, 1)),
]


@pytest.mark.parametrize(("more", "layers", "moved"), LAYERS, ids=str)
def test_layers_with_the_settings_of_others_are_told(
    more: dict[str, Any], layers: list[int], moved: tuple[int, ...]
) -> None:
    """Without a layer, a pattern of windows, positions or norms falls on other weights; nothing is measured so."""
    whole, shorter = (spec_of(**{"block": {"mixer": "attention"}, **more}, depth=depth) for depth in (3, 2))
    made = taken(shorter, source_of(whole, built(whole, 1)), layers=layers)
    assert made.moved == moved
    assert ("other settings" in made.sentence()) == bool(moved)


def test_shaped_heads_keep_their_own_gains() -> None:
    dense = {"kind": "attention", "shaping": "shaped", "query_init": "normal"}
    spec = spec_of({"mixer": dense})
    model = built(spec, 1)
    fewer = spec_of({"mixer": {**dense, "without_heads": [1]}})
    made = taken(fewer, source_of(spec, model))
    torch.testing.assert_close(
        made.tensors["blocks.0.mixer.gains.alpha.value"], model.blocks[0].mixer.gains["alpha"].value[:, [0, 2]].detach()
    )


def writer(depth: int = 4, **fields: Any) -> ModelSpec:
    return spec_of(family="encoder_decoder", decoder={"depth": depth, "mixer": "attention"}, **{"depth": 2, **fields})


@pytest.mark.parametrize(
    ("make", "stacks"), [(spec_of, {"blocks"}), (writer, {"blocks", "decoder_blocks"})], ids=["decoder", "writer"]
)
def test_other_kinds_are_not_copied_by_chance(make: Any, stacks: set[str]) -> None:
    """A gated MLP and a plain one, both with `up` of one shape, and mixers whose further tensors mean other things."""
    gated = make(block={"mixer": "attention", "mlp": {"kind": "gated", "ratio": 2}})
    plain = make(block={"mixer": "linear", "mlp": {"kind": "plain", "ratio": 2}})
    made = taken(plain, source_of(gated, built(gated, 1)))
    for names, parts in ((made.new, ("up", "down")), (made.unused, ("up", "gate", "down"))):
        assert {name.split(".")[0] for name in names} == stacks
        assert {name.split(".", 2)[2] for name in names} == {f"mlp.{part}.weight" for part in parts}


@pytest.mark.parametrize(("theirs", "ours", "layers"), [(2, 4, [0, 0, 1, 1]), (4, 2, [0, 2]), (3, 4, [0, 0, 1, 2])])
def test_layers_of_a_decoder_that_reads_an_encoder_are_matched_in_proportion(
    theirs: int, ours: int, layers: list[int]
) -> None:
    model = built(writer(theirs), 1)
    made = taken(writer(ours), source_of(writer(theirs), model))
    assert made.new == ()
    for part in ("mixer.query", "cross.value", "mlp.up"):
        for layer, before in enumerate(layers):
            expected = model.get_submodule(f"decoder_blocks.{before}.{part}").weight
            assert torch.equal(made.tensors[f"decoder_blocks.{layer}.{part}.weight"], expected)


def test_fixed_gains_are_settings_of_the_target() -> None:
    trained = spec_of({"mixer": "attention", "gains": {"mlp_branch": {"init": 0.3, "trainable": True}}})
    fixed = spec_of({"mixer": "attention", "gains": {"mlp_branch": 0.5}})
    made = taken(fixed, source_of(trained, built(trained, 1)))
    assert not any("mlp_branch" in name for name in made.tensors)


def test_exact_refuses_another_model() -> None:
    for theirs, ours in ((spec_of(), spec_of(depth=2)), (spec_of(), spec_of(depth=5)), (writer(2), writer(4))):
        with pytest.raises(SpaceError, match="another model"):
            taken(ours, source_of(theirs, built(theirs, 1)), map="exact")
    with pytest.raises(SpaceError, match="`layers`"):
        taken(spec_of(depth=2), source_of(spec_of(), built(spec_of(), 1)), layers=[0, 3])


def test_files_are_tensors_alone(tmp_path: Path) -> None:
    model = built(spec_of(), 1)
    save_file({name: one.contiguous() for name, one in model.state_dict().items()}, tmp_path / "a.safetensors")
    torch.save(model.state_dict(), tmp_path / "b.pt")
    one, other = (read_source(str(tmp_path / name), tmp_path) for name in ("a.safetensors", "b.pt"))
    assert one.identity() == other.identity()  # the content counts, not the file
    torch.testing.assert_close(logits(given(spec_of(), taken(spec_of(), other))), logits(model))
    (tmp_path / "c.pt").write_bytes(pickle.dumps(print, protocol=2))
    with pytest.raises(DataError, match=r"these weights cannot be read \(it holds more than tensors, or is damaged\)"):
        read_source(str(tmp_path / "c.pt"), tmp_path)
    with pytest.raises(NotFoundError, match="no such file or folder"):
        read_source("./missing.safetensors", tmp_path)


def test_a_folder_of_transformers_starts_a_model(tmp_path: Path) -> None:
    """GPT-2 as it is, and BERT into a SimpleTRON of its shape: every tensor has a place."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": V, "num_hidden_layers": 2, "num_attention_heads": H}
    torch.manual_seed(0)
    gpt = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=V, n_positions=T, n_embd=D, n_layer=2, n_head=H, bos_token_id=0, eos_token_id=0
        )
    ).eval()
    gpt.save_pretrained(tmp_path / "gpt")
    source = read_source(str(tmp_path / "gpt"), tmp_path)
    assert source.model is not None
    tokens = torch.randint(V, (1, 2, T), generator=stream(0, "tokens"))
    with torch.no_grad():
        theirs = gpt(tokens[0]).logits
    torch.testing.assert_close(
        logits(given(source.model, taken(source.model, source)))[0], theirs, rtol=1e-4, atol=1e-4
    )

    config = transformers.BertConfig(
        **sizes, hidden_size=D, intermediate_size=2 * D, max_position_embeddings=T, pad_token_id=0
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    source = read_source(str(tmp_path / "bert"), tmp_path)
    assert source.model is not None
    plain = source.model.model_dump(mode="json")
    plain["block"]["mixer"] |= {"softmax": False, "matmul_order": "kv_first", "scale": "length"}
    made = taken(ModelSpec.model_validate(plain), source)
    assert made.new == made.unused == ()


def variant(**training: Any) -> VariantSpec:
    plain = {"steps": 3, "batch_size": 2, "optimizer": {"lr": 0.1}, **training}
    task = {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": T}
    return VariantSpec.model_validate({"model": spec_of(), "task": task, "training": plain})


def test_frozen_parts_keep_their_weights_and_have_no_state() -> None:
    frozen = variant(freeze=["mixer.query", "embedding", "blocks.2.mlp"])
    model = assemble([Member(frozen, 0), Member(frozen, 1)], SHAPE)
    optimizer = PackOptimizer(model, [frozen.training] * 2)
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    optimizer.set_rates(2)
    model(torch.randint(V, (2, 2, T), generator=stream(0, "t"))).square().mean().backward()
    optimizer.step()
    kept = {name for name, one in model.named_parameters() if torch.equal(one, before[name])}
    expected = {f"blocks.{layer}.mixer.query.weight" for layer in range(3)} | {"embedding.weight"}
    assert kept == expected | {"blocks.2.mlp.up.weight", "blocks.2.mlp.down.weight"}
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if name in kept)
    states = sum(one["exp_avg"].numel() for one in optimizer.rule.state.values())
    assert states == sum(one.numel() for name, one in before.items() if name not in kept)


def test_members_of_a_pack_start_from_their_own_sources() -> None:
    sources = [built(spec_of(), seed) for seed in (3, 4)]
    starts = [taken(spec_of(), source_of(spec_of(), one)).tensors for one in sources]
    plain = variant()
    members = [Member(plain, 0, starts[0]), Member(plain, 1), Member(plain, 2, starts[1])]
    pack = assemble(members, SHAPE).eval()
    tokens = torch.randint(V, (1, 2, T), generator=stream(0, "tokens"))
    theirs = [sources[0], build_model(spec_of(), vocabulary=V, context=T, seeds=[1]), sources[1]]
    for ours, model in zip(pack(tokens.expand(3, -1, -1)), theirs, strict=True):
        torch.testing.assert_close(ours, model.eval()(tokens)[0], rtol=1e-4, atol=1e-5)


def test_the_hash_knows_the_content_and_not_the_path() -> None:
    known = {"source": "/a/b.safetensors", "identity": "0123"}
    one, moved, other, random = (
        variant(**({} if start is None else {"init_from": start})).content_hash()
        for start in (known, {**known, "source": "/c"}, {**known, "identity": "4567"}, None)
    )
    assert one == moved
    assert len({one, other, random}) == 3
    assert TrainingSpec.model_validate(variant().training.model_dump()).canonical_json() == (
        '{"batch_size":2,"optimizer":{"kind":"adamw","lr":0.1},"steps":3}'
    )


def test_a_model_of_text_takes_the_embedding_of_a_masked_one() -> None:
    """Which has one id more, the mask; any other difference of vocabularies has no meaning."""
    spec = spec_of()
    for more, copied in ((1, True), (2, False), (-1, False)):
        source = source_of(spec, build_model(spec, vocabulary=V + more, context=T, seeds=[0]))
        made = taken(spec, source)
        assert ("embedding.weight" in made.copied) == copied
        if copied:
            assert torch.equal(made.tensors["embedding.weight"], source.tensors["embedding.weight"][:, :V])


@pytest.mark.parametrize("mapping", ["exact", "auto"])
@pytest.mark.parametrize("known", [False, True], ids=["tensors alone", "with its spec"])
def test_a_decoder_may_be_deeper_than_its_encoder(mapping: str, known: bool) -> None:
    spec = writer()
    model = built(spec, 1)
    made = taken(spec, SourceWeights("test", model.state_dict(), spec if known else None), map=mapping)
    assert made.new == made.unused == ()
    for name, value in made.tensors.items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    "content",
    [
        b"hello world this is text",
        b"",
        b"\x80\x02}q\x00.",
        b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00K\x05.",
        b"(lp0\nS'a'\np1\na.",
        b"\x80\x02h\x05.",
        b"PK\x03\x04" + bytes(range(200)),
    ],
)
def test_a_damaged_file_is_reported(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "damaged.pt").write_bytes(content)
    with pytest.raises(DataError, match="Save the `state_dict` with safetensors"):
        read_source(str(tmp_path / "damaged.pt"), tmp_path)

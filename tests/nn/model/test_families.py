"""Encoders, dual encoders and encoder-decoders: pooling, heads, masks, padding, dropout, counted parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from every_pair import every_pair
from torch import Tensor, nn

from ablate.nn.model import build_model, model_cost
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec

V, D, H, T, S, C = 13, 12, 2, 7, 5, 3

Fields = dict[str, Any]

MASKED: Fields = {"family": "encoder"}
CLASSIFIER: Fields = {"family": "encoder", "head": {"pooling": "cls"}}
DUAL: Fields = {"family": "dual_encoder", "head": {"pooling": "cls"}}
TRANSLATOR: Fields = {"family": "encoder_decoder", "decoder": {"depth": 3, "mixer": "attention"}}


def spec_of(*parts: Fields) -> ModelSpec:
    plain: Fields = {"family": "decoder", "depth": 2, "width": D, "heads": H, "block": "pre_ln"}
    return ModelSpec.model_validate({name: value for part in (plain, *parts) for name, value in part.items()})


def build(*parts: Fields, seeds: tuple[int, ...] = (0,)) -> Any:
    """A model in float64 whose every parameter is random."""
    model = build_model(spec_of(*parts), vocabulary=V, context=T, classes=C, seeds=seeds).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for k, seed in enumerate(seeds):
                parameter[k] += 0.3 * torch.randn(
                    parameter.shape[1:], generator=stream(seed, name), dtype=torch.float64
                )
    return model


def tokens(name: str, length: int, pack: int = 1) -> Tensor:
    return torch.randint(V, (pack, 2, length), generator=stream(0, name))


def upto(*lengths: int, of: int) -> Tensor:
    """Real tokens first: [1, B, T]."""
    return (torch.arange(of) < torch.tensor(lengths)[:, None])[None]


def head(pooling: str, **more: Any) -> Fields:
    return {"head": {"pooling": pooling, **more}}


def body(model: Any, text: Tensor, padding: Tensor | None = None) -> Tensor:
    """Embedding, blocks and norm of a model without CLS token."""
    x = model.embedding(text) + model.positions.weight[:, None, : text.shape[-1]]
    for block in model.blocks:
        x = block(x, padding)
    return model.norm(x)


@pytest.mark.parametrize("hidden", [[], [8], [8, 5]], ids=str)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_a_classifier_is_its_equation(activation: str, hidden: list[int]) -> None:
    model = build(CLASSIFIER, head("mean", hidden=hidden, activation=activation))
    text = tokens("text", T)
    x = body(model, text).mean(2)
    for index, layer in enumerate(model.head.layers):
        x = x @ layer.weight + layer.bias[:, None]
        if index < len(hidden):
            x = getattr(F, activation)(x)
    assert [layer.weight.shape[2] for layer in model.head.layers] == [*hidden, C]
    torch.testing.assert_close(model(text), x)


def test_the_cls_token_is_learnt_starts_at_zero_and_gets_no_position() -> None:
    fresh = build_model(spec_of(CLASSIFIER), vocabulary=V, context=T, classes=C, seeds=[0])
    assert not fresh.cls.weight.any()
    assert isinstance(fresh.cls.weight, nn.Parameter)
    model = build(CLASSIFIER)
    text = tokens("text", T)
    x = model.embedding(text) + model.positions.weight[:, None]
    x = torch.cat([model.cls.weight.expand(1, 2, 1, D), x], 2)
    for block in model.blocks:
        x = block(x)
    torch.testing.assert_close(model(text), model.head(model.norm(x)[:, :, 0]))


def test_the_cls_token_may_start_as_embeddings_do() -> None:
    head = {"pooling": "cls", "start": "normal"}
    wide = spec_of(CLASSIFIER, {"head": head, "init_std": 0.1, "width": 400})
    started = build_model(wide, vocabulary=V, context=T, classes=C, seeds=[0])
    assert started.cls.weight.std().item() == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "first"])
def test_a_text_is_classified_as_if_its_padding_were_not_there(pooling: str, padded: bool) -> None:
    """Right padding takes no part in anything, so a text gives the same alone."""
    model = build(CLASSIFIER, head(pooling))
    text = tokens("text", T)
    lengths = (3, 6) if padded else (T, T)
    batch = model(text, upto(*lengths, of=T) if padded else None)
    for b, length in enumerate(lengths):
        torch.testing.assert_close(batch[:, b : b + 1], model(text[:, b : b + 1, :length]))


PADDABLE: dict[str, Fields] = {
    "attention": {},
    "post-LN": {"block": "post_ln", "dropout": 0.1},
    "simple": {"block": "simple"},
    "shaped, rotary": {"block": "sas", "positions": "rotary"},
    "alibi, groups": {"block": {"mixer": {"kind": "attention", "kv_heads": 1}}, "positions": "alibi"},
    "linear": {"block": "linear"},
    "two mixers": {"pattern": [{"mixer": {"kind": "linear"}}, {}], "positions": "sinusoidal"},
}

PADDINGS = {
    "right": torch.tensor([[[True] * 3 + [False] * 4, [True] * 6 + [False]]]),
    "left": torch.tensor([[[False] * 4 + [True] * 3, [False] + [True] * 6]]),
    "both": torch.tensor([[[False, True, True, False, True, False, False], [False] * 6 + [True]]]),
}


@every_pair({"name": PADDABLE, "pooling": ["cls", "mean", "first"], "side": PADDINGS})
def test_the_contents_of_padding_never_change_a_class(name: str, pooling: str, side: str) -> None:
    real, other_real = PADDINGS[side], PADDINGS["right"]
    one, other, second = (tokens(text, T) for text in ("one", "other", "second"))
    assert not torch.equal(one[~real], other[~real])
    single = build(CLASSIFIER, head(pooling), PADDABLE[name])
    changed = torch.where(real, one, other)
    torch.testing.assert_close(single(one, real), single(changed, real))
    both = build(DUAL, head(pooling, features="interaction"), PADDABLE[name])
    torch.testing.assert_close(both(one, second, real, other_real), both(changed, second, real, other_real))
    torch.testing.assert_close(both(second, one, other_real, real), both(second, changed, other_real, real))


@pytest.mark.parametrize("features", ["pair", "interaction"])
def test_a_dual_encoder_reads_both_texts_by_one_encoder(features: str) -> None:
    """[a, b], or [a, b, a∘b, a-b]; the texts may have different lengths."""
    model = build(DUAL, head("mean", features=features, hidden=[8], activation="relu"))
    one, other = tokens("one", T), tokens("other", S)
    a, b = body(model, one).mean(2), body(model, other).mean(2)
    parts = [a, b, a * b, a - b] if features == "interaction" else [a, b]
    torch.testing.assert_close(model(one, other), model.head(torch.cat(parts, -1)))
    assert model.head.layers[0].weight.shape[1] == D * len(parts)


def test_one_matrix_embeds_source_and_target_and_gives_the_logits() -> None:
    model = build(TRANSLATOR)
    assert [name for name, parameter in model.named_parameters() if V in parameter.shape] == ["embedding.weight"]
    apart = build(TRANSLATOR, {"tied_head": False})
    assert {name for name, parameter in apart.named_parameters() if V in parameter.shape} == {
        "embedding.weight",
        "head.weight",
    }


@pytest.mark.parametrize("parts", [MASKED, CLASSIFIER, DUAL, TRANSLATOR], ids=["masked", "class", "dual", "translator"])
def test_embeddings_are_scaled_by_the_root_of_the_width(parts: Fields) -> None:
    model = build(parts, {"embedding_scale": "sqrt_width", "positions": "sinusoidal"})
    text = tokens("text", T)
    expected = D**0.5 * model.embedding.weight[0][text[0]] + model.positions.table
    torch.testing.assert_close(model.embed(text)[0], expected)


@pytest.mark.parametrize("parts", [MASKED, CLASSIFIER, DUAL, TRANSLATOR], ids=["masked", "class", "dual", "translator"])
def test_members_of_a_pack_are_the_models_of_their_seeds(parts: Fields) -> None:
    seeds = (3, 1, 4)
    pack = build(parts, seeds=seeds)
    two = parts in (DUAL, TRANSLATOR)
    texts = [tokens(name, T, pack=3) for name in (("one", "other") if two else ("one",))]
    paddings = [upto(3, 6, of=T).expand(3, -1, -1) for _ in texts]
    together = pack(*texts, *paddings)
    for k, seed in enumerate(seeds):
        alone = build(parts, seeds=(seed,))(*(each[k : k + 1] for each in (*texts, *paddings)))
        torch.testing.assert_close(together[k], alone[0], rtol=1e-9, atol=1e-9)


class Dropped:
    """Stands for dropout in training: notes what it is given, with which probability, and lets it through."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, float]] = []

    def __call__(self, x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
        assert training
        self.seen.append((x.detach(), p))
        return x


@pytest.mark.parametrize("place", ["pre", "post"])
def test_dropout_applies_to_embeddings_and_to_every_sub_layer_of_both_stacks(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """arXiv:1706.03762, §5.4: on each sub-layer's output before the sum, on embedding plus position; nowhere else."""
    block = {"mixer": "attention", "norm": {"kind": "layer", "place": place}, "dropout": 0.2}
    model = build(TRANSLATOR, {"block": block, "dropout": 0.3, "positions": "sinusoidal"}).train()
    outputs: list[Tensor] = []
    for one in model.blocks:
        for part in (one.mixer, one.mlp):
            part.register_forward_hook(lambda module, given, result: outputs.append(result.detach()))
    for one in model.decoder_blocks:
        for part in (one.mixer, one.cross, one.mlp):
            part.register_forward_hook(lambda module, given, result: outputs.append(result.detach()))
    dropped = Dropped()
    monkeypatch.setattr(F, "dropout", dropped)
    source, target = tokens("source", S), tokens("target", T)
    model(source, target)
    embeddings = [x for x, p in dropped.seen if p == 0.3]
    torch.testing.assert_close(embeddings, [model.embed(source), model.embed(target)])
    torch.testing.assert_close([x for x, p in dropped.seen if p == 0.2], outputs)
    assert len(dropped.seen) == 2 + 2 * 2 + 3 * 3


FAMILIES: dict[str, Fields] = {
    "decoder": {},
    "masked": MASKED,
    "class by cls": {**CLASSIFIER, **head("cls", hidden=[8, 5])},
    "class by mean": {**CLASSIFIER, **head("mean")},
    "class by first": {**CLASSIFIER, **head("first", hidden=[8])},
    "dual pair": {**DUAL, **head("cls", hidden=[8])},
    "dual interaction": {**DUAL, **head("mean", features="interaction", hidden=[8, 8])},
    "translator": TRANSLATOR,
    "translator of 2017": {**TRANSLATOR, "block": "post_ln", "positions": "sinusoidal", "final_norm": "none"},
    "translator, groups in the cross-attention": {
        **TRANSLATOR,
        "decoder": {"depth": 1, "mixer": {"kind": "attention", "kv_heads": 1, "query_key_norm": "layer"}},
    },
}
FIELDS: dict[str, Fields] = {
    "plain": {},
    "head apart, layer norm": {"tied_head": False, "final_norm": "layer"},
    "rotary": {"positions": "rotary"},
    "no positions, no norm": {"positions": "none", "final_norm": "none"},
    "pattern": {"pattern": [{"mixer": {"kind": "linear"}}, {"mlp": {"kind": "gated", "bias": True}}]},
    "exceptions": {"depth": 4, "exceptions": {"first": {"norm": "layer"}, "1-2": {"mixer": {"kind": "local"}}}},
}


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_counted_parameters_are_real(family: str, fields: str) -> None:
    parts = (FAMILIES[family], FIELDS[fields])
    model = build_model(spec_of(*parts), vocabulary=V, context=T, classes=C, seeds=[0])
    real = sum(parameter.numel() for parameter in model.parameters())
    cost = model_cost(spec_of(*parts), vocabulary=V, context=T, classes=C)
    assert cost.parameters == real
    assert min(cost.multiplications, cost.additions, cost.activations) > 0


def test_parameters_of_the_transformer_of_2017() -> None:
    """Table 3: 65 million with one matrix for 37 000 shared tokens, and 213 million for the big one."""
    biased = {"kind": "dense", "bias": True}
    cross = {"kind": "attention", "query_key_bias": True, "value": biased, "output": biased}
    for width, heads, millions in ((512, 8, 65), (1024, 16, 213)):
        spec = spec_of(
            {
                "family": "encoder_decoder",
                "depth": 6,
                "width": width,
                "heads": heads,
                "block": "post_ln",
                "decoder": {"depth": 6, "mixer": cross},
                "positions": "sinusoidal",
                "final_norm": "none",
            }
        )
        counted = model_cost(spec, vocabulary=37_000, context=512).parameters / 1e6
        assert counted == pytest.approx(millions, rel=0.04)


def test_parts_of_a_decoder_block_start_in_their_own_way() -> None:
    """As those of an encoder block do; the cross-attention starts as the mixer."""
    block = {
        "mixer": "attention",
        "initialiser_mixer": {"kind": "normal", "std": 0.4},
        "initialiser_mlp": "zero_output",
    }
    spec = spec_of(TRANSLATOR, {"block": block, "width": 64})
    model = build_model(spec, vocabulary=V, context=T, seeds=[0])
    spread = {name: tensor.std().item() for name, tensor in model.named_parameters()}
    for part in ("blocks.0.mixer.query", "decoder_blocks.0.mixer.query", "decoder_blocks.0.cross.query"):
        assert spread[f"{part}.weight"] == pytest.approx(0.4, rel=0.1), part
    for part in ("blocks.0.mlp.down", "decoder_blocks.0.mlp.down"):
        assert spread[f"{part}.weight"] == 0, part

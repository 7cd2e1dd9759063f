"""Settings that are each valid and together are invalid, over all families: what is refused, where, and why.

`test_refusals.py` has those whose remedy is tried too.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ablate.spec.paths import assign
from ablate.spec.sentences import describe
from ablate.spec.variant import VariantSpec

Settings = dict[str, Any]

CONTEXT = 9
PLAIN: Settings = {
    "model": {"family": "decoder", "depth": 3, "width": 24, "heads": 4, "block": {"mixer": {"kind": "attention"}}},
    "task": {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": CONTEXT},
    "training": {"steps": 12, "batch_size": 8, "optimizer": {"lr": 1e-3}},
}
MASKED: Settings = {"model.family": "encoder", "task.kind": "masked_language_model"}
CLASSIFIER: Settings = {"model.family": "encoder", "model.head": {"pooling": "cls"}, "task": {"kind": "listops"}}
TRANSLATOR: Settings = {
    "model.family": "encoder_decoder",
    "model.decoder": {"depth": 2, "mixer": "attention"},
    "task": {
        "kind": "translation",
        "data": "builtin:number_words",
        "tokenizer": "bytes",
        "context": CONTEXT,
        "source": "digits",
        "target": "words",
    },
}
PARALLEL: Settings = {"model.block.arrangement": "parallel", "model.block.skips.mlp": 0}
NO_MLP: Settings = {"model.block.mlp": "none", "model.block.skips.mlp": 0}
WINDOWLESS = [
    "channel_mixing",
    "extractor",
    "fastfood",
    "gated_deltanet",
    "gated_linear_attention",
    "generative",
    "gmm",
    "hyena",
    "kimi_delta_attention",
    "linear",
    "local",
    "longformer",
    "mamba2",
    "mamba3",
    "mlp_mixer",
    "mlstm",
    "performer",
    "reformer",
    "retention",
    "rwkv7",
    "sparse",
    "synthesizer",
]
NOT_TURNED = [
    "channel_mixing",
    "extractor",
    "gated_deltanet",
    "hyena",
    "kimi_delta_attention",
    "mamba2",
    "mamba3",
    "mlp_mixer",
    "mlstm",
    "retention",
    "rwkv7",
]
ONE_SIDED = [
    "channel_mixing",
    "extractor",
    "gated_deltanet",
    "gated_linear_attention",
    "hyena",
    "kimi_delta_attention",
    "mamba2",
    "mamba3",
    "mlstm",
    "retention",
    "rwkv7",
]


def mixer(kind: str = "attention", **settings: Any) -> Settings:
    return {"model.block.mixer": {"kind": kind, **settings}}


def mixture(**settings: Any) -> Settings:
    return {"model.block.mlp": {"kind": "mixture", **settings}}


def optimizer(kind: str, **settings: Any) -> Settings:
    return {"training.optimizer": {"kind": kind, "lr": 1e-3, **settings}}


def in_layer(layer: str, **part: Any) -> Settings:
    return {"model.exceptions": {layer: part}}


def attending(**settings: Any) -> Settings:
    return {"kind": "attention", **settings}


CASES: list[tuple[Settings, str, str, str]] = [
    # Settings, path of the refusal, value after "got" ("" where it is a mapping or in the rule), words of the message.
    *(
        ({**CLASSIFIER, "model.head": {"pooling": pooling, "start": "normal"}}, "model.head.start", "'normal'", "token")
        for pooling in ("mean", "first")
    ),
    *(({**mixer(kind), "model.block.window": 3}, "model.block.window", "3", "has no window") for kind in WINDOWLESS),
    *(
        ({**mixer(kind), "model.positions": "rotary"}, "model.positions", "'rotary'", f"and {kind} does not")
        for kind in NOT_TURNED
    ),
    *(
        ({**MASKED, **mixer(kind)}, "model.block.mixer.kind", f"'{kind}'", f"{kind} has only a causal form")
        for kind in ONE_SIDED
    ),
    *(
        (mixer(kind), "model.block.mixer.kind", f"'{kind}'", f"{kind} has no causal form")
        for kind in ("bigbird", "fnet", "linformer", "sinkhorn")
    ),
    *(
        ({**mixer(kind), "model.positions": "alibi"}, "model.positions", "'alibi'", f"and {kind} does not")
        for kind in ("latent_attention", "differential_attention", "local", "linear")
    ),
    # attention
    (mixer(softmax=False, logits={"soft_cap": 5}), "model.block.mixer.logits", "", "softmax, which is off"),
    (
        mixer(softmax=False, logits={"precision": "float32"}),
        "model.block.mixer.logits",
        "",
        "softmax, which is off",
    ),
    (
        {**mixer(softmax=False), "model.positions": "t5_buckets"},
        "model.block.mixer.softmax",
        "false",
        "t5_buckets positions are a bias of the logits",
    ),
    (
        {**mixer(shaping="shaped"), "model.block.window": 2},
        "model.block.mixer.shaping",
        "'shaped'",
        "not over a window",
    ),
    (
        mixer(softmax=False, matmul_order="kv_first", dropout=0.1),
        "model.block.mixer.dropout",
        "0.1",
        "a different Kᵀ·V at each token",
    ),
    (
        mixer(query_key_norm={"kind": "rms", "over": "width", "gain": "heads"}),
        "model.block.mixer.query_key_norm.gain",
        "'heads'",
        "one gain for each of their channels",
    ),
    (mixer(query_key_norm={"gain": "none"}), "model.block.mixer.query_key_norm.kind", "'none'", "need a norm"),
    (
        {**mixer(query_key_norm="layer"), "model.heads": 24},
        "model.block.mixer.query_key_norm",
        "'layer'",
        "of width 1 is 0",
    ),
    ({**mixer(exclusive=True), "model.heads": 24}, "model.block.mixer.exclusive", "true", "no direction besides"),
    (mixer(gate={"kind": "headwise", "inputs": 25}), "model.block.mixer.gate.inputs", "25", "has 24 channels"),
    (mixer(gate={"inputs": 3}), "model.block.mixer.gate.kind", "'none'", "need a gate"),
    (mixer(query_key_norm={"temperature": 2}), "model.block.mixer.query_key_norm.kind", "", "need a norm"),
    (mixer(scale=0), "model.block.mixer.scale", "0", "a number above 0, or a name"),
    (mixer(scale="width"), "model.block.mixer.scale", "'width'", "a number above 0, or a name"),
    (mixer(without_heads=[4]), "model.block.mixer.without_heads", "", "has 4 heads, numbered from 0"),
    (mixer(without_heads=[0, 1, 2, 3]), "model.block.mixer.without_heads", "", "at least one must remain"),
    (mixer(without_heads=[1], kv_heads=2), "model.block.mixer.without_heads", "", "cannot be removed"),
    # tensors that layers share
    (
        in_layer("first", mixer=attending(value_residual={})),
        "model.exceptions.first.mixer",
        "",
        "none of them reads it",
    ),
    (in_layer("first", mixer=attending(shared_kv=0)), "model.exceptions.first.mixer", "", "none of them reads it"),
    (in_layer("1", mixer=attending(shared_kv=1)), "model.exceptions.1.mixer", "", "none of them reads it"),
    (in_layer("1", mixer=attending(shared_kv=2)), "model.exceptions.1.mixer", "", "only what an earlier layer"),
    (in_layer("last", mixer=attending(shared_kv=1)), "model.exceptions.last.mixer", "", "layer 1 publishes nothing"),
    (
        in_layer("last", mixer=attending(value_residual={})),
        "model.exceptions.last.mixer",
        "",
        "layer 0 publishes nothing",
    ),
    (mixer(shared_kv=2), "model.block.mixer", "", "layer 0 reads `keys` of layer 2"),
    (
        {**mixer(shared_kv=0), "model.positions": "rotary", "model.exceptions": {"2": {"positions": "none"}}},
        "model.exceptions.2.mixer",
        "",
        "layer 0 publishes nothing of this name",
    ),
    (mixer(value_residual={"from_layer": 1}), "model.block.mixer", "", "layer 0 reads `values` of layer 1"),
    ({**mixer(value_residual={}), "model.depth": 1}, "model.block.mixer.value_residual", "0", "the model has 1"),
    (
        mixer(shared_kv=0, value_residual={}),
        "model.block.mixer.value_residual",
        "",
        "cannot add terms to them",
    ),
    (mixer(shared_kv=0, value_embedding={}), "model.block.mixer.value_embedding", "", "cannot add terms"),
    ({**MASKED, **mixer(value_embedding={})}, "model.block.mixer", "", "layer 0 reads `tokens`"),
    (
        {**mixer(value_residual={}), "model.exceptions": {"first": {"mixer": "hyena"}}},
        "model.block.mixer",
        "",
        "layer 0 publishes nothing of this name",
    ),
    (
        {**mixer(shared_kv=0, kv_heads=2), "model.exceptions": {"last": {"mixer": {"kv_heads": 1}}}},
        "model.exceptions.last.mixer",
        "",
        "publishes it with the sizes (12,), and (6,) are wanted",
    ),
    # other mixers
    ({**mixer("differential_attention"), "model.heads": 8}, "model.block.mixer", "3", "its width must be even"),
    (
        {**mixer("latent_attention", turned_width=3), "model.positions": "rotary"},
        "model.block.mixer.turned_width",
        "3",
        "cannot be applied to this number of channels",
    ),
    (mixer("gated_deltanet", key_heads=3), "model.block.mixer.key_heads", "3", "must divide the 4 heads of values"),
    (mixer("mamba2", head_width=5), "model.block.mixer.head_width", "5", "must divide the 48"),
    (mixer("mamba2", groups=3), "model.block.mixer.groups", "3", "the groups must divide"),
    ({**mixer("rwkv7"), "model.heads": 24}, "model.block.mixer", "24", "GroupNorm of a head with one channel"),
    (mixer("reformer", buckets=3), "model.block.mixer.buckets", "3", "their number is even"),
    (mixer("sparse", stride=2, summary=3), "model.block.mixer.summary", "3", "cannot have 3 summary tokens"),
    (mixer("mlstm", key_share=0.4), "model.block.mixer.key_share", "0.4", "must divide the 9 channels"),
    (mixer("rwkv7", from_layer=1), "model.block.mixer", "", "only what an earlier layer publishes"),
    ({"model.pattern": [{}, {"mixer": "rwkv7"}]}, "model.pattern.1.mixer", "", "publishes nothing"),
    (mixer("differential_attention", kv_heads=3), "model.block.mixer.kv_heads", "3", "must divide the 4 query heads"),
    (
        {**mixer("differential_attention"), "model.positions": "rotary"},
        "model.block.mixer",
        "",
        "rotary positions cannot be applied",
    ),
    (mixer("synthesizer", type="dense", trainable=False), "model.block.mixer.trainable", "false", "can be fixed"),
    (mixer("hyena", filter_features=4), "model.block.mixer.filter_features", "4", "their number is odd"),
    (mixer("synthesizer", type="random", rank=3), "model.block.mixer.rank", "3", "only logits of type `factorised`"),
    # positions
    (
        {"model.positions": {"kind": "rotary", "fraction": 0.5}},
        "model.positions.fraction",
        "0.5",
        "this fraction of 6 is 3",
    ),
    (
        {"model.positions": {"kind": "t5_buckets", "buckets": 32, "longest_distance": 8}},
        "model.positions.longest_distance",
        "8",
        "the first 16 hold one distance each",
    ),
    # mixtures of experts
    (mixture(experts=4, active=5), "model.block.mlp.active", "5", "more experts than the layer, which has 4"),
    (mixture(experts=6, groups=4), "model.block.mlp.groups", "4", "equal groups"),
    (mixture(experts=6, groups=2, active_groups=3), "model.block.mlp.active_groups", "3", "there are 2 groups"),
    (mixture(experts=6, groups=3, active=3), "model.block.mlp.active", "3", "the active groups hold 2 experts"),
    (mixture(active=1), "model.block.mlp.normalise", "true", "the router would get no gradient"),
    (mixture(shared_gate=True), "model.block.mlp.shared_gate", "true", "shared experts, and `shared` is 0"),
    (mixture(gated=False, limit=7), "model.block.mlp.limit", "7", "these experts are plain"),
    # blocks
    *(
        (
            {**PARALLEL, "model.block.norm": {"kind": "rms", "place": place}},
            "model.block.norm.place",
            f"'{place}'",
            "share one norm before them",
        )
        for place in ("output", "sandwich")
    ),
    ({**NO_MLP, "model.block.arrangement": "mlp_first"}, "model.block.arrangement", "'mlp_first'", "before the mixer"),
    ({**NO_MLP, "model.block.norm_mlp": "layer"}, "model.block.norm_mlp", "'layer'", "without MLP has no norm"),
    (
        {**NO_MLP, "model.block.initialiser_mlp": "zero_output"},
        "model.block.initialiser_mlp",
        "",
        "has no MLP whose maps",
    ),
    ({"model.block.arrangement": "mlp_first", "model.block.skips.mixer": 2}, "model.block.skips.mixer", "2", "before"),
    ({"model.final_norm": {"kind": "rms", "place": "post"}}, "model.final_norm.place", "'post'", "has one place"),
    ({"model.embedding_norm": {"kind": "rms", "place": "sandwich"}}, "model.embedding_norm.place", "", "has one place"),
    # residuals
    *(
        (
            {"model.block.residual": kind, "model.block.skips.mixer": skips},
            "model.block.skips.mixer",
            f"{skips}",
            "once",
        )
        for kind in ("hyper_connections", "manifold_hyper_connections", "normalised", "layer_scale")
        for skips in (0, 2)
        if kind != "normalised" or skips
    ),
    (
        {"model.block.residual": "hyper_connections", "model.block.norm": {"kind": "rms", "place": "post"}},
        "model.block.norm.place",
        "'post'",
        "no single sum that a norm could follow",
    ),
    (
        {"model.block.residual": "hyper_connections", "model.block.gains.mixer_skip": 0.5},
        "model.block.gains.mixer_skip",
        "",
        "has trained weights instead of this gain",
    ),
    ({"model.block.residual": "normalised"}, "model.block.norm", "'rms'", "normalises the stream"),
    ({"model.block.residual": "unet_skip", "model.depth": 1}, "model.block.residual.kind", "", "the model has 1 layer"),
    (in_layer("last", residual="hyper_connections"), "model.exceptions.last.residual", "", "a stream of sizes (4, 24)"),
    # layers
    ({"model.loops": [{"first": 0, "last": 3, "times": 2}]}, "model.loops.0.last", "3", "numbered 0 to 2"),
    ({"model.loops": [{"first": 2, "last": 1, "times": 2}]}, "model.loops.0.last", "1", "the same or a later one"),
    (
        {"model.loops": [{"first": 0, "last": 1, "times": 2}, {"first": 1, "last": 2, "times": 2}]},
        "model.loops.1.first",
        "1",
        "do not overlap",
    ),
    (in_layer("3", norm="none"), "model.exceptions.3", "'3'", "numbered 0 to 2"),
    (
        {"model.exceptions": {"0-1": {"norm": "none"}, "1": {"norm": "layer"}}},
        "model.exceptions.1",
        "",
        "both set `norm` of layer 1",
    ),
    # embeddings, heads and further losses
    ({**MASKED, "model.multi_token": {}}, "model.multi_token", "", "does not predict the next token"),
    (
        {"model.multi_token": {}, **mixer(value_residual={})},
        "model.multi_token.form",
        "'modules'",
        "shares tensors with other layers",
    ),
    ({"model.multi_token": {"weights": [0.1] * CONTEXT}}, "model.multi_token.weights", "", "at most 8 weights"),
    ({"model.multi_token": {"weights": [0.1, 0]}}, "model.multi_token.weights.1", "0", "is not predicted"),
    ({"model.smear": {"inputs": 25}}, "model.smear.inputs", "25", "an embedding has 24 entries"),
    *(
        ({**TRANSLATOR, f"model.{name}": {}}, f"model.{name}", "", "set `family: decoder`")
        for name in ("bigram", "smear", "multi_token")
    ),
    *(
        ({**CLASSIFIER, f"model.{name}": value}, f"model.{name}", "", "belongs to the logits of tokens")
        for name, value in (("logit_cap", 5.0), ("z_loss", 0.1), ("head_bias", True), ("head_transform", {}))
    ),
    # initialisers and optimizers
    ({**CLASSIFIER, "model.initialiser": "complete_p"}, "model.initialiser", "'complete_p'", "one stack with a head"),
    ({"model.block.initialiser_mixer": "mup"}, "model.block.initialiser_mixer", "'mup'", "rates of a whole model"),
    ({"model.block.initialiser_mlp": "complete_p"}, "model.block.initialiser_mlp", "'complete_p'", "of a whole model"),
    (
        {"model.initialiser": "zero_output", "model.block.skips.mixer": 0},
        "model.block.skips.mixer",
        "0",
        "none of them ever learns",
    ),
    (
        {"model.initialiser": {"kind": "fan_in", "zero": ["output"]}, "model.block.skips.mlp": 0},
        "model.block.skips.mlp",
        "0",
        "none of them ever learns",
    ),
    (
        {**MASKED, **NO_MLP, **mixer("fnet"), **optimizer("muon")},
        "training.optimizer.kind",
        "'muon'",
        "no layer of this",
    ),
    (optimizer("sgd", nesterov=True, momentum=0.0), "training.optimizer.nesterov", "true", "momentum"),
    # schedules, batches, tasks
    ({"training.schedule": {"kind": "linear", "warmup_steps": 13}}, "training.schedule.warmup_steps", "13", "12 steps"),
    (
        {"training.schedule": {"kind": "linear", "warmup_steps": 2, "warmup": 0.1}},
        "training.schedule.warmup_steps",
        "2",
        "a share of the steps or a number of steps",
    ),
    (
        {"training.schedule": {"kind": "inverse_sqrt", "width": 24}},
        "training.schedule.width",
        "24",
        "no other form does",
    ),
    ({"training.micro_batch": 3}, "training.micro_batch", "3", "divides the batch, which has 8"),
    (
        {"training.micro_batch": 4, "training.batch_growth": {"kind": "linear"}},
        "training.batch_growth.multiple",
        "1",
        "divides each larger batch, and one has 5",
    ),
    (
        {"training.context_growth": {"kind": "linear", "multiple": 4}},
        "training.context_growth.multiple",
        "4",
        "so must be the whole, 9",
    ),
    (
        {**CLASSIFIER, "training.context_growth": {"kind": "linear"}},
        "training.context_growth",
        "'linear'",
        "lose their answer when they are cut",
    ),
    ({**CLASSIFIER, "training.loss_chunk": 4}, "training.loss_chunk", "4", "this model predicts a class"),
    ({**CLASSIFIER, "model.head": None}, "model.head", "", "the model needs a `head`"),
    (
        {**TRANSLATOR, "task.batches_by": "tokens", "training.micro_batch": 2},
        "training.micro_batch",
        "",
        "other numbers of rows at each step",
    ),
    ({"training.steps": 0}, "training.steps", "0", "starts from random weights"),
    ({"model.family": "encoder"}, "model.family", "'encoder'", "needs the family decoder"),
    # encoder-decoders
    ({**TRANSLATOR, **mixer("mamba2")}, "model.block.mixer.kind", "'mamba2'", "has only a causal form"),
    ({**TRANSLATOR, "model.block.skips.mlp": 0}, "model.block", "'sequential'", "one skip round each part"),
    ({**TRANSLATOR, "model.block.residual": "layer_scale"}, "model.block.residual", "'layer_scale'", "plain residuals"),
    (
        {**TRANSLATOR, "model.block.norm": {"kind": "rms", "place": "sandwich"}},
        "model.block.norm.place",
        "'sandwich'",
        "before the sub-layers or after the sums",
    ),
    (
        {**TRANSLATOR, "model.decoder.mixer": attending(shared_kv=0)},
        "model.decoder.mixer",
        "'attention'",
        "shares no tensors between its layers",
    ),
    (
        {**TRANSLATOR, "model.decoder.mixer": attending(exclusive=True)},
        "model.decoder.mixer.exclusive",
        "true",
        "no value of its own",
    ),
    ({**TRANSLATOR, "model.initialiser": "mup"}, "model.initialiser", "'mup'", "models of one stack"),
]


def with_settings(settings: Settings) -> Settings:
    plain: Settings = {name: dict(part) for name, part in PLAIN.items()}
    plain["model"]["block"] = {"mixer": {"kind": "attention"}}
    for path, value in settings.items():
        assign(plain, path, dict(value) if isinstance(value, dict) else value)
    return plain


LAST: list[Settings] = [  # at the bounds that cases above go beyond by one
    {"model.smear": {"inputs": 24}},
    mixer(gate={"kind": "headwise", "inputs": 24}),
    mixer(without_heads=[1, 2, 3]),
    {**mixer(value_residual={}), "model.depth": 2},
    mixture(experts=4, active=4),
    mixture(experts=6, groups=2, active_groups=2),
    mixture(experts=6, groups=3, active=2),
    {"model.loops": [{"first": 0, "last": 0, "times": 2}, {"first": 1, "last": 2, "times": 2}]},
    {"model.multi_token": {"weights": [0.1] * (CONTEXT - 1)}},
    {"training.schedule": {"kind": "linear", "warmup_steps": 12}},
]


def test_without_these_settings_there_is_a_model() -> None:
    for base in ({}, MASKED, CLASSIFIER, TRANSLATOR, PARALLEL, NO_MLP, *LAST):
        VariantSpec.model_validate(with_settings(base))


@pytest.mark.parametrize(("settings", "path", "value", "words"), CASES)
def test_an_impossible_combination_is_refused(settings: Settings, path: str, value: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        VariantSpec.model_validate(with_settings(settings))
    ((loc, sentence),) = describe(caught.value)
    assert ".".join(map(str, loc)) == path
    assert words in sentence
    if value:
        assert f"got {value}" in sentence
    rule, _, remedy = sentence.partition(". ")
    assert rule
    assert remedy
    assert remedy.endswith((".", "?"))

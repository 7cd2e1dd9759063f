"""ModernBERT (arXiv:2412.13663) with its head of masked tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import TURNED, Architecture, Link, by_layer, linear, norm, parts, same
from ablate.trained.hugging_face.settings import THEIR_ACTIVATIONS, Config, layer_types, to_ropes

_BIASED = {"kind": "dense", "bias": True}


class ModernBert(Architecture):
    """`transformers`, `models/modernbert`: `ModernBertForMaskedLM`."""

    model_type = "modernbert"
    written_as = "ModernBertForMaskedLM"
    auto_class = "AutoModelForMaskedLM"
    inert = (
        "classifier_pooling",
        "deterministic_flash_attn",
        "initializer_cutoff_factor",
        "sparse_pred_ignore_index",
        "sparse_prediction",
    )
    unused = ("*.rotary_emb.*",)

    def model(self, config: Config) -> dict[str, Any]:
        for name in ("attention_dropout", "mlp_dropout"):
            config.need(name, 0.0)
        if config.get("head_dim") is not None:
            config.need("head_dim", config["hidden_size"] // config["num_attention_heads"])
        kinds = config.layers("layer_types", "full_attention", "sliding_attention")
        rope = {kind: config.rotary(kind) for kind in ("full_attention", "sliding_attention") if kind in kinds}
        here = {"positions": rope.get("sliding_attention"), "window": config["local_attention"] // 2 + 1}
        norm = {"kind": "layer", "eps": config["norm_eps"], "bias": config["norm_bias"]}
        mixer: dict[str, Any] = {"kind": "attention"}
        if config["attention_bias"]:
            mixer |= {"query_key_bias": True, "value": _BIASED, "output": _BIASED}
        return {
            "family": "encoder",
            "depth": len(kinds),
            "width": config["hidden_size"],
            "heads": config["num_attention_heads"],
            "block": {
                "mixer": mixer,
                "mlp": {
                    "kind": "gated",
                    "ratio": config["intermediate_size"] / config["hidden_size"],
                    "activation": config.activation("hidden_activation"),
                    "bias": config["mlp_bias"],
                },
                "norm": norm,
            },
            "positions": rope.get("full_attention", "none"),
            **by_layer([here if kind == "sliding_attention" else {} for kind in kinds], first={"norm_mixer": "none"}),
            "embedding_norm": norm,
            "final_norm": norm,
            "dropout": config["embedding_dropout"],
            "tied_head": config["tie_word_embeddings"],
            "head_transform": {
                "activation": config.activation("classifier_activation"),
                "bias": config["classifier_bias"],
                "norm": norm,
            },
            "head_bias": config["decoder_bias"],
        }

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        block: Any = spec.block
        head: Any = spec.head_transform
        mixer, mlp, norm = block.mixer, block.mlp, block.norm
        window = next((layer.window for layer in spec.blocks if layer.window), 1)
        return {
            "vocab_size": vocabulary,
            "max_position_embeddings": context,
            "hidden_size": spec.width,
            "intermediate_size": mlp.hidden(spec.width),
            "num_hidden_layers": spec.depth,
            "num_attention_heads": spec.heads,
            "hidden_activation": THEIR_ACTIVATIONS[mlp.activation],
            "classifier_activation": THEIR_ACTIVATIONS[head.activation],
            "norm_eps": norm.eps,
            "norm_bias": norm.bias,
            "attention_bias": mixer.query_key_bias,
            "mlp_bias": mlp.bias,
            "classifier_bias": head.bias,
            "decoder_bias": spec.head_bias,
            "embedding_dropout": spec.dropout,
            "tie_word_embeddings": spec.tied_head,
            "layer_types": layer_types(spec),
            "local_attention": 2 * (window - 1),
            "rope_parameters": to_ropes(spec),
        }

    def tied_names(self, config: Config) -> dict[str, str]:
        return {"decoder.weight": "model.embeddings.tok_embeddings.weight"} if config["tie_word_embeddings"] else {}

    def links(self, config: Config) -> Iterator[Link]:
        width, biased = config["hidden_size"], config["norm_bias"]
        yield same("model.embeddings.tok_embeddings.weight", "embedding.weight")
        yield from norm("model.embeddings.norm", "embedding_norm", bias=biased)
        for layer in range(config["num_hidden_layers"]):
            theirs, ours = f"model.layers.{layer}", f"blocks.{layer}"
            if layer:
                yield from norm(f"{theirs}.attn_norm", f"{ours}.norm_mixer", bias=biased)
            for kind in ("weight", "bias") if config["attention_bias"] else ("weight",):
                maps = tuple(f"{ours}.mixer.{name}.{kind}" for name in ("query", "key", "value"))
                split = parts([width] * 3)
                yield Link((f"{theirs}.attn.Wqkv.{kind}",), maps, split.then(TURNED) if kind == "weight" else split)
            yield from linear(f"{theirs}.attn.Wo", f"{ours}.mixer.output", bias=config["attention_bias"])
            yield from norm(f"{theirs}.mlp_norm", f"{ours}.norm_mlp", bias=biased)
            for kind in ("weight", "bias") if config["mlp_bias"] else ("weight",):
                maps = (f"{ours}.mlp.gate.{kind}", f"{ours}.mlp.up.{kind}")
                split = parts([config["intermediate_size"]] * 2)
                yield Link((f"{theirs}.mlp.Wi.{kind}",), maps, split.then(TURNED) if kind == "weight" else split)
            yield from linear(f"{theirs}.mlp.Wo", f"{ours}.mlp.down", bias=config["mlp_bias"])
        yield from norm("model.final_norm", "norm", bias=biased)
        yield from linear("head.dense", "head_transform.dense", bias=config["classifier_bias"])
        yield from norm("head.norm", "head_transform.norm", bias=biased)
        if config["decoder_bias"]:
            yield same("decoder.bias", "head_bias.value")
        if not config["tie_word_embeddings"]:
            yield same("decoder.weight", "head.weight", TURNED)

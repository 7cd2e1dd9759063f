"""BERT (arXiv:1810.04805) with its head of masked tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Architecture, Config
from ablate.trained.hugging_face.links import TURNED, Link, linear, norm, same

_BIASED = {"kind": "dense", "bias": True}


class Bert(Architecture):
    """`transformers`, `models/bert`: `BertForMaskedLM`. The heads of whole texts are left out."""

    model_type = "bert"
    auto_class = "AutoModelForMaskedLM"
    prefix = "bert."
    defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }
    unused = ("bert.pooler.*", "cls.seq_relationship.*", "bert.embeddings.position_ids")

    def model(self, config: Config) -> dict[str, Any]:
        for name in ("is_decoder", "add_cross_attention"):
            config.need(name, False)
        config.need("position_embedding_type", "absolute")
        norm = {"kind": "layer", "eps": config["layer_norm_eps"]}
        return {
            "family": "encoder",
            "depth": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "heads": config["num_attention_heads"],
            "block": {
                "mixer": {
                    "kind": "attention",
                    "query_key_bias": True,
                    "value": _BIASED,
                    "output": _BIASED,
                    "dropout": config["attention_probs_dropout_prob"],
                },
                "mlp": {
                    "kind": "plain",
                    "ratio": config["intermediate_size"] / config["hidden_size"],
                    "activation": config.activation("hidden_act"),
                    "bias": True,
                },
                "norm": {**norm, "place": "post"},
                "dropout": config["hidden_dropout_prob"],
            },
            "positions": "learned",
            "segments": config["type_vocab_size"],
            "embedding_norm": norm,
            "final_norm": "none",
            "dropout": config["hidden_dropout_prob"],
            "tied_head": config["tie_word_embeddings"],
            "head_transform": {"activation": config.activation("hidden_act"), "norm": norm},
            "head_bias": True,
        }

    def tied(self, config: Config) -> dict[str, str]:
        """The bias of the logits has two names."""
        tied = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
        if config["tie_word_embeddings"]:
            tied["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight"
        return tied

    def links(self, config: Config) -> Iterator[Link]:
        yield same("bert.embeddings.word_embeddings.weight", "embedding.weight")
        yield same("bert.embeddings.position_embeddings.weight", "positions.weight")
        yield same("bert.embeddings.token_type_embeddings.weight", "segments.table.weight")
        yield from norm("bert.embeddings.LayerNorm", "embedding_norm", bias=True)
        for layer in range(config["num_hidden_layers"]):
            theirs, ours = f"bert.encoder.layer.{layer}", f"blocks.{layer}"
            for name in ("query", "key", "value"):
                yield from linear(f"{theirs}.attention.self.{name}", f"{ours}.mixer.{name}", bias=True)
            yield from linear(f"{theirs}.attention.output.dense", f"{ours}.mixer.output", bias=True)
            yield from norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.norm_mixer", bias=True)
            yield from linear(f"{theirs}.intermediate.dense", f"{ours}.mlp.up", bias=True)
            yield from linear(f"{theirs}.output.dense", f"{ours}.mlp.down", bias=True)
            yield from norm(f"{theirs}.output.LayerNorm", f"{ours}.norm_mlp", bias=True)
        yield from linear("cls.predictions.transform.dense", "head_transform.dense", bias=True)
        yield from norm("cls.predictions.transform.LayerNorm", "head_transform.norm", bias=True)
        yield same("cls.predictions.bias", "head_bias.value")
        if not config["tie_word_embeddings"]:
            yield same("cls.predictions.decoder.weight", "head.weight", TURNED)

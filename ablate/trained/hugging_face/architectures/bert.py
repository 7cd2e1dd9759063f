"""BERT (arXiv:1810.04805) with its head of masked tokens, and what the models that are written as it is share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import SAME, TURNED, Architecture, Conversion, Link, linear, norm, same
from ablate.trained.hugging_face.settings import Config

_BIASED = {"kind": "dense", "bias": True}


class BertLike(Architecture):
    """An encoder of post-norm blocks with learned positions, segments and normed embeddings.

    Subclasses change what differs. The heads of whole texts are left out.
    """

    auto_class = "AutoModelForMaskedLM"
    prefix = "bert."
    head: ClassVar[Mapping[str, str]] = {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
        "output": "cls.predictions.decoder",
    }
    """Their names of the parts of the head."""
    unused: ClassVar[tuple[str, ...]] = (
        "*.pooler.*",
        "cls.seq_relationship.*",
        "*.embeddings.position_ids",
        "cls.predictions.bias",  # does nothing where the output matrix is not tied
        "lm_head.bias",
    )

    def model(self, config: Config) -> dict[str, Any]:
        for name, value in (("is_decoder", False), ("add_cross_attention", False)):
            if config.get(name) not in (None, value):
                raise config.refuse(name, f"only {value!r} can be read")
        if config.get("position_embedding_type") not in (None, "absolute"):
            raise config.refuse("position_embedding_type", "only 'absolute' can be read")
        if config["type_vocab_size"] < 1:
            raise config.refuse("type_vocab_size", "at least one type of tokens can be read")
        norm = {"kind": "layer", "eps": config["layer_norm_eps"]}
        return {
            "family": "encoder",
            "depth": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "heads": self.heads(config),
            "block": {
                "mixer": self.mixer(config),
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
            "head_transform": {"activation": self.head_activation(config), "norm": norm},
            "head_bias": True,
        }

    def heads(self, config: Config) -> int:
        """Heads of the mixer of a block."""
        heads: int = config["num_attention_heads"]
        return heads

    def head_activation(self, config: Config) -> str:
        """The nonlinearity of the head of masked tokens."""
        return config.activation("hidden_act")

    def tensor_name(self, name: str) -> str:
        """Files of the first years, such as those of BERT, name gains and biases of norms as TensorFlow does."""
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def mixer(self, config: Config) -> dict[str, Any]:
        """The mixer of a block."""
        return {
            "kind": "attention",
            "query_key_bias": True,
            "value": _BIASED,
            "output": _BIASED,
            "dropout": config["attention_probs_dropout_prob"],
        }

    def tied_names(self, config: Config) -> dict[str, str]:
        """The bias of the logits has two names where the output matrix is tied."""
        if not config["tie_word_embeddings"]:
            return {}
        return {
            f"{self.head['output']}.bias": self.head["bias"],
            f"{self.head['output']}.weight": f"{self.prefix}embeddings.word_embeddings.weight",
        }

    def links(self, config: Config) -> Iterator[Link]:
        tables = f"{self.prefix}embeddings"
        yield same(f"{tables}.word_embeddings.weight", "embedding.weight")
        yield same(f"{tables}.position_embeddings.weight", "positions.weight", self.positions(config))
        yield same(f"{tables}.token_type_embeddings.weight", "segments.table.weight")
        yield from norm(f"{tables}.LayerNorm", "embedding_norm", bias=True)
        for layer in range(config["num_hidden_layers"]):
            theirs, ours = f"{self.prefix}encoder.layer.{layer}", f"blocks.{layer}"
            yield from self.mixer_links(theirs, ours)
            yield from linear(f"{theirs}.intermediate.dense", f"{ours}.mlp.up", bias=True)
            yield from linear(f"{theirs}.output.dense", f"{ours}.mlp.down", bias=True)
            yield from norm(f"{theirs}.output.LayerNorm", f"{ours}.norm_mlp", bias=True)
        yield from linear(self.head["dense"], "head_transform.dense", bias=True)
        yield from norm(self.head["norm"], "head_transform.norm", bias=True)
        if config["tie_word_embeddings"]:
            yield same(self.head["bias"], "head_bias.value")
        else:
            yield same(f"{self.head['output']}.weight", "head.weight", TURNED)
            yield same(f"{self.head['output']}.bias", "head_bias.value")

    def positions(self, config: Config) -> Conversion:
        """Which rows of their table of positions are those of ours."""
        return SAME

    def mixer_links(self, theirs: str, ours: str) -> Iterator[Link]:
        """The mixer of a layer and its norm; the names are those of the layer."""
        for name in ("query", "key", "value"):
            yield from linear(f"{theirs}.attention.self.{name}", f"{ours}.mixer.{name}", bias=True)
        yield from linear(f"{theirs}.attention.output.dense", f"{ours}.mixer.output", bias=True)
        yield from norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.norm_mixer", bias=True)


class Bert(BertLike):
    """`transformers`, `models/bert`: `BertForMaskedLM`."""

    model_type = "bert"

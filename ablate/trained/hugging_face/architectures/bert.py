"""BERT (arXiv:1810.04805) with its head of masked tokens, and models written as it is: BigBird, FNet, Longformer.

And ModernBERT (arXiv:2412.13663), an encoder of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import (
    SAME,
    TURNED,
    Architecture,
    Conversion,
    Link,
    by_layer,
    convert_each,
    linear,
    norm,
    parts,
    same,
)
from ablate.trained.hugging_face.settings import THEIR_ACTIVATIONS, Config, layer_types, to_ropes

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

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        block: Any = spec.block
        return {
            "vocab_size": vocabulary,
            "max_position_embeddings": context,
            "type_vocab_size": spec.segments,
            "hidden_size": spec.width,
            "intermediate_size": block.mlp.hidden(spec.width),
            "num_hidden_layers": spec.depth,
            "num_attention_heads": spec.heads,
            "hidden_act": THEIR_ACTIVATIONS[block.mlp.activation],
            "hidden_dropout_prob": block.dropout,
            "attention_probs_dropout_prob": getattr(block.mixer, "dropout", 0.0),
            "layer_norm_eps": block.norm.eps,
            "tie_word_embeddings": spec.tied_head,
            "attention_type": "original_full",
            "rescale_embeddings": spec.embedding_scale == "sqrt_width",
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
    written_as = "BertForMaskedLM"


class BigBirdModel(BertLike):
    """`transformers`, `models/big_bird`, with `attention_type: original_full`.

    Its blocks are another matter: they have biases, and the first block in the place of random ones in evaluation.
    """

    model_type = "big_bird"
    written_as = "BigBirdForMaskedLM"
    dropout = "that of embeddings comes after their norm instead of before it"
    inert = ("block_size", "num_random_blocks")

    def model(self, config: Config) -> dict[str, Any]:
        config.need("attention_type", "original_full")
        config.need("use_bias", True)
        scale = "sqrt_width" if config["rescale_embeddings"] else "none"
        return {**super().model(config), "embedding_scale": scale}


class FNetModel(BertLike):
    """`transformers`, `models/fnet`: `FNetForMaskedLM`, which reads padding as it reads any token."""

    model_type = "fnet"
    written_as = "FNetForMaskedLM"
    dropout = "that of hidden values also falls on the output of Fourier layers"
    prefix = "fnet."
    sees_padding = True
    inert = ("tpu_short_seq_length",)

    def model(self, config: Config) -> dict[str, Any]:
        return {**super().model(config), "embedding_map": True}

    def heads(self, config: Config) -> int:
        return 1

    def mixer(self, config: Config) -> dict[str, Any]:
        return {"kind": "fnet"}

    def links(self, config: Config) -> Iterator[Link]:
        yield from super().links(config)
        yield from linear(f"{self.prefix}embeddings.projection", "embedding_map", bias=True)

    def mixer_links(self, theirs: str, ours: str) -> Iterator[Link]:
        return norm(f"{theirs}.fourier.output.LayerNorm", f"{ours}.norm_mixer", bias=True)


class RobertaModel(BertLike):
    """`transformers`, `models/roberta`: `RobertaForMaskedLM`. Its first position is the one after the padding token's.

    A model of ours may have no padding token, so it is written as BERT.
    """

    model_type = "roberta"
    prefix = "roberta."
    head: ClassVar[Mapping[str, str]] = {
        "dense": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "bias": "lm_head.bias",
        "output": "lm_head.decoder",
    }

    def head_activation(self, config: Config) -> str:
        return "gelu"

    def context(self, config: Config) -> int:
        return super().context(config) - self._before(config)

    def positions(self, config: Config) -> Conversion:
        before = self._before(config)
        return convert_each(
            lambda theirs: theirs[before:],
            lambda ours: torch.cat([ours.new_zeros(before, ours.shape[1]), ours]),
        )

    @staticmethod
    def _before(config: Config) -> int:
        """Rows of the table that no real token has."""
        padding = config["pad_token_id"]
        if not isinstance(padding, int) or not 0 <= padding < config["vocab_size"]:
            raise config.refuse("pad_token_id", "a token of the vocabulary can be read; positions are counted from it")
        return padding + 1


class XlmRoberta(RobertaModel):
    """`transformers`, `models/xlm_roberta`."""

    model_type = "xlm-roberta"


class Camembert(RobertaModel):
    """`transformers`, `models/camembert`."""

    model_type = "camembert"


class LongformerModel(RobertaModel):
    """`transformers`, `models/longformer`: `LongformerForMaskedLM`, which has no global tokens unless it is given some.

    The maps of global tokens are left out.
    """

    model_type = "longformer"
    prefix = "longformer."
    unused: ClassVar[tuple[str, ...]] = (*BertLike.unused, "*.attention.self.*_global.*")

    def model(self, config: Config) -> dict[str, Any]:
        depth, windows = config["num_hidden_layers"], config["attention_window"]
        sizes = [windows] * depth if isinstance(windows, int) else windows
        if len(sizes) != depth or not all(size > 0 and size % 2 == 0 for size in sizes):
            raise config.refuse("attention_window", "an even number for each layer can be read")
        return {**super().model(config), **by_layer([{"window": size // 2 + 1} for size in sizes])}


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

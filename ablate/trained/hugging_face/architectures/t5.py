"""T5 (arXiv:1910.10683): an encoder-decoder whose layers share one table of relative positions in each stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Architecture, Config
from ablate.trained.hugging_face.links import Link, linear, norm, same

_USUAL_CONTEXT = 512
"""Tokens of the texts that the published models were trained on; the model itself knows no longest text."""
_MAPS = {"q": "query", "k": "key", "v": "value", "o": "output"}


class T5(Architecture):
    """`transformers`, `models/t5`: `T5ForConditionalGeneration` (T5 1.0, T5 1.1, FLAN-T5).

    T5 1.0 divides the decoder's output by √d before a tied output matrix. T5 1.1 and FLAN-T5 do neither: the
    `config.json` that was published says so by `tie_word_embeddings: false` alone, later ones by
    `scale_decoder_outputs: false`. Dropout after the last norms, which is in training alone, is left out.
    """

    model_type = "t5"
    auto_class = "AutoModelForSeq2SeqLM"
    prefix = ""
    defaults: ClassVar[Mapping[str, Any]] = {
        "dropout_rate": 0.1,
        "feed_forward_proj": "relu",
        "is_decoder": False,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-6,
        "num_decoder_layers": None,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32,
        "scale_decoder_outputs": None,
        "tie_word_embeddings": True,
    }

    def model(self, config: Config) -> dict[str, Any]:
        config.need("is_decoder", False)
        config.need("is_encoder_decoder", True)
        norm = {"kind": "rms", "eps": config["layer_norm_epsilon"]}
        dropout, width, heads = config["dropout_rate"], config["d_model"], config["num_heads"]
        mixer = {"kind": "attention", "scale": "none", "dropout": dropout}
        model = {
            "family": "encoder_decoder",
            "depth": config["num_layers"],
            "width": width,
            "heads": heads,
            "block": {
                "mixer": mixer,
                "mlp": {
                    "kind": "gated" if self._gated(config) else "plain",
                    "ratio": config["d_ff"] / width,
                    "activation": self._activation(config),
                    "dropout": dropout,
                },
                "norm": norm,
                "dropout": dropout,
            },
            "decoder": {"depth": self._decoder_depth(config), "mixer": mixer},
            "positions": {
                "kind": "t5_buckets",
                "buckets": config["relative_attention_num_buckets"],
                "longest_distance": config["relative_attention_max_distance"],
                "shared": True,
            },
            "final_norm": norm,
            "dropout": dropout,
            "tied_head": config["tie_word_embeddings"],
            "logit_scale": "inverse_sqrt_width" if self._scaled(config) else "none",
        }
        return model if config["d_kv"] * heads == width else {**model, "head_width": config["d_kv"]}

    @staticmethod
    def _decoder_depth(config: Config) -> int:
        depth: int = config["num_decoder_layers"] or config["num_layers"]
        return depth

    @staticmethod
    def _scaled(config: Config) -> bool:
        scaled: bool | None = config["scale_decoder_outputs"]
        return bool(config["tie_word_embeddings"]) if scaled is None else scaled

    @staticmethod
    def _gated(config: Config) -> bool:
        return str(config["feed_forward_proj"]).startswith("gated-")

    @staticmethod
    def _activation(config: Config) -> str:
        name = str(config["feed_forward_proj"])
        # What is called gated GELU there has its approximation by tanh.
        inner = {"act": "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")}
        return Config(inner, {}, config.where).activation("act")

    def context(self, config: Config) -> int:
        return config.get("n_positions") or _USUAL_CONTEXT

    def tied(self, config: Config) -> dict[str, str]:
        head = (_HEAD,) if config["tie_word_embeddings"] else ()
        return dict.fromkeys((*head, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), _TABLE)

    def links(self, config: Config) -> Iterator[Link]:
        yield same(_TABLE, "embedding.weight")
        if not config["tie_word_embeddings"]:
            yield from linear(_HEAD.removesuffix(".weight"), "head")
        stacks = (
            ("encoder", "blocks", config["num_layers"]),
            ("decoder", "decoder_blocks", self._decoder_depth(config)),
        )
        for theirs_of, ours_of, depth in stacks:
            table = f"{theirs_of}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            yield same(table, f"{ours_of}.0.mixer.bias.weight")
            for layer in range(depth):
                yield from self._layer(config, f"{theirs_of}.block.{layer}.layer", f"{ours_of}.{layer}", theirs_of)
        yield from norm("encoder.final_layer_norm", "norm")
        yield from norm("decoder.final_layer_norm", "decoder_norm")

    def _layer(self, config: Config, theirs: str, ours: str, stack: str) -> Iterator[Link]:
        parts = [("SelfAttention", "mixer")] + ([("EncDecAttention", "cross")] if stack == "decoder" else [])
        for index, (their_name, our_name) in enumerate(parts):
            for short, name in _MAPS.items():
                yield from linear(f"{theirs}.{index}.{their_name}.{short}", f"{ours}.{our_name}.{name}")
            yield from norm(f"{theirs}.{index}.layer_norm", f"{ours}.norm_{our_name}")
        index = len(parts)
        ways = {"wi_0": "gate", "wi_1": "up"} if self._gated(config) else {"wi": "up"}
        for their_name, our_name in {**ways, "wo": "down"}.items():
            yield from linear(f"{theirs}.{index}.DenseReluDense.{their_name}", f"{ours}.mlp.{our_name}")
        yield from norm(f"{theirs}.{index}.layer_norm", f"{ours}.norm_mlp")


_TABLE, _HEAD = "shared.weight", "lm_head.weight"

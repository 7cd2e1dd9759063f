"""T5 (arXiv:1910.10683): an encoder-decoder whose layers share one table of relative positions in each stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import Architecture, Link, linear, norm, same
from ablate.trained.hugging_face.settings import THEIR_ACTIVATIONS, Config

_USUAL_CONTEXT = 512
"""Tokens of the texts that the published models were trained on; the model itself knows no longest text."""
_MAPS = {"q": "query", "k": "key", "v": "value", "o": "output"}


class T5(Architecture):
    """`transformers`, `models/t5`: `T5ForConditionalGeneration` (T5 1.0, T5 1.1, FLAN-T5).

    T5 1.0 divides the decoder's output by √d before a tied output matrix. T5 1.1 and FLAN-T5 do neither: the
    `config.json` that was published says so by `tie_word_embeddings: false` alone, later ones by
    `scale_decoder_outputs: false`.
    """

    model_type = "t5"
    written_as = "T5ForConditionalGeneration"
    undeclared = ("n_positions", "scale_decoder_outputs", "tie_word_embeddings")
    auto_class = "AutoModelForSeq2SeqLM"
    dropout = "that after the last norms is left out"
    prefix = ""
    unused = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)  # of the files of T5 1.0
    inert = ("feed_forward_proj", "initializer_factor")  # the class works the nonlinearity out from the first

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
                    "kind": "gated" if config["is_gated_act"] else "plain",
                    "ratio": config["d_ff"] / width,
                    "activation": config.activation("dense_act_fn", "feed_forward_proj"),
                    "dropout": dropout,
                },
                "norm": norm,
                "dropout": dropout,
            },
            "decoder": {"depth": config["num_decoder_layers"], "mixer": mixer},
            "positions": {
                "kind": "t5_buckets",
                "buckets": config["relative_attention_num_buckets"],
                "longest_distance": config["relative_attention_max_distance"],
                "shared": True,
            },
            "final_norm": norm,
            "dropout": dropout,
            "tied_head": self._tied(config),
            "logit_scale": "inverse_sqrt_width" if config["scale_decoder_outputs"] else "none",
        }
        return model if config["d_kv"] * heads == width else {**model, "head_width": config["d_kv"]}

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        block: Any = spec.block
        decoder: Any = spec.decoder
        positions: Any = spec.positions
        gated = "gated-" if block.mlp.kind == "gated" else ""
        return {
            "vocab_size": vocabulary,
            "n_positions": context,
            "d_model": spec.width,
            "d_kv": spec.head_width or spec.width // spec.heads,
            "d_ff": block.mlp.hidden(spec.width),
            "num_heads": spec.heads,
            "num_layers": spec.depth,
            "num_decoder_layers": decoder.depth,
            "feed_forward_proj": f"{gated}{THEIR_ACTIVATIONS[block.mlp.activation]}",
            "relative_attention_num_buckets": positions.buckets,
            "relative_attention_max_distance": positions.longest_distance,
            "dropout_rate": spec.dropout,
            "layer_norm_epsilon": block.norm.eps,
            "tie_word_embeddings": spec.tied_head,
            "scale_decoder_outputs": spec.logit_scale == "inverse_sqrt_width",
        }

    @staticmethod
    def _tied(config: Config) -> bool:
        """The class forgets the setting; without weights, a file that says false means an output matrix of its own."""
        config.get("tie_word_embeddings")
        return config.given.get("tie_word_embeddings") is not False

    def context(self, config: Config) -> int:
        return config.get("n_positions") or _USUAL_CONTEXT

    def tied_names(self, config: Config) -> dict[str, str]:
        head = (_HEAD,) if self._tied(config) else ()
        return dict.fromkeys((*head, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), _TABLE)

    def settled(self, plain: Mapping[str, Any], theirs: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """`transformers` ties the output matrix unless the files have another one, whatever `config.json` says."""
        own = _HEAD in theirs and _TABLE in theirs and not torch.equal(theirs[_HEAD], theirs[_TABLE])
        scaled = {"scale_decoder_outputs": plain.get("tie_word_embeddings") is not False}
        return {**scaled, **plain, "tie_word_embeddings": not own}

    def links(self, config: Config) -> Iterator[Link]:
        yield same(_TABLE, "embedding.weight")
        if not self._tied(config):
            yield from linear(_HEAD.removesuffix(".weight"), "head")
        stacks = (
            ("encoder", "blocks", config["num_layers"]),
            ("decoder", "decoder_blocks", config["num_decoder_layers"]),
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
        ways = {"wi_0": "gate", "wi_1": "up"} if config["is_gated_act"] else {"wi": "up"}
        for their_name, our_name in {**ways, "wo": "down"}.items():
            yield from linear(f"{theirs}.{index}.DenseReluDense.{their_name}", f"{ours}.mlp.{our_name}")
        yield from norm(f"{theirs}.{index}.layer_norm", f"{ours}.norm_mlp")


_TABLE, _HEAD = "shared.weight", "lm_head.weight"

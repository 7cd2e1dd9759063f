"""Gemma 3 (arXiv:2503.19786), the model of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Config, by_layer
from ablate.trained.hugging_face.architectures.llama import LlamaLike, query_key_norm_links
from ablate.trained.hugging_face.links import PLUS_ONE, Link


class Gemma3(LlamaLike):
    """`transformers`, `models/gemma3`, `Gemma3ForCausalLM`. Gains of norms are stored as their difference from 1."""

    model_type = "gemma3_text"
    gain = PLUS_ONE
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.defaults,
        "final_logit_softcapping": None,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": None,
        "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000.0,
        "rope_theta": 1000000.0,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
        "use_bidirectional_attention": False,
    }
    norms: ClassVar[Mapping[str, str]] = {
        "input_layernorm": "norm_mixer",
        "post_attention_layernorm": "norm_mixer_output",
        "pre_feedforward_layernorm": "norm_mlp",
        "post_feedforward_layernorm": "norm_mlp_output",
    }

    def model(self, config: Config) -> dict[str, Any]:
        config.need("use_bidirectional_attention", False)
        cap = config["final_logit_softcapping"]
        return {
            **super().model(config),
            "embedding_scale": "sqrt_width",
            **({"logit_cap": cap} if cap is not None else {}),
        }

    def block_norm(self, config: Config) -> dict[str, Any]:
        return {**super().block_norm(config), "place": "sandwich"}

    def mixer(self, config: Config) -> dict[str, Any]:
        mixer = {**super().mixer(config), "query_key_norm": {"kind": "rms", "eps": config["rms_norm_eps"]}}
        if config["query_pre_attn_scalar"] != config.head_width:
            mixer["scale"] = config["query_pre_attn_scalar"] ** -0.5
        return mixer

    def mlp(self, config: Config) -> dict[str, Any]:
        return {
            "kind": "gated",
            "ratio": config["intermediate_size"] / config["hidden_size"],
            "activation": config.activation("hidden_activation"),
        }

    def places(self, config: Config) -> dict[str, Any]:
        depth, every = config["num_hidden_layers"], config["sliding_window_pattern"]
        kinds = config["layer_types"] or [
            "sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(depth)
        ]
        local = config.rotary("sliding_attention", base="rope_local_base_freq")
        here = {"positions": local, "window": config["sliding_window"]}
        layers = by_layer([here if kind == "sliding_attention" else {} for kind in kinds])
        return {"positions": config.rotary("full_attention"), **layers}

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from super().mixer_links(config, layer, theirs, ours)
        yield from query_key_norm_links(f"{theirs}.self_attn", f"{ours}.mixer", self.gain)

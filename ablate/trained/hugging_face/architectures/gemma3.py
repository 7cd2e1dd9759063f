"""Gemma 3 (arXiv:2503.19786), the model of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import PLUS_ONE, Link, by_layer
from ablate.trained.hugging_face.architectures.llama import LlamaLike, query_key_norm_links, windows
from ablate.trained.hugging_face.settings import Config


class Gemma3(LlamaLike):
    """`transformers`, `models/gemma3`, `Gemma3ForCausalLM`. Gains of norms are stored as their difference from 1."""

    model_type = "gemma3_text"
    gain = PLUS_ONE
    activation = "hidden_activation"
    inert = ("_sliding_window_pattern",)
    norms: ClassVar[Mapping[str, str]] = {
        "input_layernorm": "norm_mixer",
        "post_attention_layernorm": "norm_mixer_output",
        "pre_feedforward_layernorm": "norm_mlp",
        "post_feedforward_layernorm": "norm_mlp_output",
    }

    def model(self, config: Config) -> dict[str, Any]:
        config.need("use_bidirectional_attention", False)
        config.need("attn_logit_softcapping", None)
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

    def places(self, config: Config) -> dict[str, Any]:
        kinds = config["layer_types"]
        rope = {kind: config.rotary(kind) for kind in ("full_attention", "sliding_attention") if kind in kinds}
        layers = windows(config, {"positions": rope.get("sliding_attention")})
        return {"positions": rope.get("full_attention", "none"), **by_layer(layers)}

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from super().mixer_links(config, layer, theirs, ours)
        yield from query_key_norm_links(f"{theirs}.self_attn", f"{ours}.mixer", self.gain)

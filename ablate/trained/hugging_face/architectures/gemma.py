"""Gemma (arXiv:2403.08295), Gemma 2 (arXiv:2408.00118) and Gemma 3 (arXiv:2503.19786), text only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import PLUS_ONE, by_layer
from ablate.trained.hugging_face.architectures.llama import LlamaLike, windows, windows_with_rotary
from ablate.trained.hugging_face.settings import Config, to_ropes


class Gemma(LlamaLike):
    """`transformers`, `models/gemma`. Gains of norms are stored as their difference from 1."""

    model_type = "gemma"
    written_as = "GemmaForCausalLM"
    gain = PLUS_ONE

    def model(self, config: Config) -> dict[str, Any]:
        if config["use_bidirectional_attention"]:
            raise config.refuse("use_bidirectional_attention", "only causal attention can be read")
        return {**super().model(config), "embedding_scale": "sqrt_width"}


class Gemma2(Gemma):
    """`transformers`, `models/gemma2`: norms before and after each sub-layer, and windows in some layers."""

    model_type = "gemma2"
    written_as = "Gemma2ForCausalLM"
    activation = "hidden_activation"
    norms: ClassVar[Mapping[str, str]] = {
        "input_layernorm": "norm_mixer",
        "post_attention_layernorm": "norm_mixer_output",
        "pre_feedforward_layernorm": "norm_mlp",
        "post_feedforward_layernorm": "norm_mlp_output",
    }

    def model(self, config: Config) -> dict[str, Any]:
        cap = config["final_logit_softcapping"]
        return {**super().model(config), **({"logit_cap": cap} if cap is not None else {})}

    def block_norm(self, config: Config) -> dict[str, Any]:
        return {**super().block_norm(config), "place": "sandwich"}

    def mixer(self, config: Config) -> dict[str, Any]:
        mixer, cap = super().mixer(config), config["attn_logit_softcapping"]
        if config["query_pre_attn_scalar"] != config.head_width:
            mixer["scale"] = config["query_pre_attn_scalar"] ** -0.5
        return {**mixer, "logits": {"soft_cap": cap}} if cap is not None else mixer

    def places(self, config: Config) -> dict[str, Any]:
        return super().places(config) | by_layer(windows(config))


class Gemma3(Gemma2):
    """`transformers`, `models/gemma3`, `Gemma3ForCausalLM`: norms of queries and keys, other positions in windows."""

    model_type = "gemma3_text"
    written_as = "Gemma3ForCausalLM"
    inert = ("_sliding_window_pattern",)
    query_key_norm: ClassVar[Mapping[str, Any]] = {}

    def mixer(self, config: Config) -> dict[str, Any]:
        config.need("attn_logit_softcapping", None)
        return super().mixer(config)

    def places(self, config: Config) -> dict[str, Any]:
        return windows_with_rotary(config)

    def written_rope(self, spec: ModelSpec) -> dict[str, Any]:
        return {"rope_parameters": to_ropes(spec)}

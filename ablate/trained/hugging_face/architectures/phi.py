"""Decoders with LayerNorm and partly rotated heads: Phi (arXiv:2309.05463), StableLM (arXiv:2402.17834), Nemotron
(arXiv:2402.16819).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import PLUS_ONE, Link, same
from ablate.trained.hugging_face.architectures.llama import PARALLEL, LlamaLike
from ablate.trained.hugging_face.settings import Config


class Phi(LlamaLike):
    """`transformers`, `models/phi`: attention and MLP side by side, biases everywhere, also on the logits."""

    model_type = "phi"
    written_as = "PhiForCausalLM"
    norm_kind = "layer"
    eps = "layer_norm_eps"
    partial = True
    final_norm = "model.final_layernorm"
    norms: ClassVar[Mapping[str, str]] = {"input_layernorm": "norm_mixer"}
    attention_maps: ClassVar[Mapping[str, str]] = {
        "q_proj": "query",
        "k_proj": "key",
        "v_proj": "value",
        "dense": "output",
    }
    mlp_maps: ClassVar[Mapping[str, str]] = {"fc1": "up", "fc2": "down"}

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return True, True, True

    def model(self, config: Config) -> dict[str, Any]:
        config.need("qk_layernorm", False)
        return {**super().model(config), "dropout": config["embd_pdrop"], "head_bias": True}

    def joined(self, config: Config) -> dict[str, Any]:
        return {**PARALLEL, "dropout": config["resid_pdrop"]}

    def links(self, config: Config) -> Iterator[Link]:
        yield from super().links(config)
        yield same("lm_head.bias", "head_bias.value")


class StableLm(LlamaLike):
    """`transformers`, `models/stablelm`."""

    model_type = "stablelm"
    written_as = "StableLmForCausalLM"
    norm_kind = "layer"
    eps = "layer_norm_eps"
    partial = True

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["use_qkv_bias"], False, False

    def model(self, config: Config) -> dict[str, Any]:
        config.need("qk_layernorm", False)
        config.need("hidden_dropout", 0.0)
        return super().model(config)

    def joined(self, config: Config) -> dict[str, Any]:
        return PARALLEL if config["use_parallel_residual"] else {}

    def links(self, config: Config) -> Iterator[Link]:
        for link in super().links(config):
            if not (config["use_parallel_residual"] and "post_attention_layernorm" in link.theirs[0]):
                yield link


class Nemotron(LlamaLike):
    """`transformers`, `models/nemotron`. Gains of norms are stored as their difference from 1."""

    model_type = "nemotron"
    written_as = "NemotronForCausalLM"
    norm_kind = "layer"
    eps = "norm_eps"
    partial = True
    mlp_maps: ClassVar[Mapping[str, str]] = {"up_proj": "up", "down_proj": "down"}
    gain = PLUS_ONE

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["attention_bias"], config["attention_bias"], config["mlp_bias"]

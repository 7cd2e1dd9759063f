"""OLMo (arXiv:2402.00838), OLMo 2 (arXiv:2501.00656), OLMo 3 (arXiv:2512.13961) and OLMoE (arXiv:2409.02060)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import Link, linear
from ablate.trained.hugging_face.architectures.llama import LlamaLike, expert_links, mixture, windows_with_rotary
from ablate.trained.hugging_face.settings import Config, to_ropes


class Olmo(LlamaLike):
    """`transformers`, `models/olmo`. Its norms have neither gains nor biases, and a fixed ε."""

    model_type = "olmo"
    written_as = "OlmoForCausalLM"

    def model(self, config: Config) -> dict[str, Any]:
        config.need("clip_qkv", None)
        return super().model(config)

    def norm(self, config: Config) -> dict[str, Any]:
        return {"kind": "layer", "eps": 1e-5, "gain": False, "bias": False}

    def norm_links(self, theirs: str, ours: str) -> Iterator[Link]:
        return iter(())


class Olmo2(LlamaLike):
    """`transformers`, `models/olmo2`."""

    model_type = "olmo2"
    written_as = "Olmo2ForCausalLM"
    norms: ClassVar[Mapping[str, str]] = {
        "post_attention_layernorm": "norm_mixer",
        "post_feedforward_layernorm": "norm_mlp",
    }
    query_key_norm: ClassVar[Mapping[str, Any]] = {"over": "width"}

    def block_norm(self, config: Config) -> dict[str, Any]:
        return {**super().block_norm(config), "place": "output"}


class Olmo3(Olmo2):
    """`transformers`, `models/olmo3`: OLMo 2 with windows in some layers."""

    model_type = "olmo3"
    written_as = "Olmo3ForCausalLM"

    def places(self, config: Config) -> dict[str, Any]:
        return windows_with_rotary(config)

    def written_rope(self, spec: ModelSpec) -> dict[str, Any]:
        return {"rope_parameters": to_ropes(spec)}


class Olmoe(LlamaLike):
    """`transformers`, `models/olmoe`: experts in every layer, and norms of queries and keys over all heads."""

    model_type = "olmoe"
    written_as = "OlmoeForCausalLM"
    query_key_norm: ClassVar[Mapping[str, Any]] = {"over": "width"}

    def model(self, config: Config) -> dict[str, Any]:
        config.need("clip_qkv", None)
        return super().model(config)

    def mlp(self, config: Config) -> dict[str, Any]:
        return mixture(config, "num_experts", "intermediate_size", normalise=config["norm_topk_prob"])

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from linear(f"{theirs}.gate", f"{ours}.router")
        yield from expert_links(theirs, ours, config["num_experts"])

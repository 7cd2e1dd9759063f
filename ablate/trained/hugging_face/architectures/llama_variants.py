"""Models that differ little from Llama, text only.

- Mistral (arXiv:2310.06825), Mixtral (arXiv:2401.04088), Phi-3 (arXiv:2404.14219), StarCoder 2 (arXiv:2402.19173)
- Gemma (arXiv:2403.08295), Gemma 2 (arXiv:2408.00118), Gemma 3 (arXiv:2503.19786)
- OLMo (arXiv:2402.00838), OLMo 2 (arXiv:2501.00656), OLMo 3 (arXiv:2512.13961), OLMoE (arXiv:2409.02060)
- With LayerNorm, partly rotated: Phi (arXiv:2309.05463), StableLM (arXiv:2402.17834), Nemotron (arXiv:2402.16819)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import PLUS_ONE, TURNED, Link, by_layer, linear, parts, same
from ablate.trained.hugging_face.architectures.llama import (
    PARALLEL,
    LlamaLike,
    expert_links,
    mixture,
    windows,
    windows_with_rotary,
)
from ablate.trained.hugging_face.settings import Config, to_ropes


class Mistral(LlamaLike):
    """`transformers`, `models/mistral`: no biases, and one window for all layers."""

    model_type = "mistral"
    written_as = "MistralForCausalLM"

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return False, False, False

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        window = config["sliding_window"]
        layers = [{} if window is None else {"window": window}] * config["num_hidden_layers"]
        return super().positions_by_layer(config) | by_layer(layers)


class Ministral(Mistral):
    """`transformers`, `models/ministral`: Mistral with a window in some layers alone."""

    model_type = "ministral"
    written_as = "MinistralForCausalLM"

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        return {"positions": config.rotary(), **by_layer(windows(config))}

    def config_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any] | None:
        """None where all layers see the same: that is Mistral."""
        alike = len({block.window for block in spec.blocks}) == 1
        return None if alike else super().config_of(spec, vocabulary, context)


class Mixtral(Mistral):
    """`transformers`, `models/mixtral`: experts in every layer."""

    model_type = "mixtral"
    written_as = "MixtralForCausalLM"
    inert = ("router_jitter_noise",)  # of training alone

    def mlp(self, config: Config) -> dict[str, Any]:
        return mixture(config, "num_local_experts", "intermediate_size", normalise=True)

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        theirs = theirs.replace(".mlp", ".block_sparse_moe")
        yield from linear(f"{theirs}.gate", f"{ours}.router")
        names = {"w3": "up", "w1": "gate", "w2": "down"}
        yield from expert_links(theirs, ours, config["num_local_experts"], names)


class Phi3(Mistral):
    """`transformers`, `models/phi3`. Queries, keys and values are one tensor, and so are gate and up."""

    model_type = "phi3"
    written_as = "Phi3ForCausalLM"
    partial = True
    inert = ("embd_pdrop", "original_max_position_embeddings")  # the class moves it to `rope_parameters`

    def joined(self, config: Config) -> dict[str, Any]:
        return {"dropout": config["resid_pdrop"]}

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        queries, keys = (config.head_width * config[f"num_{name}_heads"] for name in ("attention", "key_value"))
        maps = tuple(f"{ours}.mixer.{name}.weight" for name in ("query", "key", "value"))
        yield Link((f"{theirs}.self_attn.qkv_proj.weight",), maps, parts([queries, keys, keys]).then(TURNED))
        yield from linear(f"{theirs}.self_attn.o_proj", f"{ours}.mixer.output")

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        hidden = config["intermediate_size"]
        both = (f"{ours}.gate.weight", f"{ours}.up.weight")
        yield Link((f"{theirs}.gate_up_proj.weight",), both, parts([hidden, hidden]).then(TURNED))
        yield same(f"{theirs}.down_proj.weight", f"{ours}.down.weight", TURNED)


class Starcoder2(Mistral):
    """`transformers`, `models/starcoder2`: LayerNorm and a plain MLP."""

    model_type = "starcoder2"
    written_as = "Starcoder2ForCausalLM"
    norm_kind = "layer"
    eps = "norm_epsilon"
    mlp_maps: ClassVar[Mapping[str, str]] = {"c_fc": "up", "c_proj": "down"}

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["use_bias"], config["use_bias"], config["use_bias"]

    def joined(self, config: Config) -> dict[str, Any]:
        return {"dropout": config["residual_dropout"]}

    def model(self, config: Config) -> dict[str, Any]:
        return {**super().model(config), "dropout": config["embedding_dropout"]}


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

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        return super().positions_by_layer(config) | by_layer(windows(config))


class Gemma3(Gemma2):
    """`transformers`, `models/gemma3`, `Gemma3ForCausalLM`: norms of queries and keys, other positions in windows."""

    model_type = "gemma3_text"
    written_as = "Gemma3ForCausalLM"
    inert = ("_sliding_window_pattern",)
    query_key_norm: ClassVar[Mapping[str, Any]] = {}

    def mixer(self, config: Config) -> dict[str, Any]:
        config.need("attn_logit_softcapping", None)
        return super().mixer(config)

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        return windows_with_rotary(config)

    def written_rope(self, spec: ModelSpec) -> dict[str, Any]:
        return {"rope_parameters": to_ropes(spec)}


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

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
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

"""Mistral (arXiv:2310.06825), Mixtral (arXiv:2401.04088), Phi-3 (arXiv:2404.14219), StarCoder 2 (arXiv:2402.19173)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import TURNED, Link, by_layer, linear, parts, same
from ablate.trained.hugging_face.architectures.llama import LlamaLike, expert_links, mixture, windows
from ablate.trained.hugging_face.settings import Config


class Mistral(LlamaLike):
    """`transformers`, `models/mistral`: no biases, and one window for all layers."""

    model_type = "mistral"
    written_as = "MistralForCausalLM"

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return False, False, False

    def places(self, config: Config) -> dict[str, Any]:
        window = config["sliding_window"]
        layers = [{} if window is None else {"window": window}] * config["num_hidden_layers"]
        return super().places(config) | by_layer(layers)


class Ministral(Mistral):
    """`transformers`, `models/ministral`: Mistral with a window in some layers alone."""

    model_type = "ministral"
    written_as = "MinistralForCausalLM"

    def places(self, config: Config) -> dict[str, Any]:
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

"""Kimi Linear (arXiv:2510.26692): Kimi Delta Attention, latent attention without positions, a mixture of experts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Config, by_layer
from ablate.trained.hugging_face.architectures.deepseek_v3 import DeepseekV3, latent_links
from ablate.trained.hugging_face.architectures.llama import LlamaLike, gated_links
from ablate.trained.hugging_face.links import STACKED, TAPS, TURNED, Link, each, linear, norm, same

_DENSE = re.compile(r"\.block_sparse_moe\.((?:gate|up|down)_proj\.)")
_BY_HEAD = each(lambda one: one.flatten(), lambda one: one.view(1, 1, -1, 1))


class KimiLinear(DeepseekV3):
    """`transformers`, `models/kimi_linear`. Its files name parts in their own way."""

    model_type = "kimi_linear"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.defaults,
        "kv_lora_rank": 512,
        "layer_types": None,
        "linear_attn_config": None,
        "linear_conv_kernel_dim": 4,
        "linear_head_dim": 128,
        "linear_num_heads": 32,
        "max_position_embeddings": 1048576,
        "mlp_layer_types": None,
        "moe_intermediate_size": 1024,
        "n_group": 1,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_experts_per_tok": 8,
        "num_local_experts": 256,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-5,
        "routed_scaling_factor": 2.446,
        "topk_group": 1,
        "v_head_dim": 128,
    }
    renamed: ClassVar[Mapping[str, str]] = {
        "model_max_length": "max_position_embeddings",
        "moe_renormalize": "norm_topk_prob",
        "num_expert_group": "n_group",
        "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
    }

    def tensor_name(self, name: str) -> str:
        """`transformers` writes MLPs without experts under the name of those with experts; the authors do not."""
        return _DENSE.sub(r".mlp.\1", name)

    def mlp(self, config: Config) -> dict[str, Any]:
        return self.experts(config, config["num_local_experts"])

    def places(self, config: Config) -> dict[str, Any]:
        linear, dense = {"mixer": self._linear(config)}, {"mlp": self.dense(config)}
        layers = [
            {**(linear if kind == "linear_attention" else {}), **({} if mlp == "sparse" else dense)}
            for kind, mlp in zip(self._kinds(config), self._mlps(config), strict=True)
        ]
        return {"positions": "none", **by_layer(layers)}

    @staticmethod
    def _linear(config: Config) -> dict[str, Any]:
        inside = config["linear_attn_config"] or {}
        return {
            "kind": "kimi_delta_attention",
            "heads": inside.get("num_heads", config["linear_num_heads"]),
            "head_width": inside.get("head_dim", config["linear_head_dim"]),
            "taps": inside.get("short_conv_kernel_size", config["linear_conv_kernel_dim"]),
            "eps": config["rms_norm_eps"],
        }

    @staticmethod
    def _kinds(config: Config) -> list[str]:
        depth, inside = config["num_hidden_layers"], config["linear_attn_config"] or {}
        full: set[int] = {layer - 1 for layer in inside.get("full_attn_layers", ())}  # counted from 1 there
        full = full or {layer for layer in range(depth) if layer and layer % 4 == 0}
        kinds: list[str] | None = config["layer_types"]
        return kinds or ["full_attention" if layer in full else "linear_attention" for layer in range(depth)]

    @staticmethod
    def _mlps(config: Config) -> list[str]:
        dense = config.get("first_k_dense_replace")
        dense = 1 if dense is None else dense
        kinds: list[str] | None = config["mlp_layer_types"]
        return kinds or ["dense" if layer < dense else "sparse" for layer in range(config["num_hidden_layers"])]

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        theirs, ours = f"{theirs}.self_attn", f"{ours}.mixer"
        if self._kinds(config)[layer] == "full_attention":
            yield from latent_links(config, theirs, ours, interleaved=False)
            return
        for name, short in (("query", "q"), ("key", "k"), ("value", "v")):
            yield from linear(f"{theirs}.{short}_proj", f"{ours}.{name}")
            yield same(f"{theirs}.{short}_conv1d.weight", f"{ours}.{name}_convolution.weight", TAPS)
        yield from linear(f"{theirs}.f_a_proj", f"{ours}.fade_down")
        yield from linear(f"{theirs}.f_b_proj", f"{ours}.fade_up")
        yield same(f"{theirs}.dt_bias", f"{ours}.decay.bias")
        yield same(f"{theirs}.A_log", f"{ours}.decay.rate", _BY_HEAD)
        yield from linear(f"{theirs}.b_proj", f"{ours}.strength")
        yield from linear(f"{theirs}.g_a_proj", f"{ours}.gate_down")
        yield from linear(f"{theirs}.g_b_proj", f"{ours}.gate_up")
        yield from norm(f"{theirs}.o_norm", f"{ours}.norm")
        yield from linear(f"{theirs}.o_proj", f"{ours}.output")

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        if self._mlps(config)[layer] == "dense":
            yield from gated_links(theirs, ours)
            return
        theirs = f"{theirs.removesuffix('.mlp')}.block_sparse_moe"
        yield from linear(f"{theirs}.gate", f"{ours}.router")
        yield same(f"{theirs}.gate.e_score_correction_bias", f"{ours}.choice.value")
        for name, short in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
            experts = range(config["num_local_experts"])
            every = tuple(f"{theirs}.experts.{expert}.{short}.weight" for expert in experts)
            yield Link(every, (f"{ours}.experts.{name}",), STACKED.then(TURNED))
        if config["n_shared_experts"]:
            yield from gated_links(f"{theirs}.shared_experts", f"{ours}.shared")

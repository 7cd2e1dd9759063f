"""gpt-oss (arXiv:2508.10925): sinks, windows in every second layer, a mixture of experts in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from ablate.trained.hugging_face.architecture import Config, by_layer
from ablate.trained.hugging_face.architectures.llama import LlamaLike, attention_links
from ablate.trained.hugging_face.links import Conversion, Link, linear, same

_ALTERNATING = Conversion(
    lambda theirs: (theirs[0][..., 0::2], theirs[0][..., 1::2]),
    lambda ours: (torch.stack(list(ours), -1).flatten(-2),),
)
"""Columns of gate and of up in turn."""
_ALPHA = 1.702


class GptOss(LlamaLike):
    """`transformers`, `models/gpt_oss`, weights in a float type. The experts' matrices are [in, out] as ours are."""

    model_type = "gpt_oss"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.defaults,
        "attention_bias": True,
        "head_dim": 64,
        "layer_types": None,
        "num_experts_per_tok": 4,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150000.0,
        "sliding_window": 128,
        "swiglu_alpha": _ALPHA,
        "swiglu_limit": 7.0,
    }

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "logits": {"sinks": True}}

    def mlp(self, config: Config) -> dict[str, Any]:
        config.need("swiglu_alpha", _ALPHA)
        return {
            "kind": "mixture",
            "experts": config["num_local_experts"],
            "active": config["num_experts_per_tok"],
            "ratio": config["intermediate_size"] / config["hidden_size"],
            "activation": "quick_gelu",
            "bias": True,
            "limit": config["swiglu_limit"],
            "shift": 1.0,
            "router_bias": True,
        }

    def places(self, config: Config) -> dict[str, Any]:
        depth, window = config["num_hidden_layers"], {"window": config["sliding_window"]}
        kinds = config["layer_types"] or ["full_attention" if i % 2 else "sliding_attention" for i in range(depth)]
        return super().places(config) | by_layer([window if kind == "sliding_attention" else {} for kind in kinds])

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from attention_links(f"{theirs}.self_attn", f"{ours}.mixer", bias=config["attention_bias"])
        yield same(f"{theirs}.self_attn.sinks", f"{ours}.mixer.sinks.logit")

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from linear(f"{theirs}.router", f"{ours}.router", bias=True)
        for suffix in ("", "_bias"):
            both = (f"{ours}.experts.gate{suffix}", f"{ours}.experts.up{suffix}")
            yield Link((f"{theirs}.experts.gate_up_proj{suffix}",), both, _ALTERNATING)
            yield same(f"{theirs}.experts.down_proj{suffix}", f"{ours}.experts.down{suffix}")

"""gpt-oss (arXiv:2508.10925): sinks, windows in every second layer, a mixture of experts in all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ablate.trained.hugging_face.architecture import Conversion, Link, by_layer, linear, same
from ablate.trained.hugging_face.architectures.llama import LlamaLike, attention_links, windows
from ablate.trained.hugging_face.settings import Config

_ALTERNATING = Conversion(
    lambda theirs: (theirs[0][..., 0::2], theirs[0][..., 1::2]),
    lambda ours: (torch.stack(list(ours), -1).flatten(-2),),
)
"""Columns of gate and of up in turn."""
_ALPHA = 1.702


class GptOss(LlamaLike):
    """`transformers`, `models/gpt_oss`, weights in a float type. The experts' matrices are [in, out] as ours are."""

    model_type = "gpt_oss"

    inert = ("hidden_act",)

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
        return super().places(config) | by_layer(windows(config))

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from attention_links(f"{theirs}.self_attn", f"{ours}.mixer", bias=config["attention_bias"])
        yield same(f"{theirs}.self_attn.sinks", f"{ours}.mixer.sinks.logit")

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from linear(f"{theirs}.router", f"{ours}.router", bias=True)
        for suffix in ("", "_bias"):
            both = (f"{ours}.experts.gate{suffix}", f"{ours}.experts.up{suffix}")
            yield Link((f"{theirs}.experts.gate_up_proj{suffix}",), both, _ALTERNATING)
            yield same(f"{theirs}.experts.down_proj{suffix}", f"{ours}.experts.down{suffix}")

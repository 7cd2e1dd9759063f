"""Qwen3 (arXiv:2505.09388): Llama with norms of queries and keys, and heads of their own width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ablate.trained.hugging_face.architecture import Link, by_layer
from ablate.trained.hugging_face.architectures.llama import LlamaLike, query_key_norm_links, windows
from ablate.trained.hugging_face.settings import Config


class Qwen3(LlamaLike):
    """`transformers`, `models/qwen3`."""

    model_type = "qwen3"
    written_as = "Qwen3ForCausalLM"
    inert = ("max_window_layers", "use_sliding_window")  # the class works `layer_types` out from them

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "query_key_norm": {"kind": "rms", "eps": config["rms_norm_eps"]}}

    def places(self, config: Config) -> dict[str, Any]:
        layers = windows(config)
        if any(layers) and not config["use_sliding_window"]:
            raise config.refuse("use_sliding_window", "layers with `sliding_attention` need it")
        return super().places(config) | by_layer(layers)

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from super().mixer_links(config, layer, theirs, ours)
        yield from query_key_norm_links(f"{theirs}.self_attn", f"{ours}.mixer")

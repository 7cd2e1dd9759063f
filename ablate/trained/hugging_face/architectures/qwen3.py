"""Qwen3 (arXiv:2505.09388): Llama with norms of queries and keys, and heads of their own width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Config
from ablate.trained.hugging_face.architectures.llama import LlamaLike, query_key_norm_links
from ablate.trained.hugging_face.links import Link


class Qwen3(LlamaLike):
    """`transformers`, `models/qwen3`."""

    model_type = "qwen3"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.defaults,
        "head_dim": 128,
        "layer_types": None,
        "use_sliding_window": False,
    }

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "query_key_norm": {"kind": "rms", "eps": config["rms_norm_eps"]}}

    def places(self, config: Config) -> dict[str, Any]:
        config.need("use_sliding_window", False)
        return super().places(config)

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from super().mixer_links(config, layer, theirs, ours)
        yield from query_key_norm_links(f"{theirs}.self_attn", f"{ours}.mixer")

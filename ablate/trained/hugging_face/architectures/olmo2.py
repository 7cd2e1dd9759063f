"""OLMo 2 (arXiv:2501.00656): Llama with norms on what sub-layers give, and norms over all queries and all keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Link
from ablate.trained.hugging_face.architectures.llama import LlamaLike, query_key_norm_links
from ablate.trained.hugging_face.settings import Config


class Olmo2(LlamaLike):
    """`transformers`, `models/olmo2`."""

    model_type = "olmo2"
    norms: ClassVar[Mapping[str, str]] = {
        "post_attention_layernorm": "norm_mixer",
        "post_feedforward_layernorm": "norm_mlp",
    }

    def block_norm(self, config: Config) -> dict[str, Any]:
        return {**super().block_norm(config), "place": "output"}

    def mixer(self, config: Config) -> dict[str, Any]:
        norm = {"kind": "rms", "over": "width", "eps": config["rms_norm_eps"]}
        return {**super().mixer(config), "query_key_norm": norm}

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from super().mixer_links(config, layer, theirs, ours)
        yield from query_key_norm_links(f"{theirs}.self_attn", f"{ours}.mixer")

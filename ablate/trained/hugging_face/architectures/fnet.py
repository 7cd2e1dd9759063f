"""FNet (arXiv:2105.03824) with its head of masked tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Config
from ablate.trained.hugging_face.architectures.bert import BertLike
from ablate.trained.hugging_face.links import Link, linear, norm


class FNetModel(BertLike):
    """`transformers`, `models/fnet`: `FNetForMaskedLM`, which reads padding as it reads any token."""

    model_type = "fnet"
    prefix = "fnet."
    sees_padding = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **BertLike.defaults,
        "hidden_act": "gelu_new",
        "num_attention_heads": 1,
        "type_vocab_size": 4,
    }

    def model(self, config: Config) -> dict[str, Any]:
        return {**super().model(config), "embedding_map": True}

    def mixer(self, config: Config) -> dict[str, Any]:
        return {"kind": "fnet"}

    def links(self, config: Config) -> Iterator[Link]:
        yield from super().links(config)
        yield from linear(f"{self.prefix}embeddings.projection", "embedding_map", bias=True)

    def mixer_links(self, theirs: str, ours: str) -> Iterator[Link]:
        return norm(f"{theirs}.fourier.output.LayerNorm", f"{ours}.norm_mixer", bias=True)

"""FNet (arXiv:2105.03824) with its head of masked tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ablate.trained.hugging_face.architecture import Link, linear, norm
from ablate.trained.hugging_face.architectures.bert import BertLike
from ablate.trained.hugging_face.settings import Config


class FNetModel(BertLike):
    """`transformers`, `models/fnet`: `FNetForMaskedLM`, which reads padding as it reads any token."""

    model_type = "fnet"
    dropout = "that of hidden values also falls on the output of Fourier layers"
    prefix = "fnet."
    sees_padding = True
    inert = ("tpu_short_seq_length",)

    def model(self, config: Config) -> dict[str, Any]:
        return {**super().model(config), "embedding_map": True}

    def heads(self, config: Config) -> int:
        return 1

    def mixer(self, config: Config) -> dict[str, Any]:
        return {"kind": "fnet"}

    def links(self, config: Config) -> Iterator[Link]:
        yield from super().links(config)
        yield from linear(f"{self.prefix}embeddings.projection", "embedding_map", bias=True)

    def mixer_links(self, theirs: str, ours: str) -> Iterator[Link]:
        return norm(f"{theirs}.fourier.output.LayerNorm", f"{ours}.norm_mixer", bias=True)

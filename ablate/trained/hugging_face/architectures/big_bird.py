"""BigBird (arXiv:2007.14062) with full attention, and its head of masked tokens."""

from __future__ import annotations

from typing import Any

from ablate.trained.hugging_face.architectures.bert import BertLike
from ablate.trained.hugging_face.settings import Config


class BigBirdModel(BertLike):
    """`transformers`, `models/big_bird`, with `attention_type: original_full`.

    Its blocks are another matter: they have biases, and the first block in the place of random ones in evaluation.
    """

    model_type = "big_bird"
    dropout = "that of embeddings comes after their norm instead of before it"
    inert = ("block_size", "num_random_blocks")

    def model(self, config: Config) -> dict[str, Any]:
        config.need("attention_type", "original_full")
        config.need("use_bias", True)
        scale = "sqrt_width" if config["rescale_embeddings"] else "none"
        return {**super().model(config), "embedding_scale": scale}

"""SmolLM3 (https://huggingface.co/blog/smollm3): Llama with layers that have no positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Config, by_layer
from ablate.trained.hugging_face.architectures.llama import LlamaLike


class SmolLM3(LlamaLike):
    """`transformers`, `models/smollm3`."""

    model_type = "smollm3"
    defaults: ClassVar[Mapping[str, Any]] = {
        **LlamaLike.defaults,
        "no_rope_layer_interval": 4,
        "no_rope_layers": None,
        "num_key_value_heads": 4,
        "rope_theta": 2000000.0,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    }

    def places(self, config: Config) -> dict[str, Any]:
        config.need("use_sliding_window", False)
        depth, every = config["num_hidden_layers"], config["no_rope_layer_interval"]
        turned = config["no_rope_layers"] or [(layer + 1) % every != 0 for layer in range(depth)]
        return super().places(config) | by_layer([{} if one else {"positions": "none"} for one in turned])

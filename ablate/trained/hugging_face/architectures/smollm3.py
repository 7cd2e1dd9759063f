"""SmolLM3 (https://huggingface.co/blog/smollm3): Llama with layers that have no positions."""

from __future__ import annotations

from typing import Any

from ablate.trained.hugging_face.architecture import by_layer
from ablate.trained.hugging_face.architectures.llama import LlamaLike, windows
from ablate.trained.hugging_face.settings import Config


class SmolLM3(LlamaLike):
    """`transformers`, `models/smollm3`."""

    model_type = "smollm3"

    inert = ("no_rope_layer_interval", "use_sliding_window")  # the class works lists over layers out from them
    mlp_biases = True

    def places(self, config: Config) -> dict[str, Any]:
        turned = config["no_rope_layers"]
        if not isinstance(turned, list) or len(turned) < config["num_hidden_layers"]:
            raise config.refuse("no_rope_layers", "a list with a value for each layer can be read")
        layers = [here if turned[i] else {**here, "positions": "none"} for i, here in enumerate(windows(config))]
        return super().places(config) | by_layer(layers)

"""A model of ours in a folder with its own modelling file, as `ablate export --hf` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ablate.nn.model import outline
from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import Architecture, Conversion, Link, same
from ablate.trained.hugging_face.settings import Config

_PACKED = Conversion(lambda theirs: (theirs[0][0],), lambda ours: (ours[0][None],))
"""[1, ...] in the file, [...] in the maps."""


class Ablate(Architecture):
    """A decoder that was exported because no model of `transformers` is like it. Its code is ours: it is not run."""

    model_type = "ablate"
    own = True

    def model(self, config: Config) -> dict[str, Any]:
        model = config["model"]
        if not isinstance(model, dict):
            raise config.refuse("model", "the model section that `ablate export` writes can be read")
        return model

    def tied_names(self, config: Config) -> dict[str, str]:
        return {}

    def links(self, config: Config) -> Iterator[Link]:
        model = ModelSpec.model_validate(config["model"])
        whole = outline(model, vocabulary=config["vocab_size"], context=self.context(config))
        for name in whole.state_dict():
            yield same(f"{self.prefix}{name}", name, _PACKED)

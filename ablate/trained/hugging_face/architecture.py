"""`Architecture`: the base class of the models that can be read; `architectures` finds them, one file each."""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Link
from ablate.trained.hugging_face.settings import Config


def by_layer(layers: Sequence[dict[str, Any]], *, first: dict[str, Any] | None = None) -> dict[str, Any]:
    """`pattern` or `exceptions` of a model whose layers differ from its block.

    Args:
        layers: For each layer, the part of a block spec that is laid over the block.
        first: What else is laid over it in the first layer.
    """
    exceptions = {} if first is None else {"first": first}
    for length in range(1, len(layers) // 2 + 1):
        if all(one == layers[index % length] for index, one in enumerate(layers)):
            pattern = {"pattern": layers[:length]} if length > 1 or layers[0] else {}
            return {**pattern, **({"exceptions": exceptions} if exceptions else {})}
    start = 0
    for same, run in itertools.groupby(layers):
        end = start + len(list(run)) - 1
        if same:
            exceptions[str(start) if start == end else f"{start}-{end}"] = same
        start = end + 1
    return {"exceptions": exceptions} if exceptions else {}


class Architecture(ABC):
    """A sort of model of `transformers`. A final subclass sets the class attributes and has the three methods."""

    model_type: ClassVar[str]
    """`model_type` in `config.json`."""
    auto_class: ClassVar[str] = "AutoModelForCausalLM"
    """The class of `transformers` whose logits are ours."""
    inert: ClassVar[tuple[str, ...]] = ()
    """Settings of the configuration class that change no logits, besides those that change none in any model."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Patterns (as in `fnmatch`) of tensors that do nothing to the logits and are left out."""
    sees_padding: ClassVar[bool] = False
    """Whether padding is to the model a token like others, so that it takes no mask."""
    own: ClassVar[bool] = False
    """Whether its code is ours, so that there is nothing to compare."""
    prefix: ClassVar[str] = "model."
    """What the names of tensors of the body begin with; files of the body alone leave it out."""

    @abstractmethod
    def model(self, config: Config) -> dict[str, Any]:
        """The model section of a space.

        Raises:
            DataError: A setting is none that our models have.
        """

    def tensor_name(self, name: str) -> str:
        """The name in `links` of a tensor that a file may have under another one."""
        return name

    @abstractmethod
    def links(self, config: Config) -> Iterator[Link]:
        """Which tensor is which."""

    def context(self, config: Config) -> int:
        """The longest input in tokens."""
        longest: int = config["max_position_embeddings"]
        return longest

    def tied(self, config: Config) -> dict[str, str]:
        """Names of tensors that their files may leave out or repeat, to those that they are equal to."""
        return {"lm_head.weight": "model.embed_tokens.weight"} if config["tie_word_embeddings"] else {}

    def substitutes(self, config: Config) -> dict[str, str]:
        """Names of tensors that files may leave out though nothing says that they are tied, to those in their place."""
        return {}


@functools.cache
def architectures() -> dict[str, Architecture]:
    """Every architecture by its `model_type`."""
    package = importlib.import_module("ablate.trained.hugging_face.architectures")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted((kind.model_type, kind()) for kind in _final()))


def _final() -> Iterator[type[Architecture]]:
    bases: list[type[Any]] = [Architecture]
    while bases:
        kind = bases.pop()
        if "model_type" in vars(kind):
            yield kind
        bases += kind.__subclasses__()

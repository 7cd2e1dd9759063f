"""`Architecture`: the base class of the models that can be read; `architectures` finds them, one file each."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ablate.errors import DataError
from ablate.spec.activation import Activation
from ablate.trained.hugging_face.links import Link

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu_squared",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Their names of nonlinearities to ours."""


def their_activation(name: Activation) -> str:
    """Our name of a nonlinearity to theirs.

    Raises:
        KeyError: They have none like it.
    """
    return {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}[name]


class Config:
    """The settings of a `config.json`, and what `transformers` takes where one is left out.

    Args:
        plain: The content of the file.
        defaults: Settings and their values where the file does not have them.
        where: Names the file in messages.
        renamed: Other names of settings, to those used here.
    """

    def __init__(
        self,
        plain: Mapping[str, Any],
        defaults: Mapping[str, Any],
        where: str,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self._values = {**defaults, **{(renamed or {}).get(name, name): value for name, value in plain.items()}}
        self.where = where

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise DataError(
                f"`{name}` is missing", where=self.where, remedy="Take the `config.json` that belongs to the weights."
            ) from None

    def get(self, name: str) -> Any:
        """A setting, or None where there is none."""
        return self._values.get(name)

    def refuse(self, name: str, why: str) -> DataError:
        """The error for a setting that our models do not have.

        Args:
            name: The setting.
            why: What is missing here, as a sentence.
        """
        return DataError(
            f"`{name}`: {why}",
            where=self.where,
            got=repr(self._values.get(name)),
            remedy="Such a model cannot be read; take one with another setting.",
        )

    def need(self, name: str, value: Any) -> None:
        """Refuse all values of a setting but one.

        Raises:
            DataError: The setting has another value.
        """
        if self[name] != value:
            raise self.refuse(name, f"only {value!r} can be read")

    def activation(self, name: str) -> Activation:
        """A nonlinearity by our name.

        Raises:
            DataError: We have none like it.
        """
        if self[name] not in _ACTIVATIONS:
            raise self.refuse(name, f"of the nonlinearities {', '.join(_ACTIVATIONS)} can be read")
        return _ACTIVATIONS[self[name]]

    @property
    def head_width(self) -> int:
        """Width of a head."""
        width: int = self.get("head_dim") or self["hidden_size"] // self["num_attention_heads"]
        return width

    def rotary(
        self, layer_type: str | None = None, *, fraction: float = 1.0, base: str = "rope_theta"
    ) -> dict[str, Any]:
        """The rotary positions, as a position spec.

        Args:
            layer_type: Of which sort of layers, where these differ.
            fraction: Share of a head's channels that turn.
            base: The setting that older files have in the place of `rope_parameters`.

        Raises:
            DataError: Their frequencies are scaled in a way that we do not have.
        """
        rope = self.get("rope_parameters") or {}
        rope = rope.get(layer_type, rope) if layer_type is not None else rope
        older = self.get("rope_scaling") if layer_type != "sliding_attention" else None
        rope = {"rope_theta": self.get(base), **rope, **(older or {})}
        kind = rope.get("rope_type", rope.get("type", "default"))
        share = rope.get("partial_rotary_factor", fraction)
        if kind not in _SCALINGS:
            raise self.refuse("rope_parameters", f"of the scalings of positions {', '.join(_SCALINGS)} can be read")
        positions = {"kind": "rotary", "base": float(rope["rope_theta"] or 10000.0), "fraction": share}
        scaling = _SCALINGS[kind](rope)
        return {**positions, "scaling": scaling} if scaling else positions


def _yarn(rope: Mapping[str, Any]) -> dict[str, Any]:
    scaling: dict[str, Any] = {
        "kind": "yarn",
        "factor": rope["factor"],
        "original_context": rope["original_max_position_embeddings"],
        "fast": rope.get("beta_fast") or 32.0,
        "slow": rope.get("beta_slow") or 1.0,
        "whole_pairs": rope.get("truncate", True),
    }
    if rope.get("attention_factor") is not None:
        scaling["temperature"] = rope["attention_factor"]
    elif rope.get("mscale") and rope.get("mscale_all_dim"):
        turned, whole = (0.1 * rope[name] * math.log(rope["factor"]) + 1 for name in ("mscale", "mscale_all_dim"))
        scaling["temperature"] = turned / whole
    return scaling


_SCALINGS: dict[str, Any] = {
    "default": lambda rope: {},
    "linear": lambda rope: {"kind": "linear", "factor": rope["factor"]},
    "llama3": lambda rope: {
        "kind": "llama3",
        "factor": rope["factor"],
        "low_frequency": rope["low_freq_factor"],
        "high_frequency": rope["high_freq_factor"],
        "original_context": rope["original_max_position_embeddings"],
    },
    "yarn": _yarn,
}
"""Their scalings of rotary frequencies to ours."""


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
    defaults: ClassVar[Mapping[str, Any]] = {}
    """What `transformers` takes where `config.json` does not have a setting."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Other names that `config.json` may have for settings, to those used here."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Patterns (as in `fnmatch`) of tensors that do nothing to the logits and are left out."""
    sees_padding: ClassVar[bool] = False
    """Whether padding is to the model a token like others, so that it takes no mask."""
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

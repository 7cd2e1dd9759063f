"""`Architecture`: the base class of the models that can be read; `Link`: which tensors of theirs are which of ours.

`architectures` finds the models, also those of a `--plugin`; similar ones share a file. Tensors of ablate are [K, ...]
in a model; here K is left out. Projections are [in, out] in ablate and [out, in] in `transformers`.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.settings import Config, declared

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How values change between theirs and ours; one function is the inverse of the other."""

    to_ours: Callable[[Tensors], Tensors]
    to_theirs: Callable[[Tensors], Tensors]

    def then(self, other: Conversion) -> Conversion:
        """This conversion, on the way to ours, and then another one."""
        return Conversion(
            lambda theirs: other.to_ours(self.to_ours(theirs)), lambda ours: self.to_theirs(other.to_theirs(ours))
        )


def convert_each(to_ours: Callable[[Tensor], Tensor], to_theirs: Callable[[Tensor], Tensor]) -> Conversion:
    """A conversion of each tensor by itself."""
    return Conversion(
        lambda theirs: tuple(to_ours(tensor) for tensor in theirs),
        lambda ours: tuple(to_theirs(tensor) for tensor in ours),
    )


SAME = convert_each(lambda one: one, lambda one: one)
TURNED = convert_each(lambda one: one.mT, lambda one: one.mT)
"""Maps: [out, in] to [in, out]."""
PLUS_ONE = convert_each(lambda one: 1 + one, lambda one: one - 1)
"""Gains of norms that are stored as their difference from 1 (Gemma, Qwen3-Next)."""
TAPS = convert_each(lambda one: one.squeeze(1), lambda one: one.unsqueeze(1))
"""Depthwise convolutions: [channels, 1, taps] to [channels, taps]."""


def parts(sizes: Sequence[int], dim: int = 0) -> Conversion:
    """One tensor of theirs that is several of ours, of these sizes along an axis."""
    return Conversion(
        lambda theirs: torch.split(theirs[0], list(sizes), dim), lambda ours: (torch.cat(list(ours), dim),)
    )


def reorder_rows(order: Tensor) -> Conversion:
    """Rows in another order: row i of ours is row `order[i]` of theirs."""
    back = order.argsort()
    return convert_each(lambda one: one[order], lambda one: one[back])


STACKED = Conversion(lambda theirs: (torch.stack(list(theirs)),), lambda ours: tuple(ours[0]))
"""Several tensors of theirs that are one of ours, one behind the other along a new first axis."""


@dataclass(frozen=True, slots=True)
class Link:
    """Tensors of theirs that are tensors of ours.

    Attributes:
        theirs: Names in their files.
        ours: Names in the `state_dict` of our model.
        conversion: How values change.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    conversion: Conversion = SAME


Links = Iterator[Link]


def same(theirs: str, ours: str, conversion: Conversion = SAME) -> Link:
    """One tensor of theirs that is one of ours."""
    return Link((theirs,), (ours,), conversion)


def linear(theirs: str, ours: str, *, bias: bool = False) -> Links:
    """A linear map and its bias."""
    yield same(f"{theirs}.weight", f"{ours}.weight", TURNED)
    if bias:
        yield same(f"{theirs}.bias", f"{ours}.bias")


def norm(theirs: str, ours: str, *, bias: bool = False, conversion: Conversion = SAME) -> Links:
    """The gain of a norm and its bias."""
    yield same(f"{theirs}.weight", f"{ours}.weight", conversion)
    if bias:
        yield same(f"{theirs}.bias", f"{ours}.bias")


def by_layer(layers: Sequence[dict[str, Any]], *, first: dict[str, Any] | None = None) -> dict[str, Any]:
    """`pattern` or `exceptions` of a model whose layers differ from its block.

    Args:
        layers: For each layer, the part of a block spec that is laid over the block.
        first: What else is laid over it in the first layer.
    """
    exceptions = {} if first is None else {"first": first}
    for length in range(1, len(layers) // 2 + 1):
        if all(layer == layers[index % length] for index, layer in enumerate(layers)):
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
    exactly: ClassVar[Mapping[str, Any]] = {}
    """Settings with which `transformers` computes as precisely as its weights are."""
    written_as: ClassVar[str] = ""
    """Name of the class of `transformers` that loads an exported model; empty if none is exported in this format."""
    undeclared: ClassVar[tuple[str, ...]] = ()
    """Settings that are written though the configuration class does not declare them."""
    own: ClassVar[bool] = False
    """Whether its code is ours, so that there is nothing to compare."""
    dropout: ClassVar[str] = ""
    """How its dropout, which is in training alone, is placed otherwise than theirs; a clause, empty if it is not."""
    prefix: ClassVar[str] = "model."
    """What the names of tensors of the body begin with; files of the body alone leave it out."""

    @abstractmethod
    def model(self, config: Config) -> dict[str, Any]:
        """The model section of a space.

        Raises:
            DataError: Our models do not have a setting.
        """

    def tensor_name(self, name: str) -> str:
        """The name in `links` of a tensor that a file may have under another one."""
        return name

    @abstractmethod
    def links(self, config: Config) -> Iterator[Link]:
        """Which tensor is which."""

    def config_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any] | None:
        """The `config.json` of a model of ours, which is then read back; None if models of this sort are not written.

        Args:
            vocabulary: Number of token ids V.
            context: The longest input in tokens.

        Raises:
            AttributeError, KeyError: A part of the model has no such setting.
        """
        if not self.written_as:
            return None
        known = declared(self.model_type).union(self.undeclared)
        settings = self.settings_of(spec, vocabulary, context).items()
        return {"architectures": [self.written_as], **{name: value for name, value in settings if name in known}}

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        """The settings that say something of a model of ours; `config_of` drops those that the class does not declare.

        What they cannot say shows where the result is read back. Arguments and errors are those of `config_of`.
        """
        return {}

    def context(self, config: Config) -> int:
        """The longest input in tokens."""
        return config.longest_input

    def tied_names(self, config: Config) -> dict[str, str]:
        """Names of tensors that their files may leave out or repeat, to those that they are equal to."""
        return {"lm_head.weight": "model.embed_tokens.weight"} if config["tie_word_embeddings"] else {}

    def settled(self, plain: Mapping[str, Any], theirs: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """The content of a `config.json`, with what the tensors beside it say where they count more than it does."""
        return plain


def architectures() -> dict[str, Architecture]:
    """Every architecture by its `model_type`, those of plugins too; the last that was defined replaces others."""
    package = importlib.import_module("ablate.trained.hugging_face.architectures")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    known = {kind.model_type: kind() for kind in _final(Architecture)}
    return dict(sorted(known.items()))


def _final(base: type[Any]) -> Iterator[type[Architecture]]:
    for kind in base.__subclasses__():
        if "model_type" in vars(kind):
            yield kind
        yield from _final(kind)

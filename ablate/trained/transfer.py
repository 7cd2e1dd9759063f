"""Give the weights of one model to another: what agrees by meaning is copied, the rest is listed.

A tensor has the meaning that its name says: `blocks.3.mixer.query.weight` makes queries in any mixer that has some, so
that attention without softmax gives its weights to attention with softmax and back. Layers of other depths are matched
in proportion. Where the same map is written otherwise it is converted: rows of a longer table of positions, an
embedding with one id more (the mask of a masked language model, which is the last), heads that are left out,
W = α·W_init + β·ΔW, values without a map as the identity, a head of its own from a tied one.

Fixed gains are settings of the target, and are never copied.

Shapes: K = 1, D width, H heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ablate.errors import PluginError, SpaceError
from ablate.kinds.mixers.attention import AttentionSpec
from ablate.nn.model import outline
from ablate.nn.pack import Gain, HeadGain, IdentitySpec
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.task import DataShape
from ablate.spec.training import InitFromSpec
from ablate.trained.source import SourceWeights

_LAYER = re.compile(r"(?P<stack>(?:decoder_)?blocks)\.(?P<index>\d+)\.(?P<part>.+)")
_BLOCKS, _DECODER_BLOCKS = "blocks", "decoder_blocks"
_OF_EVERY_MIXER = ("query.", "key.", "value.", "output.")
"""Maps that mean the same in all mixers that have them."""
_POSITIONS = "positions.weight"
_EMBEDDING = "embedding.weight"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The weights of a source for a model.

    Attributes:
        tensors: Name in the model to value.
        copied: Names in the model that have weights of the source.
        new: Names in the model that the source does not have.
        unused: Names in the source that have no place in the model.
        moved: Layers that have the settings of the source's layer at their place and the weights of another one, which
            has others (a window, positions, norms), or numbers that follow from the layer or the depth.
    """

    where: str
    tensors: Mapping[str, Tensor]
    copied: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]
    moved: tuple[int, ...] = ()

    def sentence(self) -> str:
        """What was copied, is new, and has no place, names with their layers joined."""
        parts = [f"{len(self.copied)} tensors are copied from {self.where}"]
        if self.new:
            parts.append(f"{len(self.new)} {'is' if len(self.new) == 1 else 'are'} new ({listed_parts(self.new)})")
        if self.unused:
            have = "has" if len(self.unused) == 1 else "have"
            parts.append(f"{len(self.unused)} of the source {have} no place ({listed_parts(self.unused)})")
        if self.moved:
            these = ", ".join(map(str, self.moved))
            parts.append(f"layers with weights of a layer that had other settings: {these}")
        return "; ".join(parts)


def listed_parts(names: Iterable[str]) -> str:
    """Names of tensors, those of several layers as one with the number of layers."""
    counts: dict[str, int] = {}
    for name in names:
        match = _LAYER.fullmatch(name)
        shown = name if match is None else f"{match['stack']}.*.{match['part']}"
        counts[shown] = counts.get(shown, 0) + 1
    return ", ".join(f"{name} ({count})" if count > 1 else name for name, count in counts.items())


def outline_of(model: ModelSpec, shape: DataShape) -> nn.Module:
    """The outline of a model for data of this shape.

    Raises:
        PluginError: It cannot be built.
    """
    try:
        return outline(model, vocabulary=shape.vocabulary, context=shape.context, classes=shape.classes)
    except Exception as error:  # a user's kind may raise anything
        raise PluginError(
            f"building the model raised {type(error).__name__}: {error}",
            where="model",
            remedy="If a kind is your own, correct its `build`; `--debug` shows where it was raised.",
        ) from error


def transfer(model: ModelSpec, shape: DataShape, source: SourceWeights, start: InitFromSpec) -> Transfer:
    """The weights that a model takes from a source.

    Args:
        start: How they are mapped.

    Raises:
        PluginError: The model cannot be built.
        SpaceError: `map: exact` was asked for and the source is another model, or `layers` do not fit.
    """
    whole = outline_of(model, shape)
    own = {
        f"{path}.{name}"
        for path, module in whole.named_modules()
        if isinstance(module, Gain | HeadGain)
        for name, _ in module.named_buffers(recurse=False)
    }
    wanted = {name: tensor for name, tensor in whole.state_dict().items() if name not in own}
    matching = _Matching(model, source, start)
    tensors: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, tensor in wanted.items():
        copied, read = matching.find(name, tensor.shape)
        if copied is not None:
            tensors[name] = copied
            used |= read
    settings = {_LAYER.sub(r"\g<part>", name) for name in own}
    fixed = {name for name in source.tensors if _LAYER.sub(r"\g<part>", name) in settings}
    made = Transfer(
        source.where,
        tensors,
        tuple(tensors),
        tuple(name for name in wanted if name not in tensors),
        tuple(sorted(source.tensors.keys() - used - fixed)),
        matching.moved(whole, shape),
    )
    if start.map == "exact" and (made.new or made.unused):
        raise SpaceError(
            "the source is another model",
            where="training.init_from.map",
            expected="tensors of the same names and shapes, as `exact` says",
            got=made.sentence(),
            remedy="Set `map: auto` to copy what agrees.",
        )
    return made


class _Matching:
    """Finds the weights of a source for the tensors of a model."""

    def __init__(self, model: ModelSpec, source: SourceWeights, start: InitFromSpec) -> None:
        self.model = model
        self.source = source
        self.exact = start.map == "exact"
        depths = dict.fromkeys((_BLOCKS, _DECODER_BLOCKS), 0)
        for layer in filter(None, map(_LAYER.fullmatch, source.tensors)):
            depths[layer["stack"]] = max(depths[layer["stack"]], 1 + int(layer["index"]))
        depth, layers = depths[_BLOCKS], start.layers
        if layers is not None and (len(layers) != model.depth or max(layers, default=0) >= max(1, depth)):
            raise SpaceError(
                "`layers` says for each layer of the model which one of the source it starts from",
                where="training.init_from.layers",
                expected=f"{model.depth} numbers below {depth}",
                got=str(list(layers)),
                remedy="Name as many layers as the model has, counted from 0.",
            )
        self.layers = layers or self._in_proportion(model.depth, depth)
        of_decoder = 0 if model.decoder is None else model.decoder.depth
        self.decoder_layers = self._in_proportion(of_decoder, depths[_DECODER_BLOCKS])

    def _in_proportion(self, depth: int, depth_of_source: int) -> tuple[int, ...]:
        """For each of `depth` layers the one of the source that it starts from."""
        return tuple(layer if self.exact else layer * depth_of_source // depth for layer in range(depth))

    def moved(self, model: nn.Module, shape: DataShape) -> tuple[int, ...]:
        """See `Transfer`.

        Args:
            model: Outline of the model.
            shape: Sizes of its data.
        """
        source, in_place = self.source.model, self.layers == tuple(range(self.model.depth))
        if source is None or (in_place and (self.exact or source.depth == self.model.depth)):
            return ()
        before, theirs = source.blocks, outline_of(source, shape)
        moved = []
        for layer, (block, twin) in enumerate(zip(self.model.blocks, self.layers, strict=True)):
            by_place = layer < len(before) and any(
                getattr(block, name) == getattr(before[layer], name) != getattr(before[twin], name)
                for name in BlockSpec.model_fields
            )
            by_depth = block == before[twin] and _constants(model, layer) != _constants(theirs, twin)
            if by_place or by_depth:
                moved.append(layer)
        return tuple(moved)

    def find(self, name: str, shape: torch.Size) -> tuple[Tensor | None, set[str]]:
        """The value of a tensor, and the names in the source that it was made of; None if there is none."""
        tensors = self.source.tensors
        layer = _LAYER.fullmatch(name)
        if layer is None:
            return self._outside(name, shape)
        index, source = int(layer["index"]), self.source.model
        if layer["stack"] == _BLOCKS:
            before, block = self.layers[index], self.model.blocks[index]
            theirs = source.blocks[before] if source is not None and before < source.depth else None
        else:
            before, block = self.decoder_layers[index], self.model.block
            theirs = source.block if source is not None and source.decoder is not None else None
        twin = f"{layer['stack']}.{before}.{layer['part']}"
        if theirs is not None and not _same_meaning(layer["part"], block, theirs):
            return None, set()
        tensor = tensors.get(twin)
        made = (tensor, {twin}) if tensor is not None else self._written_otherwise(layer["part"], twin, theirs, shape)
        value, read = made
        if value is not None and not self.exact and isinstance(block.mixer, AttentionSpec):
            gone = set(theirs.mixer.without_heads) if theirs and isinstance(theirs.mixer, AttentionSpec) else set()
            there, kept = (
                [h for h in range(self.model.heads) if h not in out] for out in (gone, block.mixer.without_heads)
            )
            if there != kept and layer["part"].startswith("mixer."):
                value = _of_heads(layer["part"], value, shape, there, kept)
        return (value, read) if value is not None and value.shape == shape else (None, set())

    def _outside(self, name: str, shape: torch.Size) -> tuple[Tensor | None, set[str]]:
        tensors = self.source.tensors
        tensor = tensors.get(name)
        if tensor is not None and tensor.shape == shape:
            return tensor, {name}
        if self.exact:
            return None, set()
        if name == _POSITIONS and tensor is not None and tensor.shape[1] > shape[1] and tensor.shape[2] == shape[2]:
            return tensor[:, : shape[1]], {name}
        if name == _EMBEDDING and tensor is not None and tensor.shape[1:] == (shape[1] + 1, shape[2]):
            return tensor[:, : shape[1]], {name}  # the last id of a masked language model is the mask
        tied = tensors.get(_EMBEDDING) if "head.weight" not in tensors else None
        if name == "head.weight" and tied is not None and tied.mT.shape == shape:
            return tied.mT.contiguous(), {"embedding.weight"}
        return None, set()

    def _written_otherwise(
        self, part: str, twin: str, theirs: BlockSpec | None, shape: torch.Size
    ) -> tuple[Tensor | None, set[str]]:
        """A dense map from a reparametrised one, or from none."""
        home, _, last = twin.rpartition(".")
        if self.exact or last != "weight" or part not in ("mixer.value.weight", "mixer.output.weight"):
            return None, set()
        names = [f"{home}.{name}" for name in ("fixed", "delta", "alpha.value", "beta.value")]
        if all(name in self.source.tensors for name in names):
            fixed, delta, alpha, beta = (self.source.tensors[name] for name in names)
            return alpha.view(-1, 1, 1) * fixed + beta.view(-1, 1, 1) * delta, set(names)
        mixer = None if theirs is None else theirs.mixer
        no_map = isinstance(mixer, AttentionSpec) and isinstance(getattr(mixer, part.split(".")[1]), IdentitySpec)
        if no_map and shape[-1] == shape[-2]:
            return torch.eye(shape[-1]).unsqueeze(0), set()
        return None, set()


def _same_meaning(part: str, block: BlockSpec, theirs: BlockSpec) -> bool:
    """Whether a part of two blocks does the same, going by its name and by their kinds."""
    head, _, rest = part.partition(".")
    if head == "mixer":
        return block.mixer.kind_name() == theirs.mixer.kind_name() or rest.startswith(_OF_EVERY_MIXER)
    if head == "mlp":
        return block.mlp.kind_name() == theirs.mlp.kind_name()
    if head == "residual":
        return block.residual.kind_name() == theirs.residual.kind_name()
    return True


def _constants(model: nn.Module, layer: int) -> dict[str, float]:
    """The numbers with which a layer computes, which are not weights, by module and name."""
    modules = model.get_submodule(f"blocks.{layer}").named_modules()
    return {f"{at}.{name}": one for at, module in modules for name, one in vars(module).items() if type(one) is float}


def _of_heads(part: str, value: Tensor, shape: torch.Size, there: list[int], kept: list[int]) -> Tensor | None:
    """The share of a tensor of attention that belongs to the heads that stay; None if some of them are not there.

    Args:
        part: `mixer.query.weight` and so on.
        shape: That of the share: shorter along the axis of heads, or the same if the tensor has no such axis.
        there: Heads of the source.
        kept: Heads of the model.
    """
    if not set(kept) <= set(there):
        return None
    axes = [axis for axis, (before, after) in enumerate(zip(value.shape, shape, strict=False)) if before != after]
    if len(axes) != 1 or value.shape[axes[0]] * len(kept) != shape[axes[0]] * len(there):
        return value
    several = 3 if part.startswith("mixer.convolution.") else 1  # queries, keys and values in turn
    apart = torch.unflatten(value, axes[0], (several, len(there), -1))
    places = torch.tensor([there.index(head) for head in kept], device=value.device)
    return apart.index_select(axes[0] + 1, places).flatten(axes[0], axes[0] + 2)

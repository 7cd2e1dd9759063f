"""The members of a pack: which trials can share one, the model that holds their weights, and parts that stay frozen.

Shapes: K pack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ablate.nn.model import build_model
from ablate.nn.pack import Packed
from ablate.spec.base import content_hash
from ablate.spec.task import DataShape
from ablate.spec.variant import VariantSpec
from ablate.training.optimizer import parameter_infos


@dataclass(frozen=True, slots=True)
class Member:
    """A trial. The members of a pack have equal structure and the same data.

    Attributes:
        seed: Of its initial values and batches.
        start: Weights from which it starts, by name, with K = 1; all other tensors have initial values.
    """

    variant: VariantSpec
    seed: int
    start: Mapping[str, Tensor] | None = None


def pack_key(variant: VariantSpec, fingerprint: str) -> str | None:
    """Trials with equal keys can share a pack; None if this trial must be trained alone.

    Equal keys mean the same graph, data, batch shapes and evaluation steps. Seeds, learning rates, weight decay,
    clipping, schedules, trainable gains and initialisation may differ.

    Args:
        fingerprint: Fingerprint of its prepared data.
    """
    training = variant.training
    if (
        not variant.builds_model
        or not variant.model.fusable
        or not training.optimizer.pack_aware
        or training.population is not None
    ):
        return None
    structures = variant.model.structure(), training.structure()
    return content_hash([*structures, variant.task.canonical(), fingerprint])


_STACK = re.compile(r"(?:decoder_)?blocks\.\d+\.")


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Freeze the parameters of these parts, in place."""
    for _, parameter in frozen_parameters(model, parts):
        parameter.requires_grad_(False)


def frozen_parameters(model: nn.Module, parts: Sequence[str]) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of these parts with their names."""
    if parts:
        yield from ((name, parameter) for name, parameter in model.named_parameters() if is_of(name, parts))


def is_of(name: str, parts: Sequence[str]) -> bool:
    """Whether a parameter belongs to a part: its name, or its name in its layer, begins with it."""
    names = (name, _STACK.sub("", name, count=1))
    return any(f"{known}.".startswith(f"{part}.") for known in names for part in parts)


def unknown_parts(model: nn.Module, parts: Sequence[str]) -> list[str]:
    """The parts to which no parameter of the model belongs."""
    names = [name for name, _ in model.named_parameters()]
    return [part for part in parts if not any(is_of(name, [part]) for name in names)]


def part_names(model: nn.Module) -> list[str]:
    """What can be frozen, coarse parts first: `embedding`, `mixer`, `mixer.query` ..."""
    names = [_STACK.sub("", name, count=1).split(".")[:-1] for name, _ in model.named_parameters()]
    return list(dict.fromkeys(".".join(parts[:length]) for length in (1, 2) for parts in names if len(parts) >= length))


def frozen_counts(model: nn.Module, parts: Sequence[str]) -> tuple[int, int]:
    """How many parameters of one member are frozen, and how many of those are entries of maps.

    Each entry of a map is one product a token in its gradient, which frozen projections do not compute.
    """
    matrices = {info.name for info in parameter_infos(model) if info.role in ("matrix", "head")}
    packs = {name: module.pack for name, module in model.named_modules() if isinstance(module, Packed)}
    whole = maps = 0
    for name, parameter in frozen_parameters(model, parts):
        count = parameter.numel() // packs.get(name.rpartition(".")[0], 1)
        whole += count
        maps += count if name in matrices else 0
    return whole, maps


@torch.no_grad()
def assemble(members: Sequence[Member], shape: DataShape) -> nn.Module:
    """Build the model of a pack. Each member has the same values at the start as when trained alone.

    Raises:
        ValueError: The members do not have the same structure.
    """
    first = members[0].variant.model
    model = _build(members, shape)
    for position, member in enumerate(members):
        if member.variant.model != first:
            _put(model, [position], _build([member], shape), [0])
        if member.start is not None:
            _start(model, position, member.start)
    return model


@torch.no_grad()
def compact(model: nn.Module, members: Sequence[Member], positions: Sequence[int], shape: DataShape) -> nn.Module:
    """Build the model of some members of a pack with their current values.

    Args:
        positions: Their positions in `model`.
    """
    device = next(model.parameters()).device
    smaller = _build(members, shape).to(device)
    _put(smaller, range(len(members)), model, positions)
    return smaller


def _start(model: nn.Module, position: int, start: Mapping[str, torch.Tensor]) -> None:
    """Give a member the weights that it starts from."""
    packed, tensors = _packed_tensors(model), model.state_dict(keep_vars=True)
    for name, values in start.items():
        if name in packed:
            packed[name][position] = values[0]
        else:
            tensors[name].copy_(values)  # a part without pack axis is in a pack of one


def _build(members: Sequence[Member], shape: DataShape) -> nn.Module:
    model = build_model(
        members[0].variant.model,
        vocabulary=shape.vocabulary,
        context=shape.context,
        classes=shape.classes,
        seeds=[member.seed for member in members],
    )
    freeze(model, members[0].variant.training.freeze)
    return model


def _put(target: nn.Module, to: Sequence[int], source: nn.Module, positions: Sequence[int]) -> None:
    """Copy parameters and buffers of members of one model into members of another."""
    ours, theirs = _packed_tensors(target), _packed_tensors(source)
    if {name: tensor.shape[1:] for name, tensor in ours.items()} != {n: t.shape[1:] for n, t in theirs.items()}:
        raise ValueError("the members of a pack must have parameters of the same names and shapes")
    for name, tensor in ours.items():
        tensor[list(to)] = theirs[name][list(positions)]


def _packed_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every tensor with a pack axis, by its qualified name."""
    return {
        f"{path}.{name}": getattr(module, name)
        for path, module in model.named_modules()
        if isinstance(module, Packed)
        for name in module.initial
    }

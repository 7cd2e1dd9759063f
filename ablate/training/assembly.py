"""Builds the model of a pack from its members, and the smaller model of the members that remain.

Shapes: K pack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from ablate.nn.model.build import build_model
from ablate.nn.pack import Packed
from ablate.spec.task import DataShape
from ablate.training.freezing import freeze
from ablate.training.members import Member


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
        model: The model of the whole pack.
        members: The members to keep.
        positions: Their positions in `model`.
        shape: Data shape of the task.
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

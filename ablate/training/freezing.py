"""Parts of a model that keep their weights: `training.freeze`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from ablate.nn.pack import Packed
from ablate.training.parameters import parameter_infos

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
    return any(f"{one}.".startswith(f"{part}.") for one in names for part in parts)


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

    Each entry of a map is one product a token in its gradient, which frozen maps do not compute.
    """
    matrices = {info.name for info in parameter_infos(model) if info.role in ("matrix", "head")}
    packs = {name: module.pack for name, module in model.named_modules() if isinstance(module, Packed)}
    whole = maps = 0
    for name, parameter in frozen_parameters(model, parts):
        count = _count(parameter, packs.get(name.rpartition(".")[0], 1))
        whole += count
        maps += count if name in matrices else 0
    return whole, maps


def _count(parameter: Tensor, pack: int) -> int:
    return parameter.numel() // pack

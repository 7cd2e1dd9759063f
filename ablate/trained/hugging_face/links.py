"""Which tensors of `transformers` are which of ours, and how values change on the way.

Ours are [K, ...] in a model; here K is left out. Maps are [in, out] in ours and [out, in] in theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How values change between theirs and ours; one function is the inverse of the other.

    Attributes:
        to_ours: Their tensors to ours.
        to_theirs: Our tensors to theirs.
    """

    to_ours: Callable[[Tensors], Tensors]
    to_theirs: Callable[[Tensors], Tensors]

    def then(self, other: Conversion) -> Conversion:
        """This conversion, on the way to ours, and then another one."""
        return Conversion(
            lambda theirs: other.to_ours(self.to_ours(theirs)), lambda ours: self.to_theirs(other.to_theirs(ours))
        )


def each(to_ours: Callable[[Tensor], Tensor], to_theirs: Callable[[Tensor], Tensor]) -> Conversion:
    """A conversion of each tensor by itself."""
    return Conversion(
        lambda theirs: tuple(to_ours(one) for one in theirs), lambda ours: tuple(to_theirs(one) for one in ours)
    )


SAME = each(lambda one: one, lambda one: one)
TURNED = each(lambda one: one.mT, lambda one: one.mT)
"""Maps: [out, in] to [in, out]."""
PLUS_ONE = each(lambda one: 1 + one, lambda one: one - 1)
"""Gains of norms that are stored as their difference from 1 (Gemma, Qwen3-Next)."""
TAPS = each(lambda one: one.squeeze(1), lambda one: one.unsqueeze(1))
"""Depthwise convolutions: [channels, 1, taps] to [channels, taps]."""


def parts(sizes: Sequence[int], dim: int = 0) -> Conversion:
    """One tensor of theirs that is several of ours, of these sizes along an axis."""
    return Conversion(
        lambda theirs: torch.split(theirs[0], list(sizes), dim), lambda ours: (torch.cat(list(ours), dim),)
    )


def reordered(order: Tensor) -> Conversion:
    """Rows in another order: row i of ours is row `order[i]` of theirs."""
    back = order.argsort()
    return each(lambda one: one[order], lambda one: one[back])


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

"""The block of each layer of a model: `block`, with `pattern` and `exceptions` applied."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ablate.spec.base import below, refusal
from ablate.spec.block import BlockSpec
from ablate.spec.layer import PositionSpec
from ablate.spec.paths import lay_over, leaves, overlaps
from ablate.spec.sublayers import MixerSpec

_SELECTOR = re.compile(r"first|last|(?P<low>\d+)(?:-(?P<high>\d+))?")

Layers = list[tuple[tuple[str, ...], BlockSpec]]
"""For every layer, the path at which its block is written (`block`, or the last exception) and its spec."""
Settings = Mapping[str, Any]
"""Paths below a block to their values."""


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """A mixer and its place in a model.

    Attributes:
        home: Where its block is written.
        block: That block.
        mixer_home: Where the mixer is written.
        mixer: The mixer.
        layer: Index of the layer.
        causal: Whether it hides the future.
        cross: Whether it reads another sequence.
    """

    home: tuple[str, ...]
    block: BlockSpec
    mixer_home: tuple[str, ...]
    mixer: MixerSpec
    layer: int
    causal: bool
    cross: bool

    def positions(self, of_model: PositionSpec) -> tuple[PositionSpec, tuple[str, ...]]:
        """The positions of the layer, and the path at which they are written."""
        if self.block.positions is not None:
            return self.block.positions, (*self.home, "positions")
        return of_model, ("positions",)


def layers_of(block: BlockSpec, depth: int, pattern: Sequence[Settings], exceptions: Mapping[str, Settings]) -> Layers:
    """Lay `pattern` and `exceptions` over the block of each layer.

    Args:
        block: The block of layers without other settings.
        depth: The number of layers.
        pattern: Settings of layer i at index i modulo its length.
        exceptions: Selector of layers to their settings.

    Raises:
        ValidationError: A selector is wrong, two exceptions set one path of one layer, or a block is invalid.
    """
    layers: Layers = [(("block",), block)] * depth
    plain = block.model_dump(mode="json") if exceptions or pattern else {}
    changed: dict[int, dict[str, Any]] = {}
    for index in range(depth if pattern else 0):
        turn = index % len(pattern)
        changed[index] = copy.deepcopy(plain)
        lay_over(changed[index], pattern[turn])
        try:
            layers[index] = (("pattern", str(turn)), BlockSpec.model_validate(changed[index]))
        except ValidationError as error:
            raise below(("pattern", turn), error) from None
    for selector, settings in exceptions.items():
        home = ("exceptions", selector)
        _check_alone(selector, depth, exceptions)
        for index in _selected(selector, depth):
            lay_over(changed.setdefault(index, copy.deepcopy(plain)), settings)
            try:
                layers[index] = (home, BlockSpec.model_validate(changed[index]))
            except ValidationError as error:
                raise below(home, error) from None
    return layers


def _check_alone(selector: str, depth: int, exceptions: Mapping[str, Settings]) -> None:
    """Refuse an exception that sets for some layer what an earlier exception sets too."""
    layers, paths = _selected(selector, depth), leaves(exceptions[selector])
    for other in itertools.takewhile(lambda one: one != selector, exceptions):
        shared = sorted({*layers} & {*_selected(other, depth)})
        twice = [path for path in paths if any(overlaps(path, before) for before in leaves(exceptions[other]))]
        if shared and twice:
            raise refusal(
                ("exceptions", selector),
                selector,
                f"`{other}` and `{selector}` both set `{twice[0]}` of layer {shared[0]}",
                "Let each layer have it from one of them.",
            )


def _selected(selector: str, depth: int) -> range:
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        raise refusal(
            ("exceptions", selector),
            selector,
            "a selector of layers is `first`, `last`, an index from 0, or a range such as `2-4`",
            "Write the layers that differ in one of these forms.",
            kind="no_selector",
        )
    if match["low"] is None:
        low = high = 0 if selector == "first" else depth - 1
    else:
        low = int(match["low"])
        high = int(match["high"]) if match["high"] else low
    if low > high:
        rule = "a range goes from its first layer to its last"
        raise refusal(("exceptions", selector), selector, rule, f"Write `{high}-{low}`.", kind="no_selector")
    if high >= depth:
        raise refusal(
            ("exceptions", selector),
            selector,
            f"the layers are numbered 0 to {depth - 1}",
            "Name layers that exist.",
        )
    return range(low, high + 1)

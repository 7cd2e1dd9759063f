"""`ModelSpec`: a stack of blocks with embedding and head."""

from __future__ import annotations

import copy
import functools
import itertools
import re
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from ablate.spec.base import Spec, below, refusal
from ablate.spec.block import BlockSpec
from ablate.spec.mixer import MixerContext
from ablate.spec.named import expand_block
from ablate.spec.paths import lay_over

_SELECTOR = re.compile(r"first|last|(?P<low>\d+)(?:-(?P<high>\d+))?")


class ModelSpec(Spec):
    """A model: `depth` blocks of one spec, with exceptions for the layers that differ."""

    family: Literal["decoder"]
    """`decoder`: a causal language model."""
    depth: int = Field(ge=1, le=1000)
    """Number of blocks."""
    width: int = Field(ge=1)
    """Width d of the residual stream."""
    heads: int = Field(default=1, ge=1)
    """Heads H; kinds of mixer without heads ignore it."""
    block: BlockSpec
    """The block that every layer has, exceptions apart: a block spec, or the name of a block."""
    exceptions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Layers that differ: `first`, `last`, an index counted from 0 or a range `2-4`, each with the part of a block
    spec that is laid over `block` (mappings merge key by key; one that names a `kind` replaces)."""
    positions: Literal["learned", "sinusoidal", "none"] = "learned"
    """Positions added to the token embedding."""
    tied_head: bool = True
    """Whether the output matrix is the token embedding."""
    final_norm: Literal["rms", "layer", "none"] = "rms"
    """Norm after the last block."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings plus positions."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of normal initial values (embeddings and dense maps)."""

    @model_validator(mode="before")
    @classmethod
    def _name_a_block(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict) and isinstance(value.get("block"), str):
            return expand_block(value, (info.context or {}).get("folders", ()))
        return value

    @model_validator(mode="after")
    def _is_a_model(self) -> Self:
        for home, block in self._layers:
            mixer = block.mixer
            if self.causal and not mixer.causal_form:
                raise refusal(
                    (*home, "mixer", "kind"),
                    mixer.kind_name(),
                    f"a {self.family} must hide the future, and {mixer.kind_name()} has no causal form",
                    "Choose a mixer that `ablate kinds` lists as causal.",
                )
            if mixer.uses_heads and self.width % self.heads:
                near = max(n for n in range(1, self.heads + 1) if self.width % n == 0)
                raise refusal(
                    ("heads",),
                    self.heads,
                    f"the heads must divide the width, which is {self.width}",
                    f"Set `heads: {near}`, or a width that is a multiple of {self.heads}.",
                )
        return self

    def check_context(self, context: int) -> None:
        """Refuse a longest input that a mixer of this model cannot work on.

        Raises:
            ValidationError: With the path below this spec.
        """
        for home, block in self._layers:
            try:
                block.mixer.check(self.mixer_context(context))
            except ValidationError as error:
                raise below((*home, "mixer"), error) from None

    @property
    def causal(self) -> bool:
        """Whether position t may not see positions after t."""
        return self.family == "decoder"

    @property
    def blocks(self) -> tuple[BlockSpec, ...]:
        """The spec of every layer, exceptions applied."""
        return tuple(block for _, block in self._layers)

    def mixer_context(self, context: int, pack: int = 1) -> MixerContext:
        """What the mixers of this model are told; `context` is the longest input in tokens."""
        return MixerContext(pack, self.width, self.heads, self.depth, context, self.causal, self.init_std)

    def canonical(self) -> Any:
        """As any spec, but `block`, `depth` and `exceptions` are written as runs of equal layers."""
        plain = super().canonical()
        runs: list[list[Any]] = []
        for _, same in itertools.groupby(self.blocks, key=id):  # layers without an exception share one spec
            block, *others = same
            layer = block.canonical()
            if runs and runs[-1][1] == layer:
                runs[-1][0] += 1 + len(others)
            else:
                runs.append([1 + len(others), layer])
        for name in ("block", "depth", "exceptions"):
            plain.pop(name, None)
        plain["layers"] = runs
        return plain

    @functools.cached_property
    def _layers(self) -> list[tuple[tuple[str, ...], BlockSpec]]:
        """For every layer, where it is written (`block`, or the exception that was laid over it last) and its spec."""
        layers: list[tuple[tuple[str, ...], BlockSpec]] = [(("block",), self.block)] * self.depth
        plain = self.block.model_dump(mode="json") if self.exceptions else {}
        changed: dict[int, dict[str, Any]] = {}
        for selector, settings in self.exceptions.items():
            home = ("exceptions", selector)
            for index in self._selected(selector):
                block = changed.setdefault(index, copy.deepcopy(plain))
                lay_over(block, settings)
                try:
                    layers[index] = (home, BlockSpec.model_validate(block))
                except ValidationError as error:
                    raise below(home, error) from None
        return layers

    def _selected(self, selector: str) -> range:
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
            low = high = 0 if selector == "first" else self.depth - 1
        else:
            low = int(match["low"])
            high = int(match["high"]) if match["high"] else low
        if not low <= high < self.depth:
            raise refusal(
                ("exceptions", selector),
                selector,
                f"the layers are numbered 0 to {self.depth - 1}",
                "Name layers that exist.",
            )
        return range(low, high + 1)

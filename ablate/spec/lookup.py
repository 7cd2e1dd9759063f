"""Looks up a block that is named on the command line: a named block, or a mixer kind in a plain pre-norm block."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.spec.block import BlockSpec
from ablate.spec.mixer import MIXERS
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names, named_block
from ablate.spec.sentences import describe


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """A block by its name.

    Attributes:
        name: The given name.
        description: Description in one sentence; empty for a mixer kind.
        block: Spec of the block.
        exceptions: Layers that differ, as in a model spec.
    """

    name: str
    description: str
    block: BlockSpec
    exceptions: Mapping[str, dict[str, Any]]

    def model(self, *, width: int, heads: int, depth: int | None) -> ModelSpec:
        """A model of these blocks, causal if the mixer can be. Without a depth: one block, ignoring exceptions.

        Raises:
            SpaceError: The sizes are invalid for the block.
        """
        plain = {
            "family": "decoder" if self.block.mixer.causal_form else "encoder",
            "depth": depth or 1,
            "width": width,
            "heads": heads,
            "block": self.block.model_dump(mode="json"),
            "exceptions": dict(self.exceptions) if depth else {},
        }
        try:
            return ModelSpec.model_validate(plain)
        except ValidationError as error:
            raise refused(self.name, error) from None


def is_block(name: str) -> bool:
    """Whether there is a named block or a mixer kind of this name."""
    return name in block_names([Path()]) or name in MIXERS.members()


def find_block(name: str) -> FoundBlock:
    """Look a block up by its name, or by the kind of its mixer.

    Raises:
        SpaceError: There is no such block or kind, or the file of the block is invalid.
    """
    blocks, kinds = block_names([Path()]), MIXERS.members()
    try:
        if name in blocks:
            named = named_block(name, [Path()])
            return FoundBlock(name, named.description, BlockSpec.model_validate(named.block), named.exceptions)
        if name in kinds:
            return FoundBlock(name, "", BlockSpec.model_validate({"mixer": {"kind": name}}), {})
    except ValidationError as error:
        raise refused(name, error) from None
    near = difflib.get_close_matches(name, [*blocks, *kinds], n=1)
    raise SpaceError(
        "there is no block or mixer kind of this name",
        where=name,
        remedy=f"Did you mean `{near[0]}`?" if near else "`ablate kinds` lists them.",
    )


def refused(name: str, error: ValidationError) -> SpaceError:
    """Convert the first line of a validation error of a block to an error that names the block."""
    loc, sentence = describe(error)[0]
    path = ".".join(str(part) for part in loc)
    return SpaceError(f"`{path}`: {sentence}" if path else sentence, where=name)

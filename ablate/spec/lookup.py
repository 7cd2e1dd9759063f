"""Looks up a name from the command line: a block, a mixer kind in a plain pre-norm block, or a model."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import NamedModel, block_names, is_model_file, model_names, named_block, named_model
from ablate.spec.sentences import describe
from ablate.spec.sublayers import MIXERS


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """A block by its name.

    Attributes:
        description: Description in one sentence; empty for a mixer kind.
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
            raise block_error(self.name, error) from None


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model by its name.

    Attributes:
        name: Its name, without `models/`.
    """

    name: str
    named: NamedModel
    spec: ModelSpec

    def as_block(self) -> FoundBlock:
        """The block that most of its layers have; `exceptions` tells whether others differ."""
        return block_of_model(self.name, self.named.description, self.spec)


def block_of_model(name: str, description: str, model: ModelSpec) -> FoundBlock:
    """The block that most layers of a model have; `exceptions` tells whether others differ."""
    runs = Counter(block.canonical_json() for block in model.blocks)
    usual = runs.most_common(1)[0][0]
    block = next(block for block in model.blocks if block.canonical_json() == usual)
    return FoundBlock(name, description, block, {"others": {}} if len(runs) > 1 else {})


MODELS = "models/"
"""An optional prefix of the name of a model, required if a block has the same name."""


def is_model(name: str) -> bool:
    """Whether a name is that of a model: of one that no block shares, or with `models/` before it, or of a file."""
    known = name.removeprefix(MODELS) in model_names([Path()]) and (name.startswith(MODELS) or not is_block(name))
    return known or is_model_file(name)


def find_model(name: str) -> FoundModel:
    """Look a model up by its name.

    Raises:
        SpaceError: There is no such model, or its file is invalid.
    """
    bare = name if is_model_file(name) else name.removeprefix(MODELS)
    try:
        named = named_model(bare, [Path()])
        spec = ModelSpec.model_validate(named.model, context={"folders": [Path()]})
        spec.check_context(named.context)
    except ValidationError as error:
        raise block_error(name, error) from None
    return FoundModel(bare, named, spec)


def is_block(name: str) -> bool:
    """Whether there is a named block or a mixer kind of this name."""
    return name in block_names([Path()]) or name in MIXERS.members()


def find_block(name: str) -> FoundBlock:
    """Look a block up by its name, by the kind of its mixer, or by the name of a model, most of whose layers have it.

    Raises:
        SpaceError: There is no such block or kind, or the file of the block is invalid.
    """
    if is_model(name):
        return find_model(name).as_block()
    blocks, kinds = block_names([Path()]), MIXERS.members()
    try:
        if name in blocks:
            named = named_block(name, [Path()])
            return FoundBlock(name, named.description, BlockSpec.model_validate(named.block), named.exceptions)
        if name in kinds:
            return FoundBlock(name, "", BlockSpec.model_validate({"mixer": {"kind": name}}), {})
    except ValidationError as error:
        raise block_error(name, error) from None
    near = difflib.get_close_matches(name, [*blocks, *kinds, *model_names([Path()])], n=1)
    raise SpaceError(
        "there is no block, model or mixer kind of this name",
        where=name,
        remedy=f"Did you mean `{near[0]}`?" if near else "`ablate kinds` lists them.",
    )


def block_error(name: str, error: ValidationError) -> SpaceError:
    """Convert the first line of a validation error of a block to an error that names the block."""
    loc, sentence = describe(error)[0]
    path = ".".join(str(part) for part in loc)
    return SpaceError(f"`{path}`: {sentence}" if path else sentence, where=name)

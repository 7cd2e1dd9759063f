"""Named blocks: `spaces/blocks/NAME.yaml`, looked up beside a space file first, then among those that are shipped.

A block file holds `description`, `source`, `block`, and `exceptions` when some layers of the paper's model differ.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue
from ruamel.yaml import YAML

from ablate.spec.base import Spec, refusal

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_spaces() -> Path:
    """The folder of ready spaces: inside an installed package, else beside it in a checkout."""
    inside = _PACKAGE / "spaces"
    return inside if inside.is_dir() else _PACKAGE.parent / "spaces"


class NamedBlock(Spec):
    """The content of a block file."""

    description: str
    """What the block is, in one sentence."""
    source: str
    """Paper and equation."""
    block: dict[str, JsonValue]
    """A block spec."""
    exceptions: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Layers that differ, as in a model spec."""


def block_names(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Name to file of every named block; earlier folders win over later ones and over those that are shipped."""
    found: dict[str, Path] = {}
    for folder in (*folders, shipped_spaces()):
        for file in sorted((folder / "blocks").glob("*.yaml")):
            found.setdefault(file.stem, file)
    return found


def named_block(name: str, folders: Iterable[Path] = ()) -> NamedBlock:
    """Read a named block.

    Raises:
        ValidationError: There is no such block, or its file is not a block file.
    """
    known = block_names(folders)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Known blocks: {', '.join(known)}."
        raise refusal(("block",), name, f"there is no block named `{name}`", hint)
    return NamedBlock.model_validate(YAML(typ="safe").load(known[name]))


def expand_block(model: dict[str, Any], folders: Iterable[Path] = ()) -> dict[str, Any]:
    """A model's plain data with its block name replaced by what the name stands for; own exceptions win.

    Raises:
        ValidationError: As `named_block`.
    """
    named = named_block(model["block"], folders)
    expanded = {**model, "block": named.block}
    exceptions = {**named.exceptions, **model.get("exceptions", {})}
    if exceptions:
        expanded["exceptions"] = exceptions
    return expanded

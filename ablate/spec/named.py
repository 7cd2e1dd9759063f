"""Named blocks: `spaces/blocks/NAME.yaml`, looked up beside a space file first, then among those that are shipped.

A block file holds `description`, `source`, `block`, and `exceptions` when some layers of the paper's model differ.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from ablate.spec.base import Spec, below, refusal
from ablate.spec.document import Document, read_document

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


def block_document(name: str, folders: Iterable[Path] = ()) -> Document:
    """Read the file of a named block.

    Raises:
        ValidationError: There is no such block.
        SpaceError: Its file is broken.
    """
    known = block_names(folders)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Known blocks: {', '.join(known)}."
        raise refusal((), name, "there is no block of this name", hint, kind="unknown_block")
    return read_document(known[name], "a block file")


def named_block(name: str, folders: Iterable[Path] = ()) -> NamedBlock:
    """Read a named block.

    Raises:
        ValidationError: There is no such block.
        SpaceError: Its file is broken, or is no block file.
    """
    document = block_document(name, folders)
    try:
        return NamedBlock.model_validate(document.plain)
    except ValidationError as error:
        raise document.refused(error) from None


def expand_block(model: dict[str, Any], folders: Iterable[Path] = ()) -> dict[str, Any]:
    """A model's plain data with its block name replaced by what the name stands for; own exceptions win.

    Raises:
        ValidationError: There is no such block; the path is below the model.
        SpaceError: As `named_block`.
    """
    named = _named_at(("block",), model["block"], folders)
    exceptions = {**named.exceptions, **(model.get("exceptions") or {})}
    return {**model, "block": named.block, **({"exceptions": exceptions} if exceptions else {})}


def expand_setting(setting: dict[str, Any], folders: Iterable[Path] = ()) -> dict[str, Any]:
    """A switch's setting with the name of a block replaced by what the name stands for, exceptions included.

    Raises:
        ValidationError: There is no such block; the path is below the setting.
        SpaceError: As `named_block`.
    """
    expanded: dict[str, Any] = {}
    for path, value in setting.items():
        if path in ("block", "model.block") and isinstance(value, str):
            named = _named_at((path,), value, folders)
            expanded |= {path: named.block, "model.exceptions": named.exceptions}
        else:
            expanded[path] = value
    return expanded


def _named_at(path: tuple[str, ...], name: str, folders: Iterable[Path]) -> NamedBlock:
    try:
        return named_block(name, folders)
    except ValidationError as error:
        raise below(path, error) from None

"""Named blocks: `spaces/blocks/NAME.yaml`, looked up next to the space file first, then among the shipped ones.

A block file has `description`, `source`, `block`, and `exceptions` if some layers of the paper's model differ.
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
    """The folder of ready spaces: inside an installed package, or next to it in a checkout."""
    inside = _PACKAGE / "spaces"
    return inside if inside.is_dir() else _PACKAGE.parent / "spaces"


class NamedBlock(Spec):
    """The content of a block file."""

    description: str
    """Description of the block in one sentence."""
    source: str
    """Paper and equation."""
    block: dict[str, JsonValue]
    """A block spec."""
    exceptions: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Layers that differ, as in a model spec."""


def block_names(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Files of all named blocks by name; earlier folders take precedence over later ones and over shipped blocks."""
    files: dict[str, Path] = {}
    for folder in (*folders, shipped_spaces()):
        for file in sorted((folder / "blocks").glob("*.yaml")):
            files.setdefault(file.stem, file)
    return files


def block_document(name: str, folders: Iterable[Path] = ()) -> Document:
    """Read the file of a named block.

    Raises:
        ValidationError: There is no such block.
        SpaceError: Its file is invalid.
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
        SpaceError: Its file is invalid or not a block file.
    """
    document = block_document(name, folders)
    try:
        return NamedBlock.model_validate(document.plain)
    except ValidationError as error:
        raise document.refused(error) from None


def expand_block(model: dict[str, Any], folders: Iterable[Path] = ()) -> dict[str, Any]:
    """Replace the block name in the data of a model by the named block. Exceptions of the model take precedence.

    Raises:
        ValidationError: There is no such block; the path is relative to the model.
        SpaceError: As `named_block`.
    """
    named = _named_at(("block",), model["block"], folders)
    exceptions = {**named.exceptions, **(model.get("exceptions") or {})}
    return {**model, "block": named.block, **({"exceptions": exceptions} if exceptions else {})}


def expand_setting(setting: dict[str, Any], folders: Iterable[Path] = ()) -> dict[str, Any]:
    """Replace the block name in the setting of a switch by the named block, including its exceptions.

    Raises:
        ValidationError: There is no such block; the path is relative to the setting.
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

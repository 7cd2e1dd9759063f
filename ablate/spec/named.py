"""Named blocks and models, `spaces/blocks/NAME.yaml` and `spaces/models/NAME.yaml`; starting points of new spaces.

They are looked up next to the space file first, then among the shipped ones. A block file has `description`, `source`,
`block`, and `exceptions` if some layers of the paper's model differ. A model file has `description`, `source`,
`vocabulary`, `context`, `model`, and `parameters` where their number is published.
"""

from __future__ import annotations

import copy
import difflib
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, ValidationError
from ruamel.yaml import YAML

from ablate.errors import ArgumentError, SpaceError
from ablate.spec.annotations import STUDY_NAME
from ablate.spec.base import EXACT, Spec, below, refusal
from ablate.spec.document import Document, read_document
from ablate.spec.paths import lay_over

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


class NamedModel(Spec):
    """The content of a model file."""

    description: str
    """Description of the model in one sentence."""
    source: str
    """Paper, and where its sizes are from."""
    vocabulary: int = Field(ge=1)
    """Number of its token ids; in a space the task decides it."""
    context: int = Field(ge=1)
    """Its longest input in tokens; in a space the task decides it."""
    parameters: int | None = Field(default=None, ge=1, le=EXACT)
    """The published number of its parameters."""
    init_from: str | None = None
    """The weights that a space which extends this file starts from, as `training.init_from` names them."""
    model: dict[str, JsonValue]
    """A model spec."""


def is_model_file(name: str | Path) -> bool:
    """Whether this is the path of a model file, as `ablate import` writes one."""
    path = Path(name)
    try:
        return (
            path.suffix in {".yaml", ".yml"} and {"vocabulary", "model"} <= read_document(path, "a file").plain.keys()
        )
    except (SpaceError, OSError):
        return False


def block_names(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Files of all named blocks by name; earlier folders take precedence over later ones and over shipped blocks."""
    return _files("blocks", folders)


def model_names(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Files of all named models by name, with the precedence of `block_names`."""
    return _files("models", folders)


def _files(part: str, folders: Iterable[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for folder in (*folders, shipped_spaces()):
        for file in sorted((folder / part).glob("*.yaml")):
            files.setdefault(file.stem, file)
    return files


def block_document(name: str, folders: Iterable[Path] = ()) -> Document:
    """Read the file of a named block.

    Raises:
        ValidationError: There is no such block.
        SpaceError: Its file is invalid.
    """
    return _document("block", name, block_names(folders))


def _document(noun: str, name: str, known: Mapping[str, Path]) -> Document:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean `{near[0]}`?" if near else f"Known {noun}s: {', '.join(known)}."
        raise refusal((), name, f"there is no {noun} of this name", hint, kind=f"unknown_{noun}")
    return read_document(known[name], f"a {noun} file")


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
        raise document.space_error(error) from None


def named_model(name: str, folders: Iterable[Path] = ()) -> NamedModel:
    """Read a named model.

    Raises:
        ValidationError: There is no such model.
        SpaceError: Its file is invalid or not a model file.
    """
    document = (
        read_document(Path(name), "a model file")
        if is_model_file(name)
        else _document("model", name, model_names(folders))
    )
    try:
        return NamedModel.model_validate(document.plain)
    except ValidationError as error:
        raise document.space_error(error) from None


def expand_model(model: str | Mapping[str, Any], folders: Iterable[Path] = ()) -> dict[str, Any]:
    """The model spec of a name, or of a mapping with `name`, whose other keys are laid over that model.

    Raises:
        ValidationError: There is no such model.
        SpaceError: As `named_model`.
    """
    if isinstance(model, str):
        return copy.deepcopy(named_model(model, folders).model)
    name, others = model["name"], {key: value for key, value in model.items() if key != "name"}
    try:
        expanded: dict[str, Any] = copy.deepcopy(named_model(name, folders).model)
    except ValidationError as error:
        raise below(("name",), error) from None
    if isinstance(others.get("block"), str):  # a block that is named replaces this one, and its exceptions these
        for key in ("block", "exceptions", "pattern"):
            expanded.pop(key, None)
    lay_over(expanded, others)
    return expanded


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

    The named block replaces exceptions and pattern of the model, unless the setting has its own.

    Raises:
        ValidationError: There is no such block; the path is relative to the setting.
        SpaceError: As `named_block`.
    """
    expanded: dict[str, Any] = {}
    for path, value in setting.items():
        if path in ("block", "model.block") and isinstance(value, str):
            named = _named_at((path,), value, folders)
            expanded[path] = named.block
            for field, own in (("exceptions", named.exceptions), ("pattern", [])):
                if not {field, f"model.{field}"} & setting.keys():
                    expanded[f"model.{field}"] = own
        else:
            expanded[path] = value
    return expanded


def _named_at(path: tuple[str, ...], name: str, folders: Iterable[Path]) -> NamedBlock:
    try:
        return named_block(name, folders)
    except ValidationError as error:
        raise below(path, error) from None


JUDGE_START = "judge"
"""The starting point that describes a table of runs, for `ablate judge`; the others are spaces."""
DEFAULT_START = "needed"
"""The starting point of a space unless another is named."""


def starts() -> dict[str, Path]:
    """The starting points by name, the default first."""
    files = sorted(
        (shipped_spaces() / "starts").glob("*.yaml"), key=lambda file: (file.stem != DEFAULT_START, file.stem)
    )
    return {file.stem: file for file in files}


def write_space(name: str, folder: Path, like: str = DEFAULT_START) -> Path:
    """Write `NAME.yaml` into a folder and return its path; an existing file is left alone.

    A starting point with a table beside it (`judge`) gets a copy of that too, as `NAME.csv`.

    Raises:
        ArgumentError: There is no such starting point.
        SpaceError: The name is not a name for a study, the file exists, or the folder cannot be written to.
    """
    stem, known = name.removesuffix(".yaml"), starts()
    if like not in known:
        raise ArgumentError("there is no such starting point", where="--like", expected=", ".join(known), got=like)
    if not STUDY_NAME.fits(stem):
        raise SpaceError(
            f"this is not a name for a space: {STUDY_NAME.rule}",
            where=name,
            remedy="Choose such a name; the file is written into the working folder.",
        )
    path, table = folder / f"{stem}.yaml", known[like].with_suffix(".csv")
    text = re.sub(
        r"^name: .*$", lambda _: f"name: {_in_yaml(stem)}", known[like].read_text(encoding="utf-8"), flags=re.M
    ).replace("NAME.csv", f"{stem}.csv")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        if table.exists() and not path.with_suffix(".csv").exists():
            shutil.copyfile(table, path.with_suffix(".csv"))
    except FileExistsError:
        raise SpaceError("this file exists", where=str(path), remedy="Choose another name.") from None
    except OSError as error:
        raise SpaceError(f"this cannot be written ({error.strerror})", where=str(path)) from None
    return path


def _in_yaml(name: str) -> str:
    """A name as YAML reads it back: in quotes where it would be read as something else (`null`, `1e3`)."""
    return name if YAML(typ="safe", pure=True).load(name) == name else f'"{name}"'

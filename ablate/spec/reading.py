"""Space files: YAML to `SpaceSpec`, with file, line and column in every error; `extends`, named blocks."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ablate.errors import SpaceError
from ablate.spec.base import Spec
from ablate.spec.named import expand_block, shipped_spaces
from ablate.spec.space import SpaceSpec

Path_ = tuple[str | int, ...]

_SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Position:
    """Where a key stands: lines and columns are counted from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class _Document:
    """Plain data and where each key of it was written."""

    plain: dict[str, Any]
    positions: dict[Path_, Position] = field(default_factory=dict)

    def position(self, loc: Path_) -> Position | None:
        """Position of the deepest key on the way to `loc` that is written anywhere."""
        for end in range(len(loc), -1, -1):
            if loc[:end] in self.positions:
                return self.positions[loc[:end]]
        return None


def find_space(location: str | Path) -> Path:
    """The file of a space: a path, or the name of a space that is shipped.

    Raises:
        SpaceError: There is no such file and no such space.
    """
    path = Path(location)
    if path.is_file():
        return path
    shipped = {file.stem: file for file in sorted(shipped_spaces().glob("*.yaml"))}
    # `spaces/NAME.yaml` typed where no such folder is (an installed package) means the space that is shipped.
    asked = path.stem if path.parent in (Path("."), Path("spaces")) else str(location)
    if asked in shipped:
        return shipped[asked]
    if path.is_dir():
        raise SpaceError("this is a folder", where=str(location), expected="a space file", remedy="Name the file in it.")
    near = difflib.get_close_matches(path.stem, shipped, n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"Ready spaces: {', '.join(shipped)}; `ablate new` writes one."
    raise SpaceError("there is no such file", where=str(location), expected="a space file", remedy=hint)


def load_space(location: str | Path) -> SpaceSpec:
    """Read a space by its path or by the name of a space that is shipped.

    Raises:
        SpaceError: The file is missing or broken, or what it says cannot be; with file, line and column.
    """
    path = find_space(location)
    document = _read(path, ())
    try:
        if isinstance(document.plain.get("model"), dict) and isinstance(document.plain["model"].get("block"), str):
            try:
                document.plain["model"] = expand_block(document.plain["model"], [path.parent])
            except ValidationError as error:
                raise _located(document, path, error, ("model",)) from None
        space = SpaceSpec.model_validate(document.plain)
    except ValidationError as error:
        raise _located(document, path, error) from None
    space._text = path.read_text(encoding="utf-8")
    return space


def describe(error: ValidationError) -> list[tuple[Path_, str]]:
    """Every line of a validation error as (path, sentence with what was found and the way out)."""
    lines: list[tuple[Path_, str]] = []
    for line in error.errors(include_url=False):
        loc = tuple(part for part in line["loc"])
        text = line["msg"][0].lower() + line["msg"][1:]
        if line["type"] == "missing":
            text = f"the key `{loc[-1]}` is missing"
            loc = loc[:-1]
        elif line["type"] not in {"unknown_key", "missing_kind"} and not isinstance(line["input"], (dict, Spec)):
            text += f"; got {line['input']!r}"
        remedy = str(line.get("ctx", {}).get("remedy", ""))
        lines.append((loc, f"{text}. {remedy}".strip() if remedy else f"{text}."))
    return lines


def _located(document: _Document, path: Path, error: ValidationError, prefix: Path_ = ()) -> SpaceError:
    sentences = []
    for loc, sentence in describe(error):
        place = document.position((*prefix, *loc))
        written = ".".join(str(part) for part in (*prefix, *loc))
        sentences.append((str(place) if place else str(path), f"`{written}`: {sentence}" if written else sentence))
    (where, problem), *others = sentences[:_SHOWN_ERRORS]
    text = problem + "".join(f"\n{place}: {sentence}" for place, sentence in others)
    hidden = len(sentences) - _SHOWN_ERRORS
    if hidden > 0:
        text += f"\nand {hidden} more."
    return SpaceError(text, where=where)


def _read(path: Path, seen: tuple[Path, ...]) -> _Document:
    if path.resolve() in seen:
        raise SpaceError("a space cannot extend itself", where=str(path), remedy="Break the circle of `extends:`.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpaceError("this is not UTF-8 text", where=str(path), got=f"byte {error.start}") from None
    except OSError as error:
        raise SpaceError(f"this cannot be read ({error.strerror})", where=str(path)) from None
    try:
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise SpaceError(f"this is not YAML: {error.problem}", where=where, remedy="Mend it at or above this line.") from None
    except YAMLError as error:
        raise SpaceError(f"this is not YAML: {error}", where=str(path)) from None
    if not isinstance(tree, CommentedMap):
        raise SpaceError("a space is a mapping of keys", where=str(path), got="an empty file" if tree is None else "no mapping")
    document = _Document(_plain(tree), {(): Position(path, 1, 1)})
    _collect(tree, (), path, document.positions)
    parent = document.plain.pop("extends", None)
    if parent is None:
        return document
    beside = path.parent / str(parent)
    base = _read(beside if beside.is_file() else find_space(str(parent)), (*seen, path.resolve()))
    _merge(base.plain, document.plain)
    return _Document(base.plain, {**base.positions, **document.positions})


def _plain(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {str(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_plain(value) for value in tree]
    if isinstance(tree, bool) or tree is None:
        return tree
    for scalar in (str, int, float):  # the YAML reader's scalars are subclasses that remember how they were written
        if isinstance(tree, scalar):
            return scalar(tree)
    return str(tree)


def _collect(tree: Any, loc: Path_, file: Path, positions: dict[Path_, Position]) -> None:
    if isinstance(tree, CommentedMap):
        for key, value in tree.items():
            line, column = tree.lc.key(key)
            positions[(*loc, str(key))] = Position(file, line + 1, column + 1)
            _collect(value, (*loc, str(key)), file, positions)
    elif isinstance(tree, CommentedSeq):
        for index, value in enumerate(tree):
            line, column = tree.lc.item(index)
            positions[(*loc, index)] = Position(file, line + 1, column + 1)
            _collect(value, (*loc, index), file, positions)


def _merge(base: dict[str, Any], child: Mapping[str, Any]) -> None:
    """Lay `child` over `base`: mappings merge key by key, other values replace, null takes a key away."""
    for key, value in child.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value

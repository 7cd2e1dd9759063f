"""Reads YAML files with the position of each key, so that errors have file, line and column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from ablate.errors import SpaceError
from ablate.locations import read_file
from ablate.spec.sentences import Loc, describe

_SHOWN_ERRORS = 5
_MOST_BYTES = 128 * 1024
"""Maximum file size. Parsing takes seconds per megabyte, and the largest shipped space has 3 kB."""
_MOST_LEVELS = 50
"""Maximum nesting of mappings and lists."""
_MOST_VALUES = 100_000
"""Maximum number of keys and items with all aliases expanded: nested aliases can expand to billions."""

_STRING, _MERGE, _DATE, _INTEGER = (f"tag:yaml.org,2002:{name}" for name in ("str", "merge", "timestamp", "int"))


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a key; lines and columns count from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Document:
    """The data of a file and the position of each key."""

    file: Path
    plain: dict[str, Any]
    positions: dict[Loc, Position] = field(default_factory=dict)

    def position(self, loc: Loc) -> Position:
        """Position of the deepest existing key on the path `loc`."""
        for end in range(len(loc), 0, -1):
            if loc[:end] in self.positions:
                return self.positions[loc[:end]]
        return Position(self.file, 1, 1)

    def space_error(self, error: ValidationError) -> SpaceError:
        """Convert a validation error of this data to one with file, line and column."""
        lines: list[tuple[str, str]] = []
        for loc, sentence in describe(error):
            path = ".".join(str(part) for part in loc)
            lines.append((str(self.position(loc)), f"`{path}`: {sentence}" if path else sentence))
        (place, text), *further = lines[:_SHOWN_ERRORS]
        text += "".join(f"\n{other}: {sentence}" for other, sentence in further)
        if len(lines) > _SHOWN_ERRORS:
            text += f"\nand {len(lines) - _SHOWN_ERRORS} more."
        found = SpaceError(text, where=place)
        found.mistakes = lines
        return found


def read_document(path: Path, noun: str) -> Document:
    """Read a YAML file that is one mapping.

    Args:
        noun: What the file is, for messages, such as `a space`.

    Raises:
        SpaceError: The file cannot be read, is not YAML, or is not a mapping.
    """
    text = read_text(path, noun)
    tree, positions = _parse(text, path)
    if not isinstance(tree, dict):
        got = "an empty file" if tree is None else f"a {'list' if isinstance(tree, list) else 'single value'}"
        new, keys = "`ablate new NAME` writes a commented one to start from.", "Write `key: value` on each line."
        remedy = new if tree is None else keys
        raise SpaceError(f"{noun} is a mapping of keys to values", where=f"{path}:1:1", got=got, remedy=remedy)
    return Document(path, _copy_aliases(tree), dict(positions))


def read_text(path: Path, noun: str) -> str:
    """The text of a YAML file that is given as `noun`.

    Raises:
        SpaceError: It is not a regular file, is too large, or is not UTF-8.
    """
    try:
        return read_file(path, _MOST_BYTES, SpaceError, noun=noun).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _position(path, error.object[: error.start].decode(errors="replace"))
        raise SpaceError("this is not UTF-8 text", where=str(place), remedy="Save the file as UTF-8.") from None


@lru_cache(maxsize=16)  # a file of `_MOST_VALUES` takes 20 MB
def _parse(text: str, path: Path) -> tuple[Any, dict[Loc, Position]]:
    """The data and positions of YAML text. Cached, because each switch that names a block reads the block's file."""
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.max_depth = _MOST_LEVELS
        root = yaml.compose(text)
        if root is None:
            return None, {}
        positions = _all_positions(root, path)
        return yaml.constructor.construct_document(root), positions
    except MaxDepthExceededError as error:
        where = str(_at_mark(error.problem_mark, path))
        got, close = f"more than {_MOST_LEVELS} levels", "Close an open bracket."
        raise SpaceError("this is nested too deeply", where=where, got=got, remedy=close) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = str(_at_mark(mark, path) if mark else path)
        raise SpaceError(
            f"this is not YAML: {_problem(error)}", where=where, remedy="Correct it at or above this line."
        ) from None
    except ReaderError as error:
        place = _position(path, text[: error.position])
        problem = f"this is not YAML: it contains the character U+{error.character:04X}"
        raise SpaceError(problem, where=str(place), remedy="Leave it out.") from None
    except (YAMLError, ValueError) as error:  # ValueError: a tag such as `!!int` on another value
        raise SpaceError(f"this is not YAML: {error}", where=str(path)) from None


def _problem(error: MarkedYAMLError) -> str:
    # `found duplicate key "a" with value "2" (original value: "1")` is clearer without the values.
    problem = str(error.problem).partition(" with value ")[0]
    has_context = error.context is not None and (error.context_mark is None or problem.startswith("but "))
    return f"{error.context}, {problem}" if has_context else problem


def _all_positions(root: Node, file: Path) -> dict[Loc, Position]:
    positions: dict[Loc, Position] = {}
    # Counts visits, not positions: a duplicate key has only one position.
    for visits, (loc, position) in enumerate(_positions(root, (), file, ()), 1):
        positions[loc] = position
        if visits > _MOST_VALUES:
            raise SpaceError(
                "this file is too large with all aliases expanded",
                where=str(positions[loc[:1]]),
                expected=f"at most {_MOST_VALUES:,} keys and items",
                got="more, with all aliases expanded",
                remedy="Look for aliases (`*name`) of lists of aliases.",
            )
    return positions


def _positions(node: Node, loc: Loc, file: Path, above: tuple[Node, ...]) -> Iterator[tuple[Loc, Position]]:
    """Yield the position of each key and item; also converts keys and dates to strings as written (`true`, `6`)."""
    if node in above:
        raise SpaceError("this alias contains itself", where=str(_at(node, file)), remedy="Write the value out.")
    _check_scalar(node, file)
    if isinstance(node, ScalarNode) and node.tag == _DATE:
        node.tag = _STRING
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield (*loc, index), _at(item, file)
            yield from _positions(item, (*loc, index), file, (*above, node))
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise SpaceError(
                    "a key must be a single word",
                    where=str(_at(key, file)),
                    remedy="Write no list or mapping before `:`.",
                )
            _check_scalar(key, file)
            if key.tag == _MERGE:
                yield (*loc, key.value), _at(key, file)  # counts as a visit, because empty merges can multiply too
                yield from _positions(value, loc, file, (*above, node))
            else:
                key.tag = _STRING
                yield (*loc, key.value), _at(key, file)
                yield from _positions(value, (*loc, key.value), file, (*above, node))


_MOST_DIGITS = 100
"""Characters of a whole number in any base; the largest integers of specs have ten digits."""


def _check_scalar(node: Node, file: Path) -> None:
    """Refuse characters that no file name and no database holds, and whole numbers that cannot be printed."""
    if not isinstance(node, ScalarNode):
        return
    problem = ""
    if any("\ud800" <= character <= "\udfff" for character in node.value):  # an escape such as `\ud800`
        problem, remedy = "this text contains a lone surrogate", "Write another character."
    elif "\0" in node.value:
        problem, remedy = "this text contains a NUL character", "Leave it out."
    elif node.tag == _INTEGER and len(node.value) > _MOST_DIGITS:
        problem, remedy = "this whole number has too many digits", f"Write at most {_MOST_DIGITS}."
    if problem:
        raise SpaceError(problem, where=str(_at(node, file)), remedy=remedy)


def _position(file: Path, before: str) -> Position:
    """The position after some text."""
    return Position(file, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _at(node: Node, file: Path) -> Position:
    return _at_mark(node.start_mark, file)


def _at_mark(mark: StreamMark, file: Path) -> Position:
    return Position(file, mark.line + 1, mark.column + 1)


def _copy_aliases(tree: Any) -> Any:
    """The same data with copies instead of aliases, so that changes are local."""
    if isinstance(tree, dict):
        return {key: _copy_aliases(value) for key, value in tree.items()}
    return [_copy_aliases(value) for value in tree] if isinstance(tree, list) else tree

"""YAML files as plain data that remembers where each key was written, so that errors carry file, line and column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from ablate.errors import SpaceError
from ablate.spec.sentences import Loc, describe

_SHOWN_ERRORS = 5
_MOST_BYTES = 128 * 1024
"""Size of a file. The reader takes seconds for a megabyte, and the largest space that is shipped has 3 kB."""
_MOST_LEVELS = 50
"""Mappings and lists within each other."""
_MOST_VALUES = 100_000
"""Keys and items of a file with every alias written out: a few lines of aliases of aliases can stand for billions."""

_STRING, _MERGE, _DATE = (f"tag:yaml.org,2002:{name}" for name in ("str", "merge", "timestamp"))


@dataclass(frozen=True, slots=True)
class Position:
    """Where a key stands: lines and columns are counted from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Document:
    """Plain data and where each key of it was written."""

    file: Path
    plain: dict[str, Any]
    positions: dict[Loc, Position] = field(default_factory=dict)

    def position(self, loc: Loc) -> Position:
        """Position of the deepest key on the way to `loc` that is written anywhere."""
        for end in range(len(loc), 0, -1):
            if loc[:end] in self.positions:
                return self.positions[loc[:end]]
        return Position(self.file, 1, 1)

    def refused(self, error: ValidationError, below: Loc = ()) -> SpaceError:
        """A validation error of this data (of the part of it at `below`) as one error with file, line and column."""
        told: list[tuple[str, str]] = []
        for loc, sentence in describe(error):
            whole = (*below, *loc)
            path = ".".join(str(part) for part in whole)
            told.append((str(self.position(whole)), f"`{path}`: {sentence}" if path else sentence))
        (place, text), *others = told[:_SHOWN_ERRORS]
        text += "".join(f"\n{other}: {sentence}" for other, sentence in others)
        if len(told) > _SHOWN_ERRORS:
            text += f"\nand {len(told) - _SHOWN_ERRORS} more."
        return SpaceError(text, where=place)


def read_document(path: Path, noun: str) -> Document:
    """Read a YAML file that is one mapping.

    Args:
        path: The file.
        noun: What the file is, for messages: `a space`.

    Raises:
        SpaceError: The file cannot be read, or is not YAML, or is no mapping.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise _too_large(path, noun)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _position(path, error.object[: error.start].decode(errors="replace"))
        raise SpaceError("this is not UTF-8 text", where=str(place), remedy="Save the file as UTF-8.") from None
    except OSError as error:
        raise SpaceError(f"this cannot be read ({error.strerror})", where=str(path)) from None
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.max_depth = _MOST_LEVELS
        root = yaml.compose(text)
        positions = {} if root is None else _all_positions(root, path)
        tree = None if root is None else yaml.constructor.construct_document(root)
    except MaxDepthExceededError as error:
        where = str(_at_mark(error.problem_mark, path))
        got, close = f"more than {_MOST_LEVELS} levels", "Close what was left open."
        raise SpaceError("this is nested too deeply", where=where, got=got, remedy=close) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = str(_at_mark(mark, path) if mark else path)
        raise SpaceError(
            f"this is not YAML: {_problem(error)}", where=where, remedy="Mend it at or above this line."
        ) from None
    except ReaderError as error:
        place = _position(path, text[: error.position])
        problem = f"this is not YAML: it holds the character U+{error.character:04X}"
        raise SpaceError(problem, where=str(place), remedy="Take it out.") from None
    except (YAMLError, ValueError) as error:  # ValueError: a tag such as `!!int` on a value that is none
        raise SpaceError(f"this is not YAML: {error}", where=str(path)) from None
    if not isinstance(tree, dict):
        got = "an empty file" if tree is None else f"a {'list' if isinstance(tree, list) else 'single value'}"
        remedy = "`ablate new NAME` writes a commented one to start from." if tree is None else None
        raise SpaceError(f"{noun} is a mapping of keys to values", where=f"{path}:1:1", got=got, remedy=remedy)
    return Document(path, _unshared(tree), positions)


def _too_large(path: Path, noun: str) -> SpaceError:
    return SpaceError(
        "this file is too large",
        where=str(path),
        expected=f"{noun} of at most {_MOST_BYTES:,} bytes",
        remedy="Check that you named the right file; data is named by its address and not written into the file.",
    )


def _problem(error: MarkedYAMLError) -> str:
    # `found duplicate key "a" with value "2" (original value: "1")` is clear without the values.
    problem = str(error.problem).partition(" with value ")[0]
    said_before = error.context is not None and (error.context_mark is None or problem.startswith("but "))
    return f"{error.context}, {problem}" if said_before else problem


def _all_positions(root: Node, file: Path) -> dict[Loc, Position]:
    positions: dict[Loc, Position] = {}
    # Visits are counted and not positions: a key that is written twice has one position.
    for visits, (loc, position) in enumerate(_positions(root, (), file, ()), 1):
        positions[loc] = position
        if visits > _MOST_VALUES:
            raise SpaceError(
                "this file stands for too much",
                where=str(positions[loc[:1]]),
                expected=f"at most {_MOST_VALUES:,} keys and items",
                got="more, with every alias written out",
                remedy="Look for aliases (`*name`) of lists of aliases.",
            )
    return positions


def _positions(node: Node, loc: Loc, file: Path, above: tuple[Node, ...]) -> Iterator[tuple[Loc, Position]]:
    """Where each key and item stands; on the way, keys and dates become strings as they are written (`true`, `6`)."""
    if node in above:
        raise SpaceError("this alias contains itself", where=str(_at(node, file)), remedy="Write the value out.")
    _check_text(node, file)
    if isinstance(node, ScalarNode) and node.tag == _DATE:
        node.tag = _STRING
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield (*loc, index), _at(item, file)
            yield from _positions(item, (*loc, index), file, (*above, node))
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                raise SpaceError("a key is a single word", where=str(_at(key, file)))
            _check_text(key, file)
            if key.tag == _MERGE:
                yield (*loc, key.value), _at(key, file)  # a visit too: merges of nothing double as well
                yield from _positions(value, loc, file, (*above, node))
            else:
                key.tag = _STRING
                yield (*loc, key.value), _at(key, file)
                yield from _positions(value, (*loc, key.value), file, (*above, node))


def _check_text(node: Node, file: Path) -> None:
    """Refuse a text that an escape such as `\\ud800` makes one that cannot be written, stored or shown."""
    if isinstance(node, ScalarNode) and any("\ud800" <= character <= "\udfff" for character in node.value):
        raise SpaceError(
            "half a character stands here", where=str(_at(node, file)), remedy="Write it out, or take it out."
        )


def _position(file: Path, before: str) -> Position:
    """The position that follows some text."""
    return Position(file, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _at(node: Node, file: Path) -> Position:
    return _at_mark(node.start_mark, file)


def _at_mark(mark: StreamMark, file: Path) -> Position:
    return Position(file, mark.line + 1, mark.column + 1)


def _unshared(tree: Any) -> Any:
    """The same data with every alias written out, so that a change in one place stays there."""
    if isinstance(tree, dict):
        return {key: _unshared(value) for key, value in tree.items()}
    return [_unshared(value) for value in tree] if isinstance(tree, list) else tree

"""The one tree of errors that a user can cause.

Every message says where the error is, what was expected, what was found and how to correct it; the command line prints
it as one paragraph and exits with 2.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

_LONGEST = 120
"""Characters of a value that a message shows; of a longer one it names the type alone."""
_LONGEST_LINE = 800
"""Characters of one line of a message; of a longer line, half of that from its beginning and a quarter from its end."""
_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters but for tabs and line ends, marks of direction, and halves of characters."""


class AblateError(Exception):
    """An error that a user can correct.

    Args:
        problem: One sentence that says what is wrong.
        where: The file (with line and column if known), the path in a spec, or the resource.
        expected: What would have been right.
        remedy: How to correct it, as an instruction.
    """

    exit_code = 2
    mistakes: Sequence[tuple[str, str]] = ()
    """All mistakes of a file, each with its place; empty if there is only this one."""

    def __init__(
        self,
        problem: str,
        *,
        where: str,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.where = where
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(self.paragraph())

    def paragraph(self) -> str:
        """The whole message as one paragraph of plain text."""
        problem = _shorten(self.problem)
        parts = [f"{_shorten(self.where)}: {problem}"]
        if self.expected is not None:
            parts.append(f"expected {_shorten(self.expected)}")
        if self.got is not None:
            parts.append(f"got {_shorten(self.got)}")
        text = _sentence("; ".join(part.rstrip(".") for part in parts))
        return f"{text} {_sentence(_shorten(self.remedy))}" if self.remedy else text

    def plain(self) -> dict[str, Any]:
        """The message as data: `problem` and `where`, and `expected`, `got` and `remedy`, each null if it says none.

        With several mistakes of a file, `mistakes` lists all of them as `where` and `problem`.
        """
        parts = ("problem", "where", "expected", "got", "remedy")
        said = {name: None if (text := getattr(self, name)) is None else printable(text) for name in parts}
        mistakes = [{"where": printable(where), "problem": printable(text)} for where, text in self.mistakes]
        return said | ({"mistakes": mistakes} if mistakes else {})

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (a worker's mistake is shown by the driver), so keyword fields must survive.
        return (_rebuild, (type(self), self.problem, self.where, self.expected, self.got, self.remedy))


def printable(text: str) -> str:
    """Text without what would move a terminal's cursor, colour it or turn the direction of writing."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _shorten(text: str) -> str:
    """Printable text in which no line is longer than a person reads: a value that a user gave may be anything."""
    text = printable(text)
    return "\n".join(
        line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE // 2]} ... {line[-_LONGEST_LINE // 4 :]}"
        for line in text.split("\n")
    )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _rebuild(
    kind: type[AblateError],
    problem: str,
    where: str,
    expected: str | None,
    got: str | None,
    remedy: str | None,
) -> AblateError:
    return kind(problem, where=where, expected=expected, got=got, remedy=remedy)


_OF_THE_MACHINE = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EMFILE", "ENFILE", "EIO")
    if hasattr(errno, name)  # Windows has no quotas
}


def first_cause(error: BaseException, where: str) -> BaseException:
    """The error that a library raised first, before it raised others from it.

    Args:
        error: What the library raised in the end.

    Raises:
        AblateError: The machine is the cause (a full disk, a missing permission) and not what the library was given.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        problem = f"the system refuses this: {os.strerror(error.errno or 0)}"
        place = where if error.filename is None else str(error.filename)
        raise AblateError(problem, where=place, remedy="Make room or change its permissions.") from error
    return error


class ArgumentError(AblateError):
    """An argument of a public function that has the wrong type or value."""


class SpaceError(AblateError):
    """An invalid space file, or an invalid spec in it."""


class PluginError(AblateError):
    """A kind of the user's own that cannot be loaded."""


class DataError(AblateError):
    """Data that is missing, broken or unfit for its task."""


class StoreError(AblateError):
    """A store that cannot be opened, read or written."""


class StudyBusyError(StoreError):
    """Another process is running the same study."""


class UnreadableWarning(UserWarning):
    """How many rows of a store cannot be read; they are left out, or count as failed."""


class NotFoundError(AblateError):
    """A study, variant or trial that the store does not hold."""


class MissingPackageError(AblateError):
    """A package that only some commands need, and that is not installed."""


class EngineError(AblateError):
    """Trials that cannot be run as asked (no such device, workers that keep dying)."""


def check_argument(where: str, value: object, kinds: type | tuple[type, ...], expected: str, remedy: str = "") -> None:
    """Refuse an argument of the wrong kind.

    Args:
        where: The function and its argument: `ablate.plan: space`.
        kinds: What it may be an instance of.
        expected: The same in words.
        remedy: How to correct it, as an instruction.

    Raises:
        ArgumentError: It is of another kind.
    """
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise _wrong_kind(where, value, expected, remedy)


def check_count(where: str, value: object) -> None:
    """Refuse an argument that is not a whole number from 1 on.

    Raises:
        ArgumentError: It is not.
    """
    check_argument(where, value, int, "a whole number of at least 1")
    if value < 1:  # type: ignore[operator]  # an int, by the line above
        raise ArgumentError("this number is too small", where=where, expected="at least 1", got=str(value))


def check_texts(where: str, values: object, expected: str, remedy: str = "") -> list[str]:
    """The texts of an argument that takes several, as a list; a single text is refused, being read letter by letter.

    Raises:
        ArgumentError: It is a single text, not a collection, or holds something that is not a text.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise _wrong_kind(where, values, expected, remedy)
    texts = list(values)
    for text in texts:
        check_argument(where, text, str, expected, remedy)
    return texts


def _wrong_kind(where: str, value: object, expected: str, remedy: str) -> ArgumentError:
    shown = f"{value!r}, which is of type {type(value).__name__}"
    return ArgumentError(
        "this argument is of the wrong kind",
        where=where,
        expected=expected,
        got=shown if len(shown) <= _LONGEST else f"a value of type {type(value).__name__}",
        remedy=remedy or None,
    )

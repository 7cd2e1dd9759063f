"""Names of switches, variants and studies as other programs take them: for keys, files and titles outside ablate.

A space may name things in any script, at any length. Where a target does not take a name, two names must not become
one: `portable_name` is injective for each target.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

_DIGITS = 10
_MARKED = re.compile(rf"-h[0-9a-f]{{{_DIGITS}}}\Z")
"""The end of a name that was changed. A name that ends so by itself is changed too, so that the two stay apart."""


@dataclass(frozen=True, slots=True)
class NameRule:
    """The names that a target takes.

    Attributes:
        takes: Whether a character may be in a name.
        longest: The greatest size of a name.
        size: The size of a name, in the unit of `longest`.
        refuses: Whether the target refuses a name whose characters it takes. It takes composed names that begin with
            `_` and have neither dots nor slashes.
        one_case: Whether `A` and `a` are one name there, as in a folder of a Mac.
    """

    takes: Callable[[str], bool]
    longest: int
    size: Callable[[str], int] = len
    refuses: Callable[[str], bool] = lambda name: False
    one_case: bool = False


def portable_name(name: str, rule: NameRule, room: int = 0) -> str:
    """The name as it is if the target takes it, else changed as little as needed, with a hash of the name at its end.

    Args:
        room: What the caller adds to the name, in the unit of `rule.longest`.
    """
    longest = rule.longest - room
    written = "".join(character if rule.takes(character) else "_" for character in name)
    kept = written == name and not (rule.one_case and name != name.casefold())
    if kept and rule.size(name) <= longest and not rule.refuses(name) and not _MARKED.search(name):
        return name
    mark = f"-h{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGITS]}"
    changed = f"{_shorten(written, rule, longest - len(mark))}{mark}"
    if rule.refuses(changed):
        written = "_" + re.sub(r"[./]", "_", unicodedata.normalize("NFC", written))
        changed = f"{_shorten(written, rule, longest - len(mark))}{mark}"
    return changed


def _shorten(name: str, rule: NameRule, longest: int) -> str:
    """The name without a part of its middle: the beginning and the end say most."""
    if rule.size(name) <= longest:
        return name
    begin, end = name[: longest - longest // 3], name[-(longest // 3) :]
    while rule.size(f"{begin}_{end}") > longest:
        begin, end = begin[:-1], end[len(begin) % 2 :]
    return f"{begin}_{end}"


def is_character(character: str) -> bool:
    """Whether a character is one by itself: not half of one, and not NUL, at which texts end in C."""
    return character != "\0" and not "\ud800" <= character <= "\udfff"


def _in_file_name(character: str) -> bool:
    if not (character.isalnum() or character in "_=,+@.-" or unicodedata.category(character).startswith("M")):
        return False
    try:
        os.fsencode(character)
    except UnicodeEncodeError:  # a file system of ASCII or Latin-1
        return False
    return True


def _is_no_file_name(name: str) -> bool:
    """Whether a file of this name is hidden, looks like an option, or has another name on a Mac."""
    return name == "" or name.startswith((".", "-")) or not unicodedata.is_normalized("NFC", name)


FILE = NameRule(
    _in_file_name, 255, lambda name: len(os.fsencode(name)), _is_no_file_name, sys.platform in ("darwin", "win32")
)
"""One component of a path, also as LaTeX and web pages take it."""

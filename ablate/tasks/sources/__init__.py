"""Sources of text, one file each in this folder. An address like `builtin:python_stdlib` or `file:PATH` names one."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from ablate.errors import DataError
from ablate.tasks.base import Say


class Document(NamedTuple):
    """One text, never split between training and validation."""

    name: str
    text: str


class Source(ABC):
    """Where texts come from. A final subclass in this folder is found by itself.

    Args:
        argument: What follows the prefix in the address.
    """

    prefix: ClassVar[str]
    """The address, or its start up to and including the colon if an argument follows."""
    argument_name: ClassVar[str] = ""
    """What follows the prefix, as messages call it; empty if nothing may follow."""

    def __init__(self, argument: str) -> None:
        self.argument = argument

    def __init_subclass__(cls) -> None:
        _SOURCES[cls.prefix] = cls

    @abstractmethod
    def documents(self, say: Say) -> Iterator[Document]:
        """The texts, always in the same order; what is left out is counted in one line to `say`.

        Raises:
            DataError: The source is missing or holds something that is no text.
        """


_SOURCES: dict[str, type[Source]] = {}


def parse(address: str) -> Source:
    """The source that an address names. Nothing is read yet.

    Raises:
        DataError: There is no such source; the message names the nearest.
    """
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for prefix, source in _SOURCES.items():
        rest = address.removeprefix(prefix)
        if address.startswith(prefix) and bool(rest) == bool(source.argument_name):
            return source(rest)
    forms = {prefix: f"`{prefix}{source.argument_name}`" for prefix, source in sorted(_SOURCES.items())}
    near = difflib.get_close_matches(address, forms, n=1)
    raise DataError(
        "there is no such source of text",
        expected=f"one of {', '.join(forms.values())}",
        got=repr(address),
        remedy=f"Did you mean {forms[near[0]]}?" if near else "Files of your own need `file:` before their path.",
    )

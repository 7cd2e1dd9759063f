"""Chooses the fastest of several equivalent implementations on this machine: by measurement, or by each kernel's rule.

The measurements are in a small JSON file in the user's cache, written by `ablate bench --tune`; without it each kernel
uses its rule. Sizes are rounded to powers of two, so that a measurement of one shape serves similar ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from ablate.errors import AblateError
from ablate.locations import cache_folder

Way = TypeVar("Way")

_asked: dict[str, tuple[tuple[str, ...], str]] | None = None
_taken: dict[str, str] = {}


def choose(operation: str, ways: Mapping[str, Way], rule: str, x: Tensor, *sizes: int) -> Way:
    """The implementation that was measured as fastest for these sizes on the device of x, or else that of the rule."""
    return ways[choice(operation, ways, rule, x.device.type, *sizes)]


def choice(operation: str, ways: Mapping[str, Way], rule: str, device: str, *sizes: int) -> str:
    """The name of the implementation that `choose` returns."""
    here = key(operation, device, *sizes)
    if _asked is not None:
        _asked[here] = (tuple(ways), rule)
    name = _taken.get(here) or table().get(here, rule)
    return name if name in ways else rule


@contextmanager
def asking() -> Iterator[dict[str, tuple[tuple[str, ...], str]]]:
    """Record each choice made in the body: key to the names of all implementations, and the default one."""
    global _asked
    before, _asked = _asked, {}
    try:
        yield _asked
    finally:
        _asked = before


@contextmanager
def taking(name: str, way: str) -> Iterator[None]:
    """Use this implementation for the key in the body, regardless of measurements."""
    _taken[name] = way
    try:
        yield
    finally:
        del _taken[name]


def key(operation: str, device: str, *sizes: int) -> str:
    """The key of a choice in the table; sizes are rounded up to powers of two."""
    return "/".join([operation, device, *(str(1 << max(0, size - 1).bit_length()) for size in sizes)])


@cache
def table() -> dict[str, str]:
    """The table, read at the first call; empty if there is no readable one."""
    try:
        choices = json.loads(table_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, AblateError):
        return {}
    return {str(name): str(way) for name, way in choices.items()} if isinstance(choices, dict) else {}


def remember(choices: Mapping[str, str]) -> None:
    """Add choices to the table, in the file and in this process.

    Raises:
        OSError: The file cannot be written.
    """
    file = table_file()
    merged = {**table(), **choices}
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_text(json.dumps(merged, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(new, file)
    table.cache_clear()


def table_file() -> Path:
    """`kernels.json` in the cache folder."""
    return cache_folder() / "kernels.json"

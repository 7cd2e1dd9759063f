"""What differs between two pieces of plain data, path by path, and between the places where trials ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ablate.spec.paths import leaves
from ablate.store.records import Environment


@dataclass(frozen=True, slots=True)
class Difference:
    """A dotted path whose values differ.

    Attributes:
        path: Where.
        values: `left` and `right` to the values; a side that has no such path is left out.
    """

    path: str
    values: dict[str, Any]


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[Difference, ...]:
    """What differs between nested mappings, in the order of the left one, then of the right one."""
    sides = {"left": leaves(left), "right": leaves(right)}
    changed = []
    for path in dict.fromkeys((*sides["left"], *sides["right"])):
        values = {side: plain[path] for side, plain in sides.items() if path in plain}
        if len(values) < 2 or values["left"] != values["right"]:
            changed.append(Difference(path, values))
    return tuple(changed)


def environment_differences(left: Iterable[Environment], right: Iterable[Environment]) -> tuple[Difference, ...]:
    """What differs between the places where some trials ran and where others did, whatever command ran them.

    A side whose own places differ has all its values in a list.
    """
    return differences(merged(left), merged(right))


def merged(environments: Iterable[Environment]) -> dict[str, Any]:
    """Path to value of some places, the command left out; to a list of values where they differ."""
    values: dict[str, list[Any]] = {}
    for environment in environments:
        for path, value in leaves(asdict(environment)).items():
            if path != "command" and value not in values.setdefault(path, []):
                values[path].append(value)
    return {path: pair[0] if len(pair) == 1 else sorted(pair, key=str) for path, pair in values.items()}

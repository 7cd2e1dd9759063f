"""Reads a Vega-Lite specification: its marks with their rows and channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Unit = dict[str, Any]


def units(spec: dict[str, Any]) -> Iterator[Unit]:
    """Every layer that has a mark, in the order in which they are drawn; rows of a facet are in each of its layers."""
    if "mark" in spec:
        yield spec
    inner = spec.get("spec")
    if inner is not None:
        yield from (unit | {"data": unit.get("data", spec["data"])} for unit in units(inner))
    for key in ("layer", "concat", "hconcat", "vconcat"):
        for part in spec.get(key, ()):
            yield from units(part)


def marks(spec: dict[str, Any], kind: str) -> list[Unit]:
    """The layers with this mark."""
    return [unit for unit in units(spec) if unit["mark"]["type"] == kind]


def rows(unit: Unit) -> list[dict[str, Any]]:
    """The rows that a layer draws."""
    return list(unit["data"]["values"])


def series(unit: Unit, field: str = "name") -> dict[str, list[dict[str, Any]]]:
    """The rows of a layer by the name of their line."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows(unit):
        found.setdefault(row[field], []).append(row)
    return found


def at(spec: dict[str, Any], axis: str) -> list[float]:
    """Where lines across the whole panel are on an axis: zero and the margins."""
    return [
        rule["encoding"][axis]["datum"] for rule in marks(spec, "rule") if "datum" in rule["encoding"].get(axis, {})
    ]

"""Reads a Vega-Lite specification: its marks with their rows and channels; and where the texts of a picture lie."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

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


def cut_texts(svg: bytes, letter: float = 6.4) -> list[str]:
    """The level texts of a picture that reach beyond it in a font whose letters are as wide as this at 11 pixels."""
    picture, found, space = ElementTree.fromstring(svg), list[str](), "{http://www.w3.org/2000/svg}"

    def look(element: ElementTree.Element, x: float) -> None:
        moved = re.search(r"translate\(([-\d.]+)", element.get("transform", ""))
        x += float(moved[1]) if moved else 0.0
        if "rotate" in element.get("transform", ""):
            return
        for line in element.iter(f"{space}tspan") if len(element) else [element]:
            size = float(element.get("font-size", "0px").removesuffix("px"))
            wide = letter * size / 11 * len(line.text or "")
            left = x - wide * {"end": 1.0, "middle": 0.5}.get(element.get("text-anchor", ""), 0.0)
            if element.tag == f"{space}text" and not -1 <= left <= left + wide <= float(picture.attrib["width"]) + 1:
                found.append(line.text or "")
        for inner in element:
            look(inner, x)

    look(picture, 0.0)
    return found

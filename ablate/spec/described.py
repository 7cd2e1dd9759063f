"""Descriptions of the fields of a spec: the string below each field, read from the source when a schema needs it.

Pydantic's `use_attribute_docstrings` does this at every import for every class, which takes longer than validating a
space.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def descriptions(spec: type[BaseModel]) -> dict[str, str]:
    """Descriptions of fields, by name, including inherited fields."""
    described: dict[str, str] = {}
    for owner in reversed(spec.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            described |= _own(owner)
    return {name: text for name, text in described.items() if name in spec.model_fields}


@functools.cache  # needed for each subclass, and reading the source is slow
def _own(spec: type[BaseModel]) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(spec)))
    except (OSError, TypeError):  # a class defined in an interactive session
        return {}
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }

"""What the fields of a spec are for: the text below each, read from the source when a schema asks for it.

Pydantic does the same (`use_attribute_docstrings`), but at every import and for every class, and reading the source of
all specs takes longer than validating a space.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from itertools import pairwise

from pydantic import BaseModel


def descriptions(spec: type[BaseModel]) -> dict[str, str]:
    """Field to its description, for the fields that have one, inherited ones among them."""
    found: dict[str, str] = {}
    for owner in reversed(spec.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _own(owner)
    return {name: text for name, text in found.items() if name in spec.model_fields}


@functools.cache  # a schema asks for a class once for each of its subclasses, and the source takes long to read
def _own(spec: type[BaseModel]) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(spec)))
    except (OSError, TypeError):  # a class that was typed into a session
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

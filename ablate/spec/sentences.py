"""Converts validation errors to sentences: the problem, the value, and a remedy."""

from __future__ import annotations

import difflib
import re

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ablate.spec.base import Spec

_LONGEST = 80

Loc = tuple[str | int, ...]
"""Path of a value in nested data: keys and indices from the root."""

_WHOLE, _NUMBER, _SWITCH = "a whole number", "a number", "`true` or `false`"

_EXPECTED = {
    "model_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number",
    "bool_type": _SWITCH,
    "bool_parsing": _SWITCH,
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
}
"""What is expected, by pydantic's type of error."""


def describe(error: ValidationError) -> list[tuple[Loc, str]]:
    """Every line of a validation error as (path, sentence with value and remedy)."""
    return [(where(line), sentence(line)) for line in error.errors()]


def where(line: ErrorDetails) -> Loc:
    """The path of a line of a validation error; for a missing key the mapping that lacks it."""
    loc = tuple(part for part in line["loc"] if part != "[key]")
    return loc[:-1] if line["type"] == "missing" else loc


def sentence(line: ErrorDetails) -> str:
    """A line of a validation error as one or two sentences, without its path."""
    context = line.get("ctx", {})
    problem, remedy = line["msg"], str(context.get("remedy", ""))
    if line["type"] == "missing":
        return _missing_key(line["loc"][-1])
    if line["type"] in _EXPECTED:
        problem = f"{_EXPECTED[line['type']]} is expected here"
    elif line["type"] == "too_short":
        least, there = context["min_length"], context["actual_length"]
        entries = "one entry is" if least == 1 else f"{least} entries are"
        problem = f"at least {entries} expected here, but there {'is' if there == 1 else 'are'} {there or 'none'}"
    elif line["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", context["expected"])
        near = difflib.get_close_matches(str(line["input"]), known, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else ""
    bound = next((context[name] for name in ("ge", "gt", "le", "lt") if name in context), None)
    if isinstance(bound, float):  # pydantic writes 1e-30 out
        problem = re.sub(r"[\d.]+$", f"{bound:g}", problem)
    problem = problem.replace("Input should", "the value should").replace("greater than or equal to", "at least")
    got = "" if line["type"] == "unknown_key" else _got(line["input"], problem)
    text = problem[0].lower() + problem[1:] + got
    return f"{text if text.endswith(('.', '?')) else text + '.'} {remedy}".rstrip()


def _missing_key(part: str | int) -> str:
    """The key or the list entry that is missing."""
    return f"entry {part + 1} of this list is missing." if isinstance(part, int) else f"the key `{part}` is missing."


def _got(value: object, problem: str) -> str:
    """The value, unless the problem contains it or it is too long for a sentence."""
    if isinstance(value, (dict, list, tuple, Spec)) or f"`{value}`" in problem:
        return ""
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return f"; got {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"

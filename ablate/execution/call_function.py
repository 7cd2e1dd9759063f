"""The process of a trainer that is a function; its arguments are MODULE:FUNCTION, CONFIG and ROWS."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablate.processes import adopt_modules, keep_printing


def _plain(value: Any) -> Any:
    """The number in a scalar of numpy or torch; of anything else a text, which is not a metric."""
    try:
        return value.item()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return str(value)


def call(function: str, config: Path, rows: Path) -> None:
    """Call a function with what it takes, and write the rows that it returns, yields or reports.

    Args:
        function: `MODULE:FUNCTION`; the module is found in the working folder first.
        config: JSON with `parameters`, and with `places`: what else it may take, by name.
        rows: The file for the rows, a JSON object on each line.

    Raises:
        TypeError: It takes no such parameter, or what it returns is neither a row nor rows.
    """
    given: dict[str, Any] = json.loads(config.read_text())
    module, _, name = function.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    called = getattr(importlib.import_module(module), name)
    with rows.open("w") as file:

        def report(row: Mapping[str, Any] | None = None, /, **metrics: Any) -> None:
            print(json.dumps({**(row or {}), **metrics}, default=_plain), file=file, flush=True)

        parameters = inspect.signature(called).parameters
        anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        places = {
            key: value for key, value in {**given["places"], "report": report}.items() if key in parameters or anything
        }
        returned = called(**given["parameters"], **places)
        for row in [returned] if isinstance(returned, Mapping) else returned if isinstance(returned, Iterable) else ():
            report(row)


if __name__ == "__main__":
    keep_printing()
    adopt_modules()
    call(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

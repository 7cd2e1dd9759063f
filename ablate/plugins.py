"""A user's own mixers, tasks and designs: a Python file given by `--plugin`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from ablate.errors import PluginError


def load_plugin(location: str) -> None:
    """Import a file; the kinds that it defines join their families.

    Raises:
        PluginError: The file is missing, or raises when it is imported.
    """
    path = Path(location).resolve()
    if not path.is_file():
        raise PluginError("there is no such file", where=location, remedy="Give `--plugin` a Python file.")
    name = f"ablate_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError("this is not a Python file", where=location, remedy="Give `--plugin` a file ending in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise PluginError(
            f"importing this raised {type(error).__name__}: {error}",
            where=location,
            remedy="Mend the file; `python FILE` shows the whole traceback.",
        ) from error

"""A user's own mixers, tasks and designs: a Python file given by `--plugin`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from ablate.errors import PluginError
from ablate.spec.base import Kinded
from ablate.spec.design import DESIGNS
from ablate.spec.mixer import MIXERS
from ablate.spec.task import TASKS

_FAMILIES = (MIXERS, TASKS, DESIGNS)
_loaded: set[str] = set()


def load_plugin(location: str) -> None:
    """Import a file; the kinds that it defines join their families.

    Raises:
        PluginError: The file is missing, raises when it is imported, or defines a kind that lacks something.
    """
    path = Path(location).resolve()
    if not path.is_file():
        raise PluginError("there is no such file", where=location, remedy="Give `--plugin` a Python file.")
    name = f"ablate_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in _loaded:
        return
    # Our own kinds first, so that one of the same name is refused as the plugin's mistake.
    for family in _FAMILIES:
        family.members()
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError("this is not a Python file", where=location, remedy="Give `--plugin` a file ending in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"importing this raised {type(error).__name__}: {error}",
            where=location,
            remedy="Mend the file; `--debug` shows where it was raised.",
        ) from error
    for family in _FAMILIES:
        for kind, member in family.members().items():
            if member.__module__ == name:
                _check_complete(member, f"{family.noun} kind `{kind}`", location)
    _loaded.add(name)


def _check_complete(member: type[Kinded], what: str, location: str) -> None:
    facts = [fact for fact in member.__class_vars__ if not hasattr(member, fact)]
    missing = sorted([*member.__abstractmethods__, *facts])
    if missing:
        raise PluginError(
            f"the {what} does not define {', '.join(f'`{fact}`' for fact in missing)}",
            where=location,
            remedy=f"Add it to the class {member.__name__}.",
        )

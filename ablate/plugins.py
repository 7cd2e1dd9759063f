"""The families, and a user's own kinds of them: a Python file given by `--plugin`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from ablate.analysis.report_format import FORMATS
from ablate.errors import PluginError
from ablate.locations import real_path, typed_path
from ablate.spec.base import Family, Kinded, Spec
from ablate.spec.block import RESIDUALS
from ablate.spec.code import specs_in
from ablate.spec.design import DESIGNS
from ablate.spec.layer import INITIALISERS, POSITIONS
from ablate.spec.optimizer import OPTIMIZERS
from ablate.spec.schedule import SCHEDULES
from ablate.spec.source_code import ModuleCode, module_code, read_sources
from ablate.spec.sublayers import MIXERS, MLPS, NORMS
from ablate.spec.task import TASKS
from ablate.tasks.sources import SOURCES
from ablate.tasks.tokenizers import TOKENIZERS
from ablate.trackers import TRACKERS

FAMILIES: dict[str, Family] = {
    "mixers": MIXERS,
    "mlps": MLPS,
    "norms": NORMS,
    "positions": POSITIONS,
    "residuals": RESIDUALS,
    "initialisers": INITIALISERS,
    "optimizers": OPTIMIZERS,
    "schedules": SCHEDULES,
    "tasks": TASKS,
    "tokenizers": TOKENIZERS,
    "sources": SOURCES,
    "designs": DESIGNS,
    "formats": FORMATS,
    "trackers": TRACKERS,
}
"""Every family by its name. Installed packages add kinds by the entry point group `ablate.NAME`."""

_PREFIX = "ablate_plugin_"
_loaded: dict[str, dict[str, ModuleCode]] = {}
_folders: set[Path] = set()
"""The folders of the plugins."""


def load_plugin(location: str) -> None:
    """Import a file; the kinds that it defines join their families. One that has changed since is imported again.

    The file can import the modules beside it, from then on and in every process that loads it. They are searched after
    everything that is installed, so a `copy.py` beside it stands in for nothing.

    Raises:
        PluginError: The file is missing, raises when it is imported, defines a kind that lacks something, or imports a
            module beside it whose name a module beside another plugin has too.
    """
    path = real_path(typed_path(location, PluginError))
    if not path.is_file():
        raise PluginError("there is no such file", where=location, remedy="Give `--plugin` a Python file.")
    name = f"{_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    sources = read_sources(path)
    code = {beside: module_code(content) for beside, (_, content) in sources.items()}
    if _loaded.get(name) == code:
        return
    _find_beside(path.parent)
    for beside in filter(None, sources):
        if _is_in(beside, [entry for entry in sys.path if real_path(entry) not in _folders]):
            continue  # what is installed is imported under this name, not the file
        if _is_in(beside, [str(folder) for folder in _folders - {path.parent}]):
            raise PluginError(
                f"this imports `{beside}`, and the folder of another plugin has a module of that name too",
                where=location,
                remedy="Rename one of the two.",
            )
        if name in _loaded:
            sys.modules.pop(beside, None)  # so that it is imported again too
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError("this is not a Python file", where=location, remedy="Give `--plugin` a file ending in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the file raises, be it SystemExit, is its own mistake
        raise PluginError(
            f"importing this raised {type(error).__name__}: {error}",
            where=location,
            remedy="Mend the file; `--debug` shows where it was raised.",
        ) from error
    for family in FAMILIES.values():
        for kind, member in family.defined_in(name).items():
            _check_complete(member, f"{family.noun} kind `{kind}`", location)
    _loaded[name] = code


def plugin_kinds(spec: Spec) -> dict[str, str]:
    """Every kind in a spec that ablate itself does not define, to the plugin file or package that does."""
    kinds = (part for part in specs_in(spec) if isinstance(part, Kinded))
    return {part.kind_name(): home for part in kinds if (home := _home(type(part)))}


def _home(kind: type[Kinded]) -> str:
    """The name of the plugin file, or of the package, that defines a kind; empty if ablate does."""
    if kind.__module__.startswith(_PREFIX):
        return Path(str(sys.modules[kind.__module__].__file__)).name
    package = kind.__module__.partition(".")[0]
    return "" if package == "ablate" else package


def _find_beside(folder: Path) -> None:
    """Let modules of the folder of a plugin be found, after everything else."""
    _folders.add(folder)
    if folder not in (real_path(entry) for entry in sys.path):
        sys.path.append(str(folder))
    importlib.invalidate_caches()


def _is_in(module: str, folders: list[str]) -> bool:
    """Whether the first part of a module's name is found in folders, or is built into Python."""
    top = module.partition(".")[0]
    found = PathFinder.find_spec(top, folders)
    return top in sys.builtin_module_names or (found is not None and found.origin is not None)


def _check_complete(member: type[Kinded], what: str, location: str) -> None:
    facts = [fact for fact in member.__class_vars__ if not hasattr(member, fact)]
    missing = sorted([*member.__abstractmethods__, *facts])
    if missing:
        raise PluginError(
            f"the {what} does not define {', '.join(f'`{fact}`' for fact in missing)}",
            where=location,
            remedy=f"Add it to the class {member.__name__}.",
        )
